internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
package import Packing

extension ArchiveCompression: ExpressibleByArgument {}

/// Options of the commands that pack a folder.
struct PackArguments: ParsableArguments {
    @Option(help: "How to compress the archive: zstd, gzip, xz, bzip2 or none.") var compression = ArchiveCompression.zstd
    @Option(
        parsing: .unconditional, help: "The compressor's level: 1 to 22 for zstd, 1 to 9 for gzip and bzip2, 0 to 9 for xz.",
        transform: PackArguments.parseLevel)
    var level: Int?
    @Option(name: .shortAndLong, help: ArgumentHelp("Sign the manifest with this Ed25519 private key.", valueName: "file")) var key: String?

    /// `validate` checks the range, which depends on the compression.
    @Sendable static func parseLevel(_ text: String) throws -> Int {
        if let level = Int(text) { return level }
        throw ValidationError(
            catalog.text("“%1$s” is not a level; write 1 to 22 for zstd, 1 to 9 for gzip and bzip2, 0 to 9 for xz.", text))
    }

    func validate() throws {
        guard let level else { return }
        guard let levels = compression.levels else {
            throw ValidationError(catalog.text("An archive without compression has no --level."))
        }
        guard levels.contains(level) else {
            throw ValidationError(
                catalog.text(
                    "--level of %1$s is %2$s to %3$s.", compression.rawValue, String(levels.lowerBound), String(levels.upperBound)))
        }
    }

    func apply(to request: inout PackRequest) throws(CommandFailure) {
        (request.compression, request.level) = (compression, level)
        request.key = try key.map { path throws(CommandFailure) in try Self.signingKey(at: path) }
    }

    static func signingKey(at path: String) throws(CommandFailure) -> SigningKey {
        let file = try LocalPath.absolute(path)
        let (key, isShared) = try CommandFailure.packing { () throws(PackingError) in try SigningKey.read(file) }
        if isShared { Output.complain(catalog.text("others may read the private key “%1$s”; “chmod 600” prevents that", path)) }
        return key
    }
}

extension CommandFailure {
    /// Packing is done here, without the service.
    static func packing<R>(_ body: () throws(PackingError) -> R) throws(CommandFailure) -> R {
        do throws(PackingError) { return try body() } catch { throw CommandFailure(.refused, catalog.sentence(error.message)) }
    }
}

struct AssetPack: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pack", abstract: "Pack a folder: archive, manifest and signature, ready to be uploaded.",
        discussion: """
            Writes NAME-VERSION.tar.zst, NAME.json.sig and NAME.json, and prints their paths in the order in which to upload them. \
            The same folder gives the same bytes: names, contents, links and executable bits count; times, owners and other \
            permissions do not. Hidden files are packed, too. What Todoku would not unpack is refused: devices, links out of the folder, \
            set-user-ID files, and names that differ in upper and lower case only.

            EXAMPLES:
              todoku asset pack levels --version 2026.11
              todoku asset pack levels --version 2026.11 --key publisher.pem --timestamp now --output public
              todoku asset pack levels --url https://cdn.example.org/game/
            """)

    @Argument(help: ArgumentHelp("The folder with the data.", valueName: "folder")) var folder: String
    @Option(help: "The version; without it, 16 digits of the archive's digest.") var version: String?
    @Option(
        name: .shortAndLong, help: ArgumentHelp("The folder of the files.", valueName: "folder"), completion: .directory)
    var output = "."
    @Flag(name: [.customShort("p"), .long], help: "Make the folder, if it is missing.") var parents = false
    @Option(help: "The name of the files; without it, that of the folder.") var name: String?
    @Option(help: "Where the archive will be, without its name; without it, beside the manifest.") var url: String?
    @Option(help: ArgumentHelp("Another place with the archive; may be given several times.", valueName: "url")) var mirror: [String] = []
    @Option(help: "When the version is published: now, or as in 2026-11-24T18:30:00Z; SOURCE_DATE_EPOCH is the default.")
    var timestamp: String?
    @OptionGroup var packing: PackArguments
    @Flag(help: "Replace a version that is there with other contents, a file that is no manifest, and a signature.") var force = false
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false
    @OptionGroup var json: OutputArguments

    func validate() throws {
        _ = try instant()
        try LocalPath.refuseStandardOutput(output, for: "todoku asset pack")
        if let url { try Self.checkScheme(of: url, "--url") }
        for place in mirror { try Self.checkScheme(of: place, "--mirror") }
    }

    /// A relative URL, which begins at the manifest, may look like a host with a path. It can be written with “./” before it.
    private static func checkScheme(of url: String, _ option: String) throws {
        guard !url.hasPrefix("."), let meant = CommandFailure.suggestion(for: url) else { return }
        throw ValidationError(
            catalog.text("%1$s has no scheme. Did you mean %2$s? A path beside the manifest begins with “./”.", option, meant))
    }

    private func instant() throws -> WallTime? {
        if let timestamp {
            guard let instant = timestamp == "now" ? WallTime(microseconds: wallClock()) : ManifestTime.parse(timestamp) else {
                throw ValidationError(catalog.text("--timestamp is “now”, or an instant such as 2026-11-24T18:30:00Z."))
            }
            return instant
        }
        guard let text = getenv("SOURCE_DATE_EPOCH").map({ String(cString: $0) }), !text.isEmpty else { return nil }
        guard let seconds = UInt64(text), seconds < 1 << 37 else {
            throw ValidationError(catalog.text("SOURCE_DATE_EPOCH is not a number of seconds since 1970."))
        }
        return WallTime(microseconds: seconds *| 1_000_000)
    }

    func run() throws {
        let instant = try instant()
        let packed = Program.require(json: json.json) { () throws(CommandFailure) in try pack(instant) }
        for warning in packed.warnings { Output.complain(catalog.text("warning: %1$s", catalog.sentence(warning))) }
        guard !quiet else { return }
        let paths = [packed.archive, packed.signature, packed.manifest].compactMap(\.self)
        Output.write(json.json ? packed.json.text + "\n" : paths.map { "\($0)\n" }.joined())
    }

    private func pack(_ instant: WallTime?) throws(CommandFailure) -> PackedAsset {
        let source = try LocalPath.absolute(folder)
        let folder = try LocalPath.absolute(output)
        if parents { try LocalPath.makeFolder(folder) }
        guard LocalPath.exists(folder) else {
            throw CommandFailure(.refused, catalog.text("The folder %1$s does not exist. --parents makes it.", folder))
        }
        var request = PackRequest(
            folder: source, output: folder, name: name ?? source.pathComponents.last.map(String.init) ?? "")
        (request.version, request.timestamp, request.forces) = (version, instant, force)
        (request.baseURL, request.mirrors) = (url.map(Self.base), mirror.map(Self.base))
        try packing.apply(to: &request)
        let meter = PackMeter()
        defer { meter.clear() }
        return try CommandFailure.packing { () throws(PackingError) in try Packer.pack(request) { meter.show($0, of: $1) } }
    }

    private static func base(_ url: String) -> String { url.hasSuffix("/") ? url : url + "/" }
}

/// A line on the terminal at standard error while a large folder is packed.
final class PackMeter {
    private var shown: ContinuousClock.Instant?
    private let begun = ContinuousClock.now
    private let isSeen = Terminal.errorsAreSeen && Terminal.current != nil && !CommandLine.arguments.contains("--json")

    func show(_ done: ByteCount, of total: ByteCount) {
        guard isSeen, .now - begun > .milliseconds(500), shown.map({ .now - $0 > .milliseconds(200) }) ?? true,
            let terminal = Terminal.current
        else { return }
        shown = .now
        Output.writeError("\r\u{1b}[K" + Self.text(done, of: total, columns: terminal.columns - 1))
    }

    /// "packing  50 %  1.0 GiB of 2.0 GiB", at most `columns` wide: a line that is wrapped could not be drawn anew.
    static func text(_ done: ByteCount, of total: ByteCount, columns: Int, _ catalog: Catalog = todoku.catalog) -> String {
        let share = catalog.percent(total == 0 ? 100 : Int(clamping: Double(done) / Double(total) * 100))
        let word = catalog.text("packing")
        return TerminalText.cut("\(word)  \(share)  \(catalog.size(done, of: total))", to: columns, ellipsis: "...")
    }

    func clear() { if shown != nil { Output.writeError("\r\u{1b}[K") } }
}

extension PackedAsset {
    var json: JSON {
        .object([
            ("version", .string(version)), ("archive", .string(archive)), ("manifest", .string(manifest)), ("signature", JSON(signature)),
            ("sha256", .string(sha256)), ("size", .unsigned(size)), ("unpacked-size", .unsigned(unpackedSize)),
            ("entries", .unsigned(UInt64(clamping: entries))), ("unchanged", .bool(isUnchanged)),
            ("warnings", .array(warnings.map { .string($0) })),
        ])
    }
}

struct AssetKeyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "key", abstract: "Make a key that signs manifests, and print its public key.",
        discussion: """
            FILE gets an Ed25519 private key (PKCS #8 in PEM, as of “openssl genpkey -algorithm ed25519”) that only you can read. If FILE is \
            there, it stays, and its public key is printed: 64 hexadecimal digits, as “todoku asset add --public-key” takes them.
            """)

    @Argument(help: ArgumentHelp("The private key's file.", valueName: "file")) var file: String
    @OptionGroup var output: OutputArguments

    func validate() throws { try LocalPath.refuseStandardOutput(file, for: "todoku asset key") }

    func run() throws {
        let key = Program.require(json: output.json) { () throws(CommandFailure) in
            let path = try LocalPath.absolute(file)
            guard !LocalPath.exists(path) else { return try PackArguments.signingKey(at: file) }
            return try CommandFailure.packing { () throws(PackingError) in try SigningKey.make(at: path) }
        }
        let json = JSON.object([
            ("public-key", .string(key.publicText)), ("bytes", .array(key.publicKey.map { .unsigned(UInt64($0)) })),
        ])
        Output.write(output.json ? json.text + "\n" : key.publicText + "\n")
    }
}
