internal import Assets
package import DownloadModel
internal import EventLoop
internal import Extraction
internal import Glibc
internal import PartFiles

/// The files of an asset in the folder of the output. Each gets its name whole: first the archive, then the signature, then the manifest.
struct Publication {
    private let request: PackRequest
    private let output: OpenFolder
    /// The manifest that is there already.
    private let former: AssetManifest?

    private var manifestName: String { "\(request.name).json" }
    private var signatureName: String { "\(request.name).json.sig" }
    /// The manifest's URL, or one that stands in for it.
    private var base: String { "\(request.baseURL ?? "https://localhost/")\(percentEncoded(path: manifestName))" }

    /// Waits until no other process packs into the same folder.
    init(_ request: PackRequest, source: OpenFolder) throws(PackingError) {
        self.request = request
        guard PackRequest.isName(request.name) else {
            throw PackingError("“\(DownloadModel.shown(request.name))” cannot name files; give another --name, of at most 64 bytes")
        }
        output = try Packer.open(request.output)
        let inside = source.path == "/" ? "/" : source.path + "/"
        guard !output.path.isSameBytes(as: source.path), !output.path.utf8.starts(with: inside.utf8) else {
            throw PackingError("the output “\(output.path)” lies in the folder that is packed; give another \(request.outputSetting)")
        }
        let folder = output.descriptor
        _ = uninterrupted { flock(folder, LOCK_EX) }  // a file system without locks has none to wait for
        former = try Self.former(request, output)
        guard former == nil || request.key != nil || request.forces || output.status(signatureName) == nil else {
            throw PackingError("“\(request.name).json” is signed, and a manifest without --key would not be; give the key, or --force")
        }
        if let version = request.version {
            _ = try parse(manifest(version: version, digest: String(repeating: "0", count: 64), size: 0, unpacked: 0))
        }
    }

    private static func former(_ request: PackRequest, _ output: OpenFolder) throws(PackingError) -> AssetManifest? {
        let (name, path) = ("\(request.name).json", "\(output.path)/\(request.name).json")
        guard !request.forces, output.status(name) != nil else { return nil }
        let file = openUninterrupted(output.descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { throw .of(path, "cannot be read", errno) }
        defer { close(file) }
        guard let bytes = try? readToEnd(file, atMost: ManifestText.mostBytes),
            let base = try? DownloadURL("http://localhost/\(percentEncoded(path: name))"),
            let manifest = try? ManifestText.parse(bytes, from: base)
        else {
            throw PackingError("“\(path)” is there and is no manifest; give another --name or --output, or --force")
        }
        return manifest
    }

    // MARK: The archive

    /// An open file without its final name.
    final class PartialFile {
        let descriptor: Int32
        fileprivate let (name, folder): (String, OpenFolder)
        fileprivate var isNamed = false

        fileprivate init(_ name: String, in folder: OpenFolder) throws(PackingError) {
            (self.name, self.folder) = (".\(name).part", folder)
            // The folder is locked, so a file with this name was left by a killed run.
            unlinkat(folder.descriptor, self.name, 0)
            descriptor = openUninterrupted(
                folder.descriptor, self.name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o666)  // less the umask
            guard descriptor >= 0 else { throw .of("\(folder.path)/\(name)", "cannot be written", errno) }
        }

        deinit {
            if descriptor >= 0 { close(descriptor) }
            if descriptor >= 0, !isNamed { unlinkat(folder.descriptor, name, 0) }
        }

        fileprivate func take(name final: String) throws(PackingError) {
            guard fsync(descriptor) == 0, renameat(folder.descriptor, name, folder.descriptor, final) == 0 else {
                throw .of("\(folder.path)/\(final)", "cannot be written", errno)
            }
            isNamed = true
        }
    }

    func beginArchive() throws(PackingError) -> PartialFile { try PartialFile("\(request.name).archive", in: output) }

    /// - Parameter archive: the whole archive.
    func publish(_ archive: PartialFile, _ tree: FolderTree) throws(PackingError) -> PackedAsset {
        var status = stat()
        guard fstat(archive.descriptor, &status) == 0 else { throw .of(output.path, "cannot be read", errno) }
        let size = ByteCount(clamping: status.st_size)
        let most = ArchiveRules().mostUnpacked(of: size)
        guard tree.size <= most else {
            throw PackingError(
                """
                the archive has \(HumanText.size(size)), and its files \(HumanText.size(tree.size)): of so small an archive, Todoku unpacks \
                at most \(HumanText.size(most)); use --compression none
                """)
        }
        let digest = hexadecimal(try digest(of: archive))
        let version = request.version ?? String(digest.prefix(16))
        let text = manifest(version: version, digest: digest, size: size, unpacked: tree.size)
        let parsed = try parse(text)
        let bytes = Array(text.utf8)
        let name = archiveName(version)
        let warnings = try compare(parsed)
        let (isOldArchive, isOldManifest) = (try isThere(name, archive, size, digest), try isThere(manifestName, bytes))
        // The manifest names the last version only. Apps may still be downloading the archive of an earlier one. A damaged archive of the
        // last version is replaced.
        let isKnown = request.version == nil || former?.version.isSameBytes(as: version) == true
        guard isOldArchive || isKnown || request.forces || output.status(name) == nil else { throw Self.otherContents(of: version) }
        let signature = try request.key?.sign(bytes)
        if !isOldArchive { try archive.take(name: name) }
        // Signatures of Ed25519 depend on key and text alone.
        let isOldSignature = try signature.map { bytes throws(PackingError) in try isThere(signatureName, bytes) } ?? true
        if let signature, !isOldSignature { try write(signature, signatureName) }
        if signature == nil, request.forces { unlinkat(output.descriptor, signatureName, 0) }
        if !isOldManifest { try write(bytes, manifestName) }
        guard output.sync() else { throw .of(output.path, "cannot be written", errno) }
        return PackedAsset(
            version: version, archive: "\(output.path)/\(name)", manifest: "\(output.path)/\(manifestName)",
            signature: signature == nil ? nil : "\(output.path)/\(signatureName)", sha256: digest, size: size, unpackedSize: tree.size,
            entries: tree.entries.count, isUnchanged: isOldArchive && isOldManifest && isOldSignature, warnings: warnings)
    }

    private func digest(of archive: PartialFile) throws(PackingError) -> [UInt8] {
        do { return try Digest.compute(.sha256, of: archive.descriptor) } catch {
            throw PackingError("the digest of the archive cannot be computed: \((error as? Digest.Unavailable)?.reason ?? "\(error)")")
        }
    }

    /// A version may have a slash in it; a file's name may not.
    private func archiveName(_ version: String) -> String {
        let safe = String(version.unicodeScalars.map { FileName.isBare("x\($0)") ? Character($0) : "-" })
        return "\(request.name)-\(safe)\(request.compression.ending)"
    }

    // MARK: The manifest

    private func manifest(version: String, digest: String, size: ByteCount, unpacked: ByteCount) -> String {
        let name = percentEncoded(path: archiveName(version))
        var fields = [
            ("version", quoted(version)), ("url", quoted("\(request.baseURL ?? "")\(name)")), ("sha256", quoted(digest)),
            ("size", "\(size)"), ("unpacked-size", "\(unpacked)"),
        ]
        if let timestamp = request.timestamp { fields.append(("timestamp", quoted(rfc3339(timestamp)))) }
        if !request.mirrors.isEmpty {
            fields.append(("mirrors", "[\(request.mirrors.map { quoted("\($0)\(name)") }.joined(separator: ", "))]"))
        }
        return "{\n\(fields.map { "  \"\($0)\": \($1)" }.joined(separator: ",\n"))\n}\n"
    }

    /// Reads the manifest as the service does.
    private func parse(_ text: String) throws(PackingError) -> AssetManifest {
        do {
            return try ManifestText.parse(Array(text.utf8), from: try DownloadURL(base))
        } catch {
            let message = (error as? DownloadFailure)?.message ?? (error as? Refusal)?.message ?? "\(error)"
            throw PackingError("the service would refuse this. \(message.hasSuffix(".") ? String(message.dropLast()) : message)")
        }
    }

    /// Compares the new manifest with the one that is there, as the service compares versions.
    private func compare(_ new: AssetManifest) throws(PackingError) -> [String] {
        var warnings: [String] = []
        if request.key != nil, new.timestamp == nil {
            warnings.append("the manifest is signed but has no time: an old one could be played back. --timestamp prevents that")
        }
        guard let former else { return warnings }
        if former.version.isSameBytes(as: new.version) {
            guard former.sha256 == new.sha256 else { throw Self.otherContents(of: new.version) }
        } else if let old = former.timestamp, let now = new.timestamp, now < old {
            warnings.append("the manifest is older than the one before (\(rfc3339(old))): apps that have that version ignore it")
        } else if former.timestamp != nil, new.timestamp == nil {
            warnings.append("the manifest before had a time, and this one has none: an old one could be played back")
        }
        return warnings
    }

    private static func otherContents(of version: String) -> PackingError {
        PackingError(
            """
            version \(DownloadModel.shown(version)) is there already with other contents, which apps would keep; give another --version, \
            or --force
            """)
    }

    // MARK: Files

    /// Whether `name` is there with these bytes. If so, it stays untouched.
    private func isThere(_ name: String, _ bytes: [UInt8]) throws(PackingError) -> Bool {
        let file = openUninterrupted(output.descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return false }
        defer { close(file) }
        return (try? readToEnd(file, atMost: bytes.count)) == bytes
    }

    private func isThere(_ name: String, _ archive: PartialFile, _ size: ByteCount, _ digest: String) throws(PackingError) -> Bool {
        let file = openUninterrupted(output.descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return false }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0, ByteCount(clamping: status.st_size) == size else { return false }
        return (try? Digest.compute(.sha256, of: file)).map { hexadecimal($0) == digest } ?? false
    }

    private func write(_ bytes: [UInt8], _ name: String) throws(PackingError) {
        let file = try PartialFile(name, in: output)
        let code = bytes.withUnsafeBytes { writeAll($0, to: file.descriptor) }
        guard code == 0 else { throw .of("\(output.path)/\(name)", "cannot be written", code) }
        try file.take(name: name)
    }
}

/// A string of JSON (RFC 8259 §7).
private func quoted(_ text: String) -> String {
    var quoted = "\""
    for scalar in text.unicodeScalars {
        switch scalar {
        case "\"", "\\": quoted += "\\\(scalar)"
        case _ where scalar.value < 0x20:
            let digits = String(scalar.value, radix: 16)
            quoted += "\\u\(String(repeating: "0", count: max(0, 4 -| digits.utf8.count)))\(digits)"
        default: quoted.unicodeScalars.append(scalar)
        }
    }
    return quoted + "\""
}

/// `2026-11-24T18:30:00Z`. A part of a second is cut off.
package func rfc3339(_ instant: WallTime) -> String {
    var (seconds, parts) = (time_t(clamping: instant.microseconds / 1_000_000), tm())
    gmtime_r(&seconds, &parts)
    func digits(_ number: Int32, _ count: Int) -> String {
        let text = String(number)
        return "\(String(repeating: "0", count: max(0, count -| text.utf8.count)))\(text)"
    }
    let date = "\(digits(parts.tm_year +| 1900, 4))-\(digits(parts.tm_mon +| 1, 2))-\(digits(parts.tm_mday, 2))"
    return "\(date)T\(digits(parts.tm_hour, 2)):\(digits(parts.tm_min, 2)):\(digits(parts.tm_sec, 2))Z"
}
