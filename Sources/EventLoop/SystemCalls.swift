internal import Glibc

/// The result of a system call. The call is made again while a signal interrupts it (`EINTR`, signal(7)).
public func uninterrupted(_ call: () -> Int) -> Int {
    while true {
        let result = call()
        if result >= 0 || errno != EINTR { return result }
    }
}

/// The result of a system call. The call is made again while a signal interrupts it (`EINTR`, signal(7)).
public func uninterrupted(_ call: () -> Int32) -> Int32 {
    while true {
        let result = call()
        if result >= 0 || errno != EINTR { return result }
    }
}

/// A system call that failed, by its errno.
public struct SystemCallError: Error {
    public let code: Int32
    public init(code: Int32) { self.code = code }
}

/// The bytes of a file or pipe, from its offset to its end; nil if there are more than `limit`. Waits for the disk, or for the writer.
public func readToEnd(_ descriptor: Int32, atMost limit: Int) throws(SystemCallError) -> [UInt8]? {
    var bytes: [UInt8] = []
    var portion = [UInt8](repeating: 0, count: 16384)
    while true {
        let count = uninterrupted { read(descriptor, &portion, portion.count) }
        guard count >= 0 else { throw SystemCallError(code: errno) }
        if count == 0 { return bytes }
        guard count <= limit - bytes.count else { return nil }
        bytes += portion[..<count]
    }
}

/// The first bytes of a file, as one read(2) returns them, at most `limit`; nil if the file cannot be read. Waits for the disk, but not for
/// the writer of a pipe.
public func firstBytes(of path: String, atMost limit: Int) -> ArraySlice<UInt8>? {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes = [UInt8](repeating: 0, count: limit)
    let count = uninterrupted { read(descriptor, &bytes, limit) }
    return count < 0 ? nil : bytes[..<count]
}

/// The names in a folder without "." and "..", in the order of the file system. Names that are not UTF-8 are left out. Waits for the disk.
///
/// - Parameter limit: most names to read.
/// - Returns: nil if the folder cannot be opened, or cannot be read to its end; errno says why.
public func folderNames(_ path: String, atMost limit: Int = .max) -> [String]? {
    folderNames(path, atMost: limit) { readdir($0) }
}

/// - Parameter next: readdir(3). Tests replace it, to simulate a failing disk.
func folderNames(_ path: String, atMost limit: Int, next: (_ stream: OpaquePointer) -> UnsafeMutablePointer<dirent>?) -> [String]? {
    guard let stream = opendir(path) else { return nil }
    var names: [String] = []
    var code: Int32 = 0
    while names.count < limit {
        errno = 0
        guard let entry = next(stream) else {
            code = errno
            break
        }
        let name = withUnsafeBytes(of: &entry.pointee.d_name) { String(validating: $0.prefix { $0 != 0 }, as: UTF8.self) }
        if let name, name != ".", name != ".." { names.append(name) }
    }
    closedir(stream)
    errno = code
    return code == 0 ? names : nil
}

/// The environment of this process.
public func processEnvironment() -> [String: String] {
    var result: [String: String] = [:]
    var entry = environ
    while let text = entry.pointee {
        let pair = String(cString: text).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        if pair.count == 2 { result[String(pair[0])] = String(pair[1]) }
        entry += 1
    }
    return result
}

/// The folder for temporary files that the variable `TMPDIR` names; nil: the variable is missing or empty.
public func temporaryFolder() -> String? {
    guard let path = getenv("TMPDIR"), path[0] != 0 else { return nil }
    return String(cString: path)
}

/// Writes all bytes to a descriptor that blocks.
///
/// - Returns: 0, or errno. Then some of the bytes may be written.
public func writeAll(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32) -> Int32 {
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = uninterrupted { write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count) }
        guard count > 0 else { return count == 0 ? EIO : errno }
        rest = rest.dropFirst(count)
    }
    return 0
}
