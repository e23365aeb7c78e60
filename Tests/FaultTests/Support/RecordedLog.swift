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
    /// Flushes the whole disk that this file is on.
    case syncAll(path: String)
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
        case .syncAll(let path): "syncfs \(path.lastName)/"
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
    /// A daemon has begun to talk.
    case started
    /// What an asset is doing.
    case stage(String)
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

    /// Throws `Shim.Unusable`, which says what is wrong and where.
    init(_ path: String) throws {
        var entries = RecordEntries(bytes: readFile(path) ?? [])
        var streams: [UInt64: BusStream] = [:]
        var talking: Set<Int> = []
        while let entry = try entries.next() {
            let inode = entry.inode
            func path() -> String { String(decoding: entry.first, as: UTF8.self).normalized }
            func target() -> String { String(decoding: entry.second, as: UTF8.self).normalized }
            switch entry.kind {
            case 1: changes.append(.create(path: path(), inode: inode))
            case 2: changes.append(.makeFolder(path: path(), inode: inode))
            case 3: changes.append(.truncate(inode: inode, size: try entry.offset()))
            case 4: changes.append(.extend(inode: inode, size: try entry.offset()))
            case 5: changes.append(.write(inode: inode, offset: try entry.offset(), Array(entry.first)))
            case 6: changes.append(.sync(inode: inode))
            case 7: changes.append(.syncFolder(path: path(), inode: inode))
            case 8: changes.append(.rename(from: path(), to: target()))
            case 9: changes.append(.link(from: path(), to: target()))
            case 10: changes.append(.unlink(path: path()))
            case 11:
                if talking.insert(entry.process).inserted { changes.append(.told(.started)) }
                // A descriptor is a number of its process.
                let stream = UInt64(entry.process) << 32 | inode
                changes += streams[stream, default: BusStream()].take(entry.first).map { .told($0) }
            // The target is not a path of its own.
            case 12: changes.append(.symbolicLink(path: path(), target: String(decoding: entry.second, as: UTF8.self)))
            case 13: changes.append(.syncAll(path: path()))
            default: throw Shim.Unusable(reason: "\(entry) has the unknown kind \(entry.kind)")
            }
        }
    }
}

/// An entry of the record, as the shim writes it in one call.
private struct RecordEntry: CustomStringConvertible {
    let place: Int
    let kind: Int
    let process: Int
    let inode: UInt64
    let rawOffset: UInt64
    let first: ArraySlice<UInt8>
    let second: ArraySlice<UInt8>

    var description: String { "the entry of process \(process) at byte \(place) of the record" }

    func offset() throws -> Int {
        guard rawOffset < 1 << 40 else { throw Shim.Unusable(reason: "\(self), of kind \(kind), has the offset \(rawOffset)") }
        return Int(rawOffset)
    }
}

/// Splits a record into its entries. Several processes append to it; a process that was killed may leave a part of its last one.
private struct RecordEntries {
    private static let mark = Array("faultsh2".utf8)
    private static let headLength = 40

    let bytes: [UInt8]
    private var place = 0
    /// The processes whose last entry is cut, and where.
    private var cut: [Int: Int] = [:]

    init(bytes: [UInt8]) { self.bytes = bytes }

    mutating func next() throws -> RecordEntry? {
        while place < bytes.count {
            let start = place
            guard isMark(start) else { throw Shim.Unusable(reason: "the record has no entry at byte \(start) of \(bytes.count)") }
            if let entry = whole(at: start) {
                place = entry.second.endIndex
                if let end = cut[entry.process] {
                    throw Shim.Unusable(reason: "\(entry) follows one of the same process that is cut, at byte \(end)")
                }
                return entry
            }
            if start + Self.headLength <= bytes.count { cut[bytes.number32(start + 20)] = start }
            place = (start + 1..<bytes.count).first(where: isMark) ?? bytes.count
        }
        return nil
    }

    /// The entry that begins here, if another one or the end follows.
    private func whole(at start: Int) -> RecordEntry? {
        let head = start + Self.headLength
        guard head <= bytes.count else { return nil }
        let middle = head + bytes.number32(start + 12)
        let end = middle + bytes.number32(start + 16)
        guard end == bytes.count || isMark(end) else { return nil }
        return RecordEntry(
            place: start, kind: bytes.number32(start + 8), process: bytes.number32(start + 20), inode: bytes.number64(start + 24),
            rawOffset: bytes.number64(start + 32), first: bytes[head..<middle], second: bytes[middle..<end])
    }

    private func isMark(_ place: Int) -> Bool {
        place + Self.mark.count <= bytes.count && bytes[place] == Self.mark[0]
            && bytes[place..<place + Self.mark.count].elementsEqual(Self.mark)
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
        if type == 4, head.find(Array("StageChanged\0".utf8)) != nil { return text(0).map { .stage($0) } }
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
