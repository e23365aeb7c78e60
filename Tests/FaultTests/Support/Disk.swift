internal import Glibc
internal import TestSupport

/// A simulated disk: replays recorded changes, and can lose power.
///
/// As in POSIX, only fsync of a file makes its bytes durable, and only fsync of a folder makes its names durable. No file system promises
/// less; most promise more.
struct Disk {
    /// What happens to changes that were not durable yet.
    enum Loss: Sendable, Equatable {
        /// All are lost.
        case all
        /// None is lost: everything was written just in time.
        case nothing
        /// Each write is kept, lost, cut at a page boundary, or left as zeros. Of each folder's name changes, the first ones are kept.
        case some(seed: UInt64)
    }

    private enum DataChange {
        case write(Int, [UInt8])
        case truncate(Int)
    }

    private struct File {
        let inode: UInt64
        var durable: [UInt8] = []
        var pending: [DataChange] = []
    }

    private enum Node: Equatable {
        case file(Int)
        case folder(Int)
        case link(String)
    }

    /// A change in one folder, made whole or not at all.
    private struct NameChange {
        var removed: String?
        var made: (name: String, node: Node)?
    }

    private struct Folder {
        let inode: UInt64
        var durable: [String: Node] = [:]
        var pending: [NameChange] = []
        var current: [String: Node] = [:]
    }

    private let roots: [String]
    private var files: [File] = []
    private var folders: [Folder] = []
    /// The latest file and folder with each inode number.
    private var filesByInode: [UInt64: Int] = [:]
    private var foldersByInode: [UInt64: Int] = [:]

    /// - Parameter roots: existing folders, whose own names are durable.
    init(roots: [String]) {
        self.roots = roots
        for root in roots { _ = newFolder(TestSupport.inode(of: root)) }
    }

    /// Adds a durable file that existed at the beginning.
    mutating func put(_ path: String, inode: UInt64, _ bytes: [UInt8]) {
        files.append(File(inode: inode, durable: bytes))
        filesByInode[inode] = files.count - 1
        guard let folder = folder(path.folderName) else { return }
        folders[folder].durable[path.lastName] = .file(files.count - 1)
        folders[folder].current[path.lastName] = .file(files.count - 1)
    }

    private mutating func newFolder(_ inode: UInt64) -> Node {
        folders.append(Folder(inode: inode))
        foldersByInode[inode] = folders.count - 1
        return .folder(folders.count - 1)
    }

    /// The folder that has this path now.
    private func folder(_ path: String) -> Int? {
        guard let root = roots.firstIndex(where: { path == $0 || path.hasPrefix("\($0)/") }) else { return nil }
        var here = root
        for name in path.dropFirst(roots[root].count).split(separator: "/") {
            guard case .folder(let next) = folders[here].current[String(name)] else { return nil }
            here = next
        }
        return here
    }

    // MARK: Changes

    mutating func make(_ change: Change) {
        switch change {
        case .create(let path, let inode):
            files.append(File(inode: inode))
            filesByInode[inode] = files.count - 1
            name(path, .file(files.count - 1))
        case .makeFolder(let path, let inode): name(path, newFolder(inode))
        case .symbolicLink(let path, let target): name(path, .link(target))
        case .truncate(let inode, let size), .extend(let inode, let size):
            if let file = filesByInode[inode] { files[file].pending.append(.truncate(size)) }
        case .write(let inode, let offset, let bytes):
            if let file = filesByInode[inode] { files[file].pending.append(.write(offset, bytes)) }
        case .sync(let inode): if let file = filesByInode[inode] { flushFile(file) }
        case .syncFolder(_, let inode): if let folder = foldersByInode[inode] { flushFolder(folder) }
        case .syncAll(let path):
            if let root = roots.firstIndex(where: { path == $0 || path.hasPrefix("\($0)/") }) { flushAll(below: root) }
        case .rename(let from, let to):
            guard from.folderName == to.folderName, let folder = folder(from.folderName), let node = folders[folder].current[from.lastName]
            else { return }
            changeNames(folder, NameChange(removed: from.lastName, made: (to.lastName, node)))
        case .link(let from, let to):
            if let folder = folder(from.folderName), let node = folders[folder].current[from.lastName] { name(to, node) }
        case .unlink(let path): if let folder = folder(path.folderName) { changeNames(folder, NameChange(removed: path.lastName)) }
        case .told: break
        }
    }

    private mutating func flushFile(_ file: Int) {
        for one in files[file].pending { Self.apply(one, to: &files[file].durable) }
        files[file].pending = []
    }

    private mutating func flushFolder(_ folder: Int) {
        folders[folder].durable = folders[folder].current
        folders[folder].pending = []
    }

    private mutating func flushAll(below folder: Int) {
        flushFolder(folder)
        for node in folders[folder].current.values {
            switch node {
            case .file(let file): flushFile(file)
            case .folder(let next): flushAll(below: next)
            case .link: break
            }
        }
    }

    private mutating func name(_ path: String, _ node: Node) {
        if let folder = folder(path.folderName) { changeNames(folder, NameChange(made: (path.lastName, node))) }
    }

    private mutating func changeNames(_ folder: Int, _ change: NameChange) {
        Self.apply(change, to: &folders[folder].current)
        folders[folder].pending.append(change)
    }

    private static func apply(_ change: NameChange, to names: inout [String: Node]) {
        if let removed = change.removed { names[removed] = nil }
        if let made = change.made { names[made.name] = made.node }
    }

    private static func apply(_ change: DataChange, to bytes: inout [UInt8]) {
        switch change {
        case .truncate(let size):
            if size < bytes.count { bytes.removeLast(bytes.count - size) } else { grow(&bytes, to: size) }
        case .write(let offset, let data):
            grow(&bytes, to: offset + data.count)
            // The suites are not optimized: `replaceSubrange` would take one byte at a time.
            bytes.withUnsafeMutableBytes { bytes in
                data.withUnsafeBytes { UnsafeMutableRawBufferPointer(rebasing: bytes[offset...]).copyMemory(from: $0) }
            }
        }
    }

    private static func grow(_ bytes: inout [UInt8], to size: Int) {
        guard bytes.count < size else { return }
        bytes += [UInt8](unsafeUninitializedCapacity: size - bytes.count) { rest, count in
            memset(rest.baseAddress!, 0, rest.count)
            count = rest.count
        }
    }

    // MARK: Power cuts

    /// The folders, files and links after a power cut, by path, with the bytes of each file and the inodes.
    struct Remains: Hashable {
        /// Each behind the one that it is in.
        var folders: [(path: String, inode: UInt64)] = []
        var files: [String: Content] = [:]
        var links: [String: String] = [:]

        struct Content: Hashable {
            let inode: UInt64
            let bytes: [UInt8]

            static func == (a: Content, b: Content) -> Bool {
                a.inode == b.inode && a.bytes.count == b.bytes.count && memcmp(a.bytes, b.bytes, a.bytes.count) == 0
            }

            func hash(into hasher: inout Hasher) {
                hasher.combine(inode)
                bytes.withUnsafeBytes { hasher.combine(bytes: $0) }
            }
        }

        static func == (a: Remains, b: Remains) -> Bool {
            a.folders.elementsEqual(b.folders) { $0 == $1 } && (a.files, a.links) == (b.files, b.links)
        }

        func hash(into hasher: inout Hasher) {
            for folder in folders { hasher.combine(folder.path) }
            hasher.combine(files)
            hasher.combine(links)
        }
    }

    func afterPowerCut(_ loss: Loss) -> Remains {
        var random = SeededRandom({ if case .some(let seed) = loss { seed } else { 0 } }())
        // How much of the writes in flight survives: nearly all in one cut, nearly nothing in another.
        let share = [10, 50, 90].randomElement(using: &random) ?? 50
        var remains = Remains()
        var contents: [Int: [UInt8]] = [:]
        func content(_ file: Int) -> [UInt8] {
            if let known = contents[file] { return known }
            let bytes = Self.remainder(of: files[file], loss, share, &random)
            contents[file] = bytes
            return bytes
        }
        func walk(_ path: String, _ index: Int) {
            let folder = folders[index]
            remains.folders.append((path, folder.inode))
            var names = folder.durable
            let kept =
                switch loss {
                case .all: 0
                case .nothing: folder.pending.count
                case .some: Int.random(in: 0...folder.pending.count, using: &random)
                }
            for change in folder.pending[..<kept] { Self.apply(change, to: &names) }
            for (name, node) in names.sorted(by: { $0.key < $1.key }) {
                switch node {
                case .folder(let next): walk("\(path)/\(name)", next)
                case .file(let file): remains.files["\(path)/\(name)"] = Remains.Content(inode: files[file].inode, bytes: content(file))
                case .link(let target): remains.links["\(path)/\(name)"] = target
                }
            }
        }
        for (index, root) in roots.enumerated() { walk(root, index) }
        return remains
    }

    private static func remainder(of file: File, _ loss: Loss, _ share: Int, _ random: inout SeededRandom) -> [UInt8] {
        var bytes = file.durable
        switch loss {
        case .all: break
        case .nothing: for change in file.pending { apply(change, to: &bytes) }
        case .some:
            for change in file.pending {
                guard case .write(let offset, let data) = change else {
                    if Int.random(in: 0..<100, using: &random) < share { apply(change, to: &bytes) }
                    continue
                }
                switch Int.random(in: 0..<100, using: &random) {
                case ..<share: apply(change, to: &bytes)
                case ..<(share + (100 - share) / 4):  // the new length survives, the bytes do not
                    if bytes.count < offset + data.count { apply(.truncate(offset + data.count), to: &bytes) }
                case ..<(share + (100 - share) / 2) where data.count > 4096:
                    let cut = Int.random(in: 1...(data.count - 1) / 4096, using: &random) * 4096
                    let isFront = Bool.random(using: &random)
                    apply(.write(isFront ? offset : offset + cut, Array(isFront ? data[..<cut] : data[cut...])), to: &bytes)
                default: break
                }
            }
        }
        return bytes
    }
}
