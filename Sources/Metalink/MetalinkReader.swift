internal import DownloadModel

/// Makes the files from the elements of a document.
final class MetalinkReader: XMLReceiver {
    private enum Place {
        case document, metalink, file, pieces
        /// The elements whose text is read.
        case size, url, hash, pieceHash
    }

    private(set) var files: [MetalinkFile] = []
    /// The elements around the present one, and itself.
    private var places: [Place] = [.document]
    /// The number of open elements that are not read, including the present one.
    private var skipped = 0
    private var text: [UInt8] = []
    private var textLine = 0
    private var file = FileDraft()
    private var pieces: PiecesDraft?
    /// The priority of the present URL.
    private var priority = SourceList.lowestPriority
    /// The type of the present hash; nil: not a type that is checked.
    private var hashType: Checksum.Algorithm?

    func begin(_ name: XMLName, _ attributes: XMLAttributes, line: Int) throws(MetalinkError) {
        guard places.count +| skipped <= Metalink.mostDepth else {
            throw MetalinkError(line, "elements are nested deeper than \(Metalink.mostDepth)")
        }
        guard skipped == 0 else { return skipped +|= 1 }
        let local = name.local(in: Metalink.namespace)
        func attribute(_ key: String) throws(MetalinkError) -> String? {
            try attributes.value(of: key, most: Metalink.mostAttribute, line: line)
        }
        if places.last == .document {
            guard name.local(in: Metalink.namespaceOfVersion3) == nil else {
                throw MetalinkError(line, "this is a Metalink of version 3; only version 4 (RFC 5854, files named .meta4) can be read")
            }
            guard local == "metalink" else {
                throw MetalinkError(line, "the first element is not “metalink” of the namespace \(Metalink.namespace)")
            }
            return places.append(.metalink)
        }
        guard let local, let place = place(of: local) else { return skipped = 1 }
        (text, textLine) = ([], line)
        switch place {
        case .file:
            guard files.count < Limits.batchItems else {
                throw MetalinkError(line, "the document has more than \(Limits.batchItems) files", isLimit: true)
            }
            file = FileDraft(name: try Self.name(try attribute("name"), line), line: line)
        case .pieces:
            guard let type = try attribute("type") else { throw MetalinkError(line, "“pieces” has no attribute “type”") }
            guard let length = decimal((try attribute("length") ?? "").utf8, as: ByteCount.self), length > 0 else {
                throw MetalinkError(line, "the attribute “length” of “pieces” is not a number of bytes above 0")
            }
            pieces = PiecesDraft(algorithm: Self.algorithm(type), length: length)
        case .url: priority = try Self.priority(try attribute("priority"), line)
        case .hash:
            guard let type = try attribute("type") else { throw MetalinkError(line, "“hash” has no attribute “type”") }
            hashType = Self.algorithm(type)
        case .document, .metalink, .size, .pieceHash: break
        }
        places.append(place)
    }

    func add(text bytes: UnsafeRawBufferPointer, line: Int) throws(MetalinkError) {
        guard skipped == 0 else { return }
        switch places.last {
        case .size, .url, .hash, .pieceHash: break
        default: return
        }
        guard text.count +| bytes.count <= Metalink.mostText else { throw MetalinkError(textLine, "the text of an element is too long") }
        text += bytes
    }

    func end(line: Int) throws(MetalinkError) {
        guard skipped == 0 else { return skipped -|= 1 }
        switch places.popLast() {
        case .size:
            guard let size = decimal(trimmed, as: ByteCount.self) else { throw MetalinkError(textLine, "“size” is not a number of bytes") }
            guard file.size == nil else { throw MetalinkError(textLine, "\(file) has two sizes") }
            file.size = size
        case .url: try file.sources.add(String(decoding: trimmed, as: UTF8.self), priority: priority, line: textLine)
        case .hash:
            guard let hashType else { break }
            let checksum = try digest(hashType)
            if checksum.algorithm.strength > file.checksum?.algorithm.strength ?? -1 { file.checksum = checksum }
        case .pieceHash:
            guard let algorithm = pieces?.algorithm else { break }
            try pieces?.add(digest(algorithm).digest)
        case .pieces:
            if let draft = pieces { try file.take(draft, line: textLine) }
            pieces = nil
        case .file: files.append(try file.finished())
        case .metalink, .document, nil: break
        }
    }

    /// The place of the element `name` inside of the present one; nil: nobody reads it.
    private func place(of name: String) -> Place? {
        switch (places.last, name) {
        case (.metalink, "file"): .file
        case (.file, "size"): .size
        case (.file, "url"): .url
        case (.file, "hash"): .hash
        case (.file, "pieces"): .pieces
        case (.pieces, "hash"): .pieceHash
        default: nil
        }
    }

    private var trimmed: ArraySlice<UInt8> { text.trimming { $0 == 0x20 || $0 == 0x09 || $0 == 0x0A || $0 == 0x0D } }

    private func digest(_ algorithm: Checksum.Algorithm) throws(MetalinkError) -> Checksum {
        do throws(Refusal) {
            return try Checksum("\(algorithm.rawValue):\(String(decoding: trimmed, as: UTF8.self))")
        } catch {
            throw MetalinkError(
                textLine, "a hash of \(file) is not one of \(algorithm.rawValue), which has \(algorithm.length * 2) hexadecimal digits")
        }
    }

    /// The algorithm of an IANA name ("Hash Function Textual Names"); nil: it is not checked.
    private static func algorithm(_ name: String) -> Checksum.Algorithm? {
        switch name.lowercased() {
        case "sha-512": .sha512
        case "sha-384": .sha384
        case "sha-256": .sha256
        case "sha-224": .sha224
        case "sha-1": .sha1
        case "md5": .md5
        default: nil
        }
    }

    private static func priority(_ text: String?, _ line: Int) throws(MetalinkError) -> UInt32 {
        guard let text else { return SourceList.lowestPriority }
        guard let priority = decimal(text.utf8, as: UInt32.self), (1...SourceList.lowestPriority).contains(priority) else {
            throw MetalinkError(line, "the attribute “priority” is not a number from 1 to \(SourceList.lowestPriority)")
        }
        return priority
    }

    /// The last component of a relative path, made safe (RFC 5854 §4.1.2.1).
    private static func name(_ path: String?, _ line: Int) throws(MetalinkError) -> String {
        guard let path, !path.isEmpty else { throw MetalinkError(line, "a file has no name") }
        let parts = path.utf8.split(omittingEmptySubsequences: false) { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "\\") }
        guard parts.first?.isEmpty == false else { throw MetalinkError(line, "the file name “\(shown(path))” is an absolute path") }
        guard !parts.contains(where: { $0.elementsEqual("..".utf8) }) else {
            throw MetalinkError(line, "the file name “\(shown(path))” leads out of the folder")
        }
        guard let name = FileName.safe(path) else { throw MetalinkError(line, "the file name “\(shown(path))” cannot be used") }
        return name
    }
}

/// One file, while its element is read.
private struct FileDraft: CustomStringConvertible {
    var name = ""
    var line = 0
    var size: ByteCount?
    var checksum: Checksum?
    var sources = SourceList()
    /// The strongest of the pieces, with its line.
    private var pieces: (draft: PiecesDraft, line: Int)?

    init(name: String = "", line: Int = 0) { (self.name, self.line) = (name, line) }

    var description: String { "the file “\(shown(name))”" }

    /// Keeps the strongest pieces. Pieces of an unknown type are dropped.
    mutating func take(_ draft: PiecesDraft, line: Int) throws(MetalinkError) {
        guard let algorithm = draft.algorithm else { return }
        if draft.digests.isEmpty && !draft.isTooLong { throw MetalinkError(line, "“pieces” of \(self) has no hash") }
        if algorithm.strength > pieces?.draft.algorithm?.strength ?? -1 { pieces = (draft, line) }
    }

    func finished() throws(MetalinkError) -> MetalinkFile {
        guard !sources.urls.isEmpty else { throw MetalinkError(line, "\(self) has no URL of http or https that can be used") }
        return MetalinkFile(name: name, size: size, checksum: checksum, pieces: try pieceHashes(), sources: sources.urls)
    }

    /// The piece hashes, if they can be used. If not, they are ignored beside a hash of the whole file.
    private func pieceHashes() throws(MetalinkError) -> PieceHashes? {
        guard let (draft, line) = pieces else { return nil }
        func unusable(_ reason: String) throws(MetalinkError) -> PieceHashes? {
            guard checksum == nil else { return nil }
            throw MetalinkError(line, "the pieces of \(self) cannot be checked, because \(reason)")
        }
        if draft.isTooLong { return try unusable("their hashes have more than \(HumanText.size(ByteCount(Limits.pieceHashBytes)))") }
        guard let size else { return try unusable("its size is missing") }
        guard let algorithm = draft.algorithm, let pieces = PieceHashes(algorithm, length: draft.length, digests: draft.digests) else {
            return nil
        }
        guard pieces.fits(size) else {
            throw MetalinkError(line, "\(self) of \(size) bytes does not have \(pieces.count) pieces of \(pieces.length) bytes")
        }
        return pieces
    }
}

/// The element “pieces”, while it is read.
private struct PiecesDraft {
    /// nil: the type is not checked.
    let algorithm: Checksum.Algorithm?
    let length: ByteCount
    private(set) var digests: [UInt8] = []
    /// There are more digests than can be kept; those that came are dropped.
    private(set) var isTooLong = false

    init(algorithm: Checksum.Algorithm?, length: ByteCount) { (self.algorithm, self.length) = (algorithm, length) }

    mutating func add(_ digest: [UInt8]) {
        guard !isTooLong, digests.count +| digest.count <= Limits.pieceHashBytes else {
            (isTooLong, digests) = (true, [])
            return
        }
        digests += digest
    }
}

/// The URLs of a file, at most `Metalink.mostSources`, in the order of preference.
private struct SourceList {
    /// Of a URL without a priority (RFC 5854 §4.2.16.1).
    static let lowestPriority: UInt32 = 999_999
    private var entries: [(url: String, priority: UInt32)] = []

    var urls: [String] { entries.map(\.url) }

    /// Adds a URL behind those of the same priority.
    ///
    /// - Throws: if the URL is one of http or https, and wrong.
    mutating func add(_ text: String, priority: UInt32, line: Int) throws(MetalinkError) {
        let place = entries.firstIndex { $0.priority > priority } ?? entries.count
        guard place < Metalink.mostSources else { return }
        let url: DownloadURL
        do throws(Refusal) { url = try DownloadURL(text) } catch {
            if error.name == .unsupportedScheme { return }
            throw MetalinkError(line, String(error.message.hasSuffix(".") ? error.message.dropLast() : error.message[...]))
        }
        guard url.username == nil, url.password == nil else { return }
        if let held = entries.firstIndex(where: { $0.url == url.text }) {
            guard priority < entries[held].priority else { return }
            entries.remove(at: held)
        }
        entries.insert((url.text, priority), at: place)
        if entries.count > Metalink.mostSources { entries.removeLast() }
    }
}

extension Checksum.Algorithm {
    /// The stronger algorithm has the larger number.
    fileprivate var strength: Int {
        switch self {
        case .sha512: 5
        case .sha384: 4
        case .sha256: 3
        case .sha224: 2
        case .sha1: 1
        case .md5: 0
        }
    }
}
