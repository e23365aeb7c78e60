internal import Glibc

/// A folder for one test below the temporary folder, removed with its last reference.
public final class TemporaryFolder: Sendable {
    public let path: String

    /// - Parameter base: the folder in which it is made; nil: the temporary folder.
    public init(_ name: String = "todoku-test", in base: String? = nil) {
        let base = base ?? getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
        var template = Array("\(base)/\(name).XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { fatalError("mkdtemp: \(String(cString: strerror(errno)))") }
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    deinit { removeTree(path) }

    /// The path of `name` in this folder.
    public func callAsFunction(_ name: String) -> String { "\(path)/\(name)" }

    /// Makes a folder in this one and returns its path.
    @discardableResult
    public func makeFolder(_ name: String) -> String {
        mkdir(self(name), 0o755)
        return self(name)
    }
}

public func removeTree(_ path: String) {
    var status = stat()
    guard lstat(path, &status) == 0 else { return }
    if status.st_mode & S_IFMT == S_IFDIR {
        chmod(path, 0o700)
        for name in listFolder(path) { removeTree("\(path)/\(name)") }
    }
    remove(path)
}

/// The bytes of a file; nil if it does not exist.
public func readFile(_ path: String) -> [UInt8]? {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65536)
    while true {
        let count = read(descriptor, &buffer, buffer.count)
        guard count > 0 else { return count == 0 ? bytes : nil }
        bytes.append(contentsOf: buffer[..<count])
    }
}

/// Whether a file has these bytes. The suites are not optimized, and their `==` compares one byte at a time.
public func fileHolds(_ path: String, _ bytes: [UInt8]) -> Bool { readFile(path) == bytes }

public func writeFile(_ path: String, _ bytes: some Sequence<UInt8>, mode: UInt32 = 0o644) {
    let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
    precondition(descriptor >= 0, "\(path): \(String(cString: strerror(errno)))")
    defer { close(descriptor) }
    let bytes = Array(bytes)
    precondition(write(descriptor, bytes, bytes.count) == bytes.count)
}

/// Replaces the file at `path` by a new one. The new file gets this inode number if the file system reuses the numbers of deleted files
/// (ext4 does at once).
public func writeFile(_ path: String, _ bytes: some Sequence<UInt8>, inode wanted: UInt64) {
    var tries: [String] = []
    repeat {
        tries.append("\(path).\(tries.count)")
        writeFile(tries[tries.count - 1], [])
    } while inode(of: tries[tries.count - 1]) != wanted && tries.count < 1000
    writeFile(tries[tries.count - 1], bytes)
    precondition(rename(tries.removeLast(), path) == 0)
    for other in tries { unlink(other) }
}

/// The inode number of the file at `path`, without following a link; 0: no file.
public func inode(of path: String) -> UInt64 {
    var status = stat()
    return lstat(path, &status) == 0 ? UInt64(status.st_ino) : 0
}

public func fileExists(_ path: String) -> Bool { access(path, F_OK) == 0 }

/// The names in a folder, sorted; without `.` and `..`.
public func listFolder(_ path: String) -> [String] {
    guard let folder = opendir(path) else { return [] }
    defer { closedir(folder) }
    var names: [String] = []
    while let entry = readdir(folder) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if name != ".", name != ".." { names.append(name) }
    }
    return names.sorted()
}

/// `count` bytes that look random and depend on `seed` only.
public func patternBytes(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
    var state = seed &* 0x9E37_79B9_7F4A_7C15 | 1
    return [UInt8](unsafeUninitializedCapacity: count) { bytes, initialized in
        for index in 0..<count {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            bytes[index] = UInt8(truncatingIfNeeded: state >> 32)
        }
        initialized = count
    }
}

/// How many descriptors a process has open of files below a folder, deleted ones included.
public func openFiles(of process: Int32, below folder: String) -> Int {
    listFolder("/proc/\(process)/fd").count { Int32($0).flatMap { openFile($0, of: process) }?.hasPrefix(folder) ?? false }
}

/// The path of the file that a descriptor of a process is open for, or its kind, such as `socket:[1]`; nil: it is closed.
public func openFile(_ descriptor: Int32, of process: Int32) -> String? {
    var target = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink("/proc/\(process)/fd/\(descriptor)", &target, target.count - 1)
    return count > 0 ? String(decoding: target.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self) : nil
}
