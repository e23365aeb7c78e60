package import DownloadModel
internal import Glibc
internal import Synchronization

/// A small file that records which bytes of a part file are written, and what these bytes belong to.
///
/// It is in the page cache like the part file's bytes, so it survives the death of this process exactly as they do. It is never flushed,
/// and is worthless after a reboot.
///
/// All numbers in the file are little-endian. The header, `MapHeader`, is at 0. At `slotsStart` follow 16-byte slots, to the end of the
/// file: the first byte of a range that is written, and the end of that range (two 64-bit numbers). Each connection that writes a stretch
/// of the file has a slot. Slots may overlap and touch. A slot whose end is not behind its first byte says nothing.
///
/// - A map is written under another name, with its first slots, and then renamed (rename(2)). So a torn header does not occur; if one
///   does, its checksum refuses it.
/// - A slot keeps its first byte, and its end only grows, after the bytes are written. A new slot is appended. So whatever is written of a
///   slot when the process dies, the map claims no byte that is not there.
///
/// Version 1 had the first slot only, for a range from 0. A map of a version that is unknown here is not believed.
package final class WrittenMap {
    /// A map is created once this many bytes are written. Together with the bytes in flight at a kill, at most 1 MiB is lost.
    package static let threshold: ByteCount = 256 << 10
    /// The header ends before this offset.
    static let slotsStart = 4096
    static let slotSize = 16
    static let mostSlots = ByteRanges.mostRanges

    private let descriptor: Int32
    /// The first byte of each slot's range.
    private var starts: [ByteCount]

    /// Creates the map of a part file whose `ranges` are already written, and replaces an older map. nil if the map cannot be created.
    /// Without a map, only the bytes of the last checkpoint count.
    ///
    /// - Parameter takesPlace: false leaves the map under its `nextPath` until `takePlace(_:)`. It counts there, too, if there is no other.
    package init?(_ path: String, _ header: MapHeader, _ ranges: ByteRanges, takesPlace: Bool = true) {
        guard var bytes = header.encoded(), bytes.count <= Self.slotsStart else { return nil }
        bytes += [UInt8](repeating: 0, count: Self.slotsStart - bytes.count)
        for range in ranges.ranges { bytes.append(slot: range) }
        starts = ranges.ranges.map(\.lowerBound)
        let next = Self.nextPath(path)
        Self.absent.withLock { _ = $0.remove(path) }
        unlink(next)
        descriptor = open(next, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return nil }
        guard pwrite(descriptor, bytes, bytes.count, 0) == bytes.count, !takesPlace || Self.takePlace(path) else {
            unlink(next)
            return nil
        }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Records that `range` is written; call after the `pwrite`. The range must hold all bytes that the map has of it.
    ///
    /// - Returns: false if the map is unchanged, because it has no slot left, or cannot be written.
    @discardableResult package func save(_ range: Range<ByteCount>) -> Bool {
        let index = starts.firstIndex(of: range.lowerBound) ?? starts.count
        guard index < Self.mostSlots else { return false }
        let slot = (range.lowerBound.littleEndian, range.upperBound.littleEndian)
        let place = off_t(Self.slotsStart + index * Self.slotSize)
        guard withUnsafeBytes(of: slot, { pwrite(descriptor, $0.baseAddress, $0.count, place) }) == Self.slotSize else { return false }
        if index == starts.count { starts.append(range.lowerBound) }
        return true
    }

    private static func nextPath(_ path: String) -> String { "\(path).next" }

    /// Gives its name to a map created with `takesPlace` false.
    @discardableResult package static func takePlace(_ path: String) -> Bool { rename(nextPath(path), path) == 0 }

    /// Removes the map, and an unfinished one.
    ///
    /// - Returns: whether both are gone.
    @discardableResult package static func remove(_ path: String) -> Bool {
        absent.withLock { _ = $0.remove(path) }
        let isNextGone = unlink(nextPath(path)) == 0 || errno == ENOENT
        return (unlink(path) == 0 || errno == ENOENT) && isNextGone
    }

    /// Deletes the map, unless it belongs to another file than the one with this identity. May be called on any thread: the engine keeps
    /// the map open, but no later process finds it.
    package static func disown(_ path: String, of identity: FileIdentity) {
        let held = try? bytes(of: path) { Glibc.open($0, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) }
        if let held, let found = decoded(held), !found.header.identity.isSameFileAndMount(as: identity) { return }
        unlink(path)
    }

    /// The paths of new part files' maps that this process has not made yet, so that nothing is there to remove.
    private static let absent = Mutex<Set<String>>([])
    /// Beyond this number of paths, the end of a file removes a map that does not exist.
    private static let mostAbsent = 1024

    /// Removes what an earlier part file has left, before a new one is made. If that fails, the end of the new file tries again.
    static func prepare(_ path: String) {
        guard remove(path) else { return }
        absent.withLock { if $0.count < mostAbsent { $0.insert(path) } }
    }

    /// Removes the map of a file that has its final name. A small file has never had one.
    static func removeIfMade(_ path: String) {
        if absent.withLock({ $0.remove(path) }) == nil { remove(path) }
    }

    /// Reads the map of the file with this identity. It counts if its header is whole, of a known version, and has the same boot, device,
    /// inode and mount. Any other map under these names is removed, because a later file may get the same inode.
    ///
    /// - Throws: this machine is short of something, such as descriptors (`DiskError.isShortage`). Nothing is removed then.
    package static func read(_ path: String, of identity: FileIdentity) throws(DiskError) -> (header: MapHeader, ranges: ByteRanges)? {
        try read(path, of: identity) { Glibc.open($0, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) }
    }

    /// - Parameter open: opens a map for reading, as open(2) does. Tests replace it to simulate a failing disk.
    static func read(
        _ path: String, of identity: FileIdentity, open: (_ path: String) -> Int32
    ) throws(DiskError) -> (header: MapHeader, ranges: ByteRanges)? {
        func believed(_ path: String) throws(DiskError) -> (header: MapHeader, ranges: ByteRanges)? {
            guard !identity.boot.isEmpty, let held = try bytes(of: path, open), let found = decoded(held) else { return nil }
            return found.header.identity.isSameFileAndMount(as: identity) ? found : nil
        }
        if let found = try believed(path) {
            unlink(nextPath(path))
            return found
        }
        if let found = try believed(nextPath(path)), takePlace(path) { return found }
        remove(path)
        return nil
    }

    /// The bytes of a map; nil if there is none, or if the second try fails, too. One failed call must not cost the bytes since the last
    /// checkpoint.
    private static func bytes(of path: String, _ open: (_ path: String) -> Int32) throws(DiskError) -> [UInt8]? {
        var code: Int32 = 0
        for _ in 0..<2 {
            let descriptor = open(path)
            guard descriptor >= 0 else {
                code = errno
                if code == ENOENT { return nil }
                continue
            }
            defer { close(descriptor) }
            var bytes = [UInt8](repeating: 0, count: slotsStart + mostSlots * slotSize)
            let count = pread(descriptor, &bytes, bytes.count, 0)
            if count >= 0 { return Array(bytes.prefix(count)) }
            code = errno
        }
        let error = DiskError("read the map of the part file", code)
        guard error.isShortage else { return nil }
        throw error
    }

    private static func decoded(_ bytes: [UInt8]) -> (header: MapHeader, ranges: ByteRanges)? {
        guard bytes.count >= slotsStart + slotSize, let (header, version) = MapHeader.decoded(bytes[..<slotsStart]) else { return nil }
        var slots = ByteReader(bytes[slotsStart...])
        var ranges = ByteRanges()
        for _ in 0..<(version == 1 ? 1 : mostSlots) {
            guard let start = slots.number(), let end = slots.number() else { break }  // the remaining bytes are a part of a slot
            guard version > 1 || start == 0 else { return nil }
            if start < end { ranges.insert(start..<end) }
        }
        return (header, ranges)
    }
}

/// The file that a written map describes, and what that file's bytes belong to.
///
/// On disk: the magic with its version, the length of the fields, their FNV-1a checksum (64 bits), then the fields:
///
/// - device, inode, mount
/// - total; all ones while unknown
/// - kind of validator: 0 none (a checksum or the digest must prove the whole file), 1 entity tag, 2 Last-Modified
/// - boot id and validator, each as length and bytes
/// - the digest that the server stated, as length and bytes of the form `sha256:<hex>`; the length is 0 if there is none. Earlier programs
///   neither write nor read this field.
/// - the mirror that the bytes belong to, as its place from 1 on; 0 if they belong to the URL of the download. Earlier programs neither
///   write nor read this field.
package struct MapHeader: Equatable {
    private static let magic: UInt64 = 0x5041_4D4B_4454  // "TDKMAP", in the low 48 bits; the version is above
    /// The version that is written. Older versions are read, too.
    static let version: UInt64 = 2

    var identity: FileIdentity
    var total: ByteCount?
    var validator: Validator?
    var digest: Checksum?
    var mirror: UInt32?

    init(identity: FileIdentity, total: ByteCount?, validator: Validator?, digest: Checksum? = nil, mirror: UInt32? = nil) {
        (self.identity, self.total, self.validator, self.digest, self.mirror) = (identity, total, validator, digest, mirror)
    }

    func resumeData(_ ranges: ByteRanges) -> ResumeData {
        ResumeData(ranges: ranges, total: total, validator: validator, identity: identity, digest: digest, mirror: mirror)
    }

    /// nil if the total is the value that means "unknown".
    func encoded() -> [UInt8]? {
        guard total != .max else { return nil }
        var fields: [UInt8] = []
        fields.append(identity.device)
        fields.append(identity.inode)
        fields.append(identity.mount)
        fields.append(total ?? .max)
        switch validator {
        case nil: fields.append(0 as UInt64)
        case .entityTag: fields.append(1 as UInt64)
        case .lastModified: fields.append(2 as UInt64)
        }
        fields.append(identity.boot)
        fields.append(validator?.ifRange ?? "")
        fields.append(digest?.description ?? "")
        fields.append(mirror.map { UInt64(clamping: $0) +| 1 } ?? 0)
        var bytes: [UInt8] = []
        bytes.append(Self.magic | Self.version << 48)
        bytes.append(UInt64(fields.count))
        bytes.append(Self.checksum(fields[...]))
        return bytes + fields
    }

    /// The header at the start of the bytes, and its version; nil unless the header is whole, and the version known.
    static func decoded(_ bytes: ArraySlice<UInt8>) -> (MapHeader, version: UInt64)? {
        var reader = ByteReader(bytes)
        guard let first = reader.number(), first & 0xFFFF_FFFF_FFFF == magic, 1...version ~= first >> 48, let length = reader.number(),
            let checksum = reader.number(),
            length <= UInt64(reader.rest.count)
        else { return nil }
        let fields = reader.rest.prefix(Int(length))
        guard Self.checksum(fields) == checksum else { return nil }
        let validator: Validator?
        reader = ByteReader(fields)
        guard let device = reader.number(), let inode = reader.number(), let mount = reader.number(), let total = reader.number(),
            let kind = reader.number(), let boot = reader.text(), let text = reader.text()
        else { return nil }
        switch kind {
        case 0: validator = nil
        case 1: validator = .entityTag(text)
        case 2: validator = .lastModified(text)
        default: return nil
        }
        var digest: Checksum?
        if let text = reader.text(), !text.isEmpty {
            guard let stated = try? Checksum(text) else { return nil }
            digest = stated
        }
        let mirror = reader.number().flatMap { $0 == 0 ? nil : UInt32(clamping: $0 -| 1) }
        let header = MapHeader(
            identity: FileIdentity(device: device, inode: inode, mount: mount, boot: boot), total: total == .max ? nil : total,
            validator: validator, digest: digest, mirror: mirror)
        return (header, first >> 48)
    }

    private static func checksum(_ bytes: ArraySlice<UInt8>) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01B3 }
    }
}

/// Reads little-endian numbers and texts from the start of bytes; nil beyond their end.
private struct ByteReader {
    private(set) var rest: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    mutating func number() -> UInt64? {
        guard rest.count >= 8 else { return nil }
        defer { rest = rest.dropFirst(8) }
        return rest.prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }

    mutating func text() -> String? {
        guard let length = number(), length <= UInt64(rest.count) else { return nil }
        defer { rest = rest.dropFirst(Int(length)) }
        return String(validating: rest.prefix(Int(length)), as: UTF8.self)
    }
}

extension [UInt8] {
    fileprivate mutating func append(_ number: UInt64) {
        Swift.withUnsafeBytes(of: number.littleEndian) { append(contentsOf: $0) }
    }

    fileprivate mutating func append(slot range: Range<ByteCount>) {
        append(range.lowerBound)
        append(range.upperBound)
    }

    fileprivate mutating func append(_ text: String) {
        append(UInt64(text.utf8.count))
        append(contentsOf: text.utf8)
    }
}
