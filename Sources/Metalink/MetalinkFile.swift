public import DownloadModel

/// One file of a Metalink document.
public struct MetalinkFile: Equatable, Sendable {
    /// A safe bare name: the last component of the document's, which may be a relative path. No other file of the document has it.
    public var name: String
    public var size: ByteCount?
    /// Of several hashes the strongest.
    public var checksum: Checksum?
    /// nil: the document has none that can be used.
    public var pieces: PieceHashes?
    /// URLs of http and https (`DownloadURL.text`), each once, in the order of preference; 1 to `Metalink.mostSources`.
    public var sources: [String]

    public init(name: String, size: ByteCount? = nil, checksum: Checksum? = nil, pieces: PieceHashes? = nil, sources: [String]) {
        (self.name, self.size, self.checksum, self.pieces, self.sources) = (name, size, checksum, pieces, sources)
    }
}

/// Why a document is not the Metalink that was expected.
public struct MetalinkError: Error, Equatable, Sendable, CustomStringConvertible {
    /// From 1; nil: the whole document is at fault.
    public let line: Int?
    /// A clause without a full stop. Names of the document are shortened and have no control characters.
    public let message: String
    /// The document has more than may be queued at a time, or would take too much memory or time.
    public let isLimit: Bool

    init(_ line: Int?, _ message: String, isLimit: Bool = false) { (self.line, self.message, self.isLimit) = (line, message, isLimit) }

    public var description: String { line.map { "line \($0): \(message)" } ?? message }
}

/// Metalink documents, version 4 (RFC 5854).
public enum Metalink {
    /// Most sources of a file that are kept, the preferred ones.
    public static let mostSources = 32
    static let namespace = "urn:ietf:params:xml:ns:metalink"
    /// The namespace of version 3, whose documents are refused.
    static let namespaceOfVersion3 = "http://www.metalinker.org/"
    /// Most elements inside each other.
    static let mostDepth = 64
    /// Most bytes of a text that is read: a URL, a hash or a number.
    static let mostText = Limits.urlBytes + 256
    /// Most bytes of an attribute that is read.
    static let mostAttribute = 4096
    /// Most bytes of a namespace, used or not. expat copies the namespace for each attribute of that namespace, in any element. So this
    /// limit bounds the time for each byte of a document.
    static let mostNamespace = 256

    /// Most bytes of memory that expat takes for a document of `count` bytes. expat's copy of the document takes up to twice as many, and
    /// its copy of a long attribute, too. Without this limit, a million attributes of one namespace in one element would take gigabytes:
    /// expat reports a namespace, but reads the rest of its element even if the reading is stopped.
    static func mostMemory(for count: Int) -> Int { (16 << 20) +| 4 *| count }

    /// The files of a document, in its order; at least one.
    ///
    /// Read are name, size, hashes, piece hashes and URLs of each file. URLs that are not of http or https, or that hold a user name, are
    /// skipped. Everything else is ignored: signatures, `metaurl`, descriptions, languages, elements of other namespaces.
    ///
    /// - Parameter goesOn: asked before each element and each text. If it returns false, nobody waits for the files; an error is thrown.
    /// - Throws: names the line, and the element or file at fault.
    public static func parse(_ bytes: [UInt8], goesOn: @escaping () -> Bool = { true }) throws(MetalinkError) -> [MetalinkFile] {
        guard bytes.count <= Limits.documentBytes else {
            throw MetalinkError(nil, "the document is longer than \(HumanText.size(ByteCount(Limits.documentBytes)))", isLimit: true)
        }
        let reader = MetalinkReader()
        try XMLDocument.read(bytes, into: reader, goesOn: goesOn)
        guard !reader.files.isEmpty else { throw MetalinkError(nil, "the document has no file") }
        return withOwnNames(reader.files)
    }

    /// Numbers the names that several files have, because the folders of their paths are dropped. The first of these files keeps the name.
    private static func withOwnNames(_ files: [MetalinkFile]) -> [MetalinkFile] {
        var (taken, seen) = (Set(files.map(\.name)), Set<String>())
        // The next number to try, by the first numbered name: long names that differ only in their ends have the same numbered names.
        var next: [String: Int] = [:]
        return files.map { file in
            guard !seen.insert(file.name).inserted else { return file }
            func numbered(_ number: Int) -> String { FileName.numbered(file.name, number, longest: FileName.longest) }
            let first = numbered(1)
            var number = next[first] ?? 1
            while !taken.insert(numbered(number)).inserted { number +|= 1 }
            next[first] = number +| 1
            var renamed = file
            renamed.name = numbered(number)
            return renamed
        }
    }
}
