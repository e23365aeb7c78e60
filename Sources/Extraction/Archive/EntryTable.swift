/// The entries of an archive so far, to find repeated names, and paths through entries that are no folders. The table depends on the
/// archive alone, not on the leftovers of an interrupted run.
///
/// For each path it keeps two 64-bit hashes, seeded by this process: of its bytes, and of its name without case and in one Unicode form.
/// With 100,000 paths, two hashes are equal by chance in one of 10⁹ archives, which is then refused.
struct EntryTable {
    enum Kind { case file, link, folder, impliedFolder }

    private struct Mark {
        let exact: Int
        var kind: Kind
    }

    private let limit: Int
    private var marks: [Int: Mark] = [:]
    /// The folders of the previous entry, which need not be looked up again.
    private var lastFolders: [[UInt8]] = []

    init(limit: Int) { self.limit = limit }

    /// Adds an entry and the folders of its path.
    mutating func add(_ path: EntryPath, _ kind: Kind) throws(ExtractionFailure) {
        let folders = Array(path.components.dropLast())
        if folders != lastFolders {
            for depth in folders.indices { try put(Array(folders[...depth]), .impliedFolder, of: path) }
            lastFolders = folders
        }
        try put(path.components, kind, of: path)
    }

    /// Whether `path` is a file (not a link or folder) that the archive has made.
    func hasFile(_ path: EntryPath) -> Bool {
        marks[Self.folded(path.components)].map { $0.exact == path.components.hashValue && $0.kind == .file } ?? false
    }

    private mutating func put(_ components: [[UInt8]], _ kind: Kind, of entry: EntryPath) throws(ExtractionFailure) {
        let (folded, exact) = (Self.folded(components), components.hashValue)
        guard let known = marks[folded] else {
            guard marks.count < limit else { throw .excessive("The archive is not unpacked: it has more than \(limit) entries.") }
            marks[folded] = Mark(exact: exact, kind: kind)
            return
        }
        guard known.exact == exact else { throw .refused(entry: entry.text, .caseClash) }
        switch (known.kind, kind) {
        case (.folder, .impliedFolder), (.impliedFolder, .impliedFolder): break
        case (.impliedFolder, .folder): marks[folded]?.kind = .folder
        case (_, .impliedFolder): throw .refused(entry: entry.text, .insideOfNoFolder)
        default: throw .refused(entry: entry.text, .duplicate)
        }
    }

    private static func folded(_ components: [[UInt8]]) -> Int {
        var hasher = Hasher()
        for component in components {
            // A String is hashed in one Unicode form.
            if let text = String(validating: component, as: UTF8.self) {
                hasher.combine(text.lowercased())
            } else {
                hasher.combine(component.map { (0x41...0x5A).contains($0) ? $0 | 0x20 : $0 })
            }
        }
        return hasher.finalize()
    }
}
