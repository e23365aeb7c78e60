internal import CSystem
internal import Glibc

/// A disk, network share or other file system. A call on one file system must not wait for another.
public struct DiskKey: Hashable, Sendable {
    /// Device numbers as in `/proc/self/mountinfo` ("8:1"); empty if unknown.
    let name: String
}

/// The mounts of this process (proc_pid_mountinfo(5)). Unlike stat(2), a look-up never waits for the file systems themselves.
struct MountTable {
    private var byPath: [ArraySlice<UInt8>: DiskKey] = [:]
    private var byNumber: [UInt64: DiskKey] = [:]

    /// - Parameter text: the content of `/proc/self/mountinfo`. Malformed lines are skipped.
    init(_ text: [UInt8]) {
        for line in text.split(separator: UInt8(ascii: "\n")) {
            let fields = line.split(separator: UInt8(ascii: " "), maxSplits: 5)
            guard fields.count > 4, let number = UInt64(String(decoding: fields[0], as: UTF8.self)) else { continue }
            let disk = DiskKey(name: String(decoding: fields[2], as: UTF8.self))
            byPath[Self.path(unescapedMountField(fields[4]))[...]] = disk  // a later mount at the same place hides the earlier one
            byNumber[number] = disk
        }
    }

    /// The disk of the absolute path `path`, by its text. Symbolic links are not followed.
    func disk(of path: String) -> DiskKey {
        var rest = Self.path(Array(path.utf8)[...])[...]
        while true {
            if let disk = byPath[rest] { return disk }
            guard let slash = rest.lastIndex(of: UInt8(ascii: "/")) else { return DiskKey(name: "") }
            rest = rest[..<slash]
        }
    }

    /// The disk of the mount with this id, as in `/proc/self/fdinfo`. The mount of memory files is in no table.
    func disk(ofMount number: UInt64) -> DiskKey { byNumber[number] ?? DiskKey(name: "mount \(number)") }

    /// The path without superfluous slashes and dots; the root is empty.
    private static func path(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        var result: [UInt8] = []
        for part in bytes.split(separator: UInt8(ascii: "/")) where part != [UInt8(ascii: ".")] {
            if part == [UInt8(ascii: "."), UInt8(ascii: ".")] {
                if let slash = result.lastIndex(of: UInt8(ascii: "/")) { result.removeSubrange(slash...) }
            } else {
                result.append(UInt8(ascii: "/"))
                result += part
            }
        }
        return result
    }
}

/// A field of `/proc/self/mountinfo`, in which space, tab, newline and backslash are written as `\040` and so on.
public func unescapedMountField(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    guard bytes.contains(UInt8(ascii: "\\")) else { return bytes }
    var result: [UInt8] = []
    var rest = bytes
    while let byte = rest.popFirst() {
        if byte == UInt8(ascii: "\\"), rest.count >= 3, let code = UInt8(String(decoding: rest.prefix(3), as: UTF8.self), radix: 8) {
            result.append(code)
            rest = rest.dropFirst(3)
        } else {
            result.append(byte)
        }
    }
    return result[...]
}

/// A `MountTable` that is read again when the kernel reports changed mounts (POLLPRI). Used under its owner's lock.
struct MountWatch {
    private let path: String
    private var descriptor: Int32 = -1
    private var table: MountTable?

    /// - Parameter path: replaced by tests.
    init(path: String = "/proc/self/mountinfo") { self.path = path }

    mutating func current() -> MountTable {
        if descriptor < 0 { descriptor = open(path, O_RDONLY | O_CLOEXEC) }
        var entry = pollfd(fd: descriptor, events: Int16(POLLPRI), revents: 0)
        let hasChanged = poll(&entry, 1, 0) > 0
        if let table, !hasChanged { return table }
        // A table that cannot be read, because too many files are open, is read again by the next call.
        table = Self.all(descriptor).map { MountTable($0) }
        return table ?? MountTable([])
    }

    private static func all(_ descriptor: Int32) -> [UInt8]? {
        guard descriptor >= 0 else { return nil }
        lseek(descriptor, 0, SEEK_SET)
        return try? readToEnd(descriptor, atMost: .max)
    }
}

/// Follows the symbolic links of `path` while they stay on `disk`, the disk of `path` by its text.
///
/// - Returns: the path on another disk that a link leads to; nil if there is none.
func pathOnOtherDisk(_ path: String, from disk: DiskKey, disk diskOf: (String) -> DiskKey) -> String? {
    // Most paths have no link, and one call finds that out. Otherwise, look at each component.
    if todoku_is_without_links(path) { return nil }
    let slash = UInt8(ascii: "/")
    var rest = Array(Array(path.utf8).split(separator: slash).reversed())
    // The components so far, each behind a slash. Bytes, because this is done for each file's folder several times.
    var way: [UInt8] = []
    var links = 0
    while let part = rest.popLast() {
        if part.elementsEqual(".".utf8) { continue }
        let parent = way.count
        if part.elementsEqual("..".utf8) {
            way.removeSubrange((way.lastIndex(of: slash) ?? 0)...)
            continue
        }
        way.append(slash)
        way += part
        guard let target = linkTarget(way) else { continue }
        links += 1
        guard links <= 40 else { return nil }  // the kernel's limit
        way.removeSubrange((target.first == slash ? 0 : parent)...)
        rest += target.split(separator: slash).reversed()
        let led = String(decoding: way + [slash] + rest.reversed().joined(separator: [slash]), as: UTF8.self)
        if diskOf(led) != disk { return led }
    }
    return nil
}

/// The target of the symbolic link at `path`; nil if `path` is no link, or its target is not UTF-8.
private func linkTarget(_ path: [UInt8]) -> [UInt8]? {
    withUnsafeTemporaryAllocation(byteCount: path.count + 1 + Int(PATH_MAX), alignment: 1) { bytes in
        bytes.copyBytes(from: path)
        bytes[path.count] = 0
        let start = bytes.baseAddress!.assumingMemoryBound(to: CChar.self)
        let count = readlink(start, start + path.count + 1, Int(PATH_MAX))
        guard count > 0, count < Int(PATH_MAX) else { return nil }
        let target = Array(bytes[(path.count + 1)...].prefix(count))
        return String(validating: target, as: UTF8.self) == nil ? nil : target
    }
}
