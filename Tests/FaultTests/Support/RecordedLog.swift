internal import Glibc
internal import TestSupport

/// An entry of the shim's record (Tests/FaultShim/faultshim.h, `struct entry`), in the order of the events.
enum Change: Sendable {
    case create(path: String, inode: UInt64)
    case makeFolder(path: String, inode: UInt64)
    case truncate(inode: UInt64, size: Int)
    case extend(inode: UInt64, size: Int)
    case write(inode: UInt64, offset: Int, [UInt8])
    case sync(inode: UInt64)
    case syncFolder(path: String, inode: UInt64)
    /// Flushes the whole disk.
    case syncAll
    case rename(from: String, to: String)
    case link(from: String, to: String)
    case symbolicLink(path: String, target: String)
    case unlink(path: String)
    /// A message that any program on the bus could have seen by now.
    case told(Told)

    /// A short name for lists of failures.
    var name: String {
        switch self {
        case .create(let path, _): "create \(path.lastName)"
        case .makeFolder(let path, _): "mkdir \(path.lastName)"
        case .truncate(_, let size): "truncate to \(size)"
        case .extend(_, let size): "extend to \(size)"
        case .write(_, let offset, let bytes): "write \(bytes.count) at \(offset)"
        case .sync: "fsync"
        case .syncFolder(let path, _): "fsync \(path.lastName)/"
        case .syncAll: "syncfs"
        case .rename(let from, let to): "rename \(from.lastName) \(to.lastName)"
        case .link(let from, let to): "link \(from.lastName) \(to.lastName)"
        case .symbolicLink(let path, let target): "symlink \(path.lastName) to \(target)"
        case .unlink(let path): "unlink \(path.lastName)"
        case .told(let told): "told \(told)"
        }
    }
}

/// Statements of the service that a power cut must not undo.
enum Told: Sendable {
    /// A call that queues a download was answered with this object path.
    case acknowledged(String)
    case ended(String, outcome: String)
    /// A version of an asset is ready.
    case ready(version: String)
    case rolledBack
    case unregistered
}

extension String {
    var lastName: String { String(split(separator: "/").last ?? "") }
    var folderName: String { split(separator: "/").dropLast().reduce("") { "\($0)/\($1)" } }
    /// The path without `.` and `..`.
    var normalized: String {
        var parts: [Substring] = []
        for part in split(separator: "/") where part != "." {
            if part == ".." { _ = parts.popLast() } else { parts.append(part) }
        }
        return "/" + parts.joined(separator: "/")
    }
}

/// Reads a record. Puts together messages on the bus from the sent bytes.
struct RecordedLog: Sendable {
    private(set) var changes: [Change] = []

    init(_ path: String) throws {
        let bytes = readFile(path) ?? []
        var streams: [UInt64: BusStream] = [:]
        var place = 0
        while place < bytes.count {
            let (kind, first, second, process) = (
                bytes.number32(place), bytes.number32(place + 4), bytes.number32(place + 8), bytes.number32(place + 12)
            )
            let (inode, offset) = (bytes.number64(place + 16), Int(bytes.number64(place + 24)))
            place += 32
            let (data, other) = (bytes[place..<place + first], bytes[place + first..<place + first + second])
            place += first + second
            func path() -> String { String(decoding: data, as: UTF8.self).normalized }
            func target() -> String { String(decoding: other, as: UTF8.self).normalized }
            switch kind {
            case 1: changes.append(.create(path: path(), inode: inode))
            case 2: changes.append(.makeFolder(path: path(), inode: inode))
            case 3: changes.append(.truncate(inode: inode, size: offset))
            case 4: changes.append(.extend(inode: inode, size: offset))
            case 5: changes.append(.write(inode: inode, offset: offset, Array(data)))
            case 6: changes.append(.sync(inode: inode))
            case 7: changes.append(.syncFolder(path: path(), inode: inode))
            case 8: changes.append(.rename(from: path(), to: target()))
            case 9: changes.append(.link(from: path(), to: target()))
            case 10: changes.append(.unlink(path: path()))
            case 11: changes += streams[UInt64(process) << 32 | inode, default: BusStream()].take(data).map { .told($0) }
            // The target is not a path of its own.
            case 12: changes.append(.symbolicLink(path: path(), target: String(decoding: other, as: UTF8.self)))
            case 13: changes.append(.syncAll)
            default: throw Shim.Unusable(reason: "the record has an entry of kind \(kind)")
            }
        }
    }
}

/// The outgoing bytes of one connection: messages after the handshake (D-Bus specification, "Message Format").
private struct BusStream {
    private var bytes: [UInt8] = []
    private var hasBegun = false

    mutating func take(_ more: ArraySlice<UInt8>) -> [Told] {
        bytes += more
        if !hasBegun {
            guard let begin = bytes.find(Array("BEGIN\r\n".utf8)) else { return [] }
            bytes.removeFirst(begin + 7)
            hasBegun = true
        }
        var told: [Told] = []
        while bytes.count >= 16 {
            let head = (16 + bytes.number32(12) + 7) & ~7
            let length = head + bytes.number32(4)
            guard bytes.count >= length else { break }
            if let one = Self.read(type: bytes[1], Array(bytes[..<head]), Array(bytes[head..<length])) { told.append(one) }
            bytes.removeFirst(length)
        }
        return told
    }

    private static func read(type: UInt8, _ head: [UInt8], _ body: [UInt8]) -> Told? {
        func text(_ place: Int) -> String? {
            guard place + 4 <= body.count else { return nil }
            let end = place + 4 + body.number32(place)
            return end <= body.count ? String(decoding: body[place + 4..<end], as: UTF8.self) : nil
        }
        // A method return with the signature "o" is the answer of Download.
        if type == 2, head.find([8, 1, 0x67, 0, 1, 0x6f, 0]) != nil, let path = text(0) { return .acknowledged(path) }
        // A method return with the signature "s" is the answer of Rollback.
        if type == 2, head.find([8, 1, 0x67, 0, 1, 0x73, 0]) != nil { return .rolledBack }
        if type == 4, head.find(Array("AssetRemoved".utf8)) != nil { return .unregistered }
        if type == 4, head.find(Array("org.todoku.Asset1".utf8)) != nil, head.find(Array("Ready\0".utf8)) != nil {
            return text(0).map { .ready(version: $0) }
        }
        guard type == 4, head.find(Array("DownloadEnded".utf8)) != nil, let path = text(0) else { return nil }
        return text((4 + path.utf8.count + 1 + 3) & ~3).map { .ended(path, outcome: $0) }
    }
}

extension [UInt8] {
    fileprivate func number32(_ place: Int) -> Int {
        withUnsafeBytes { Int($0.loadUnaligned(fromByteOffset: place, as: UInt32.self)) }
    }
    fileprivate func number64(_ place: Int) -> UInt64 {
        withUnsafeBytes { $0.loadUnaligned(fromByteOffset: place, as: UInt64.self) }
    }
    fileprivate func find(_ other: [UInt8]) -> Int? {
        guard count >= other.count else { return nil }
        return (0...(count - other.count)).first { self[$0..<$0 + other.count].elementsEqual(other) }
    }
}
