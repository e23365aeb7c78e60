package import DownloadModel
internal import Glibc

/// A small file that records how far a part file is written, and what its bytes belong to.
///
/// It is in the page cache like the part file's bytes, so it survives the death of this process exactly as they do. It is never flushed,
/// and is worthless after a reboot.
///
/// All numbers in the file are little-endian. The header, `MapHeader`, is at 0. At `slotsStart` follows one 16-byte slot for each segment:
/// the first byte and the end of its written prefix (two 64-bit numbers).
///
/// A map is written under another name, with its first slot, and then renamed (rename(2)). So a torn map does not occur; if one does, the
/// header's checksum refuses it.
package final class WrittenMap {
    /// A map is created once this many bytes are written. Together with the bytes in flight at a kill, at most 1 MiB is lost.
    package static let threshold: ByteCount = 256 << 10
    /// The header ends before this offset.
    static let slotsStart = 4096

    private let descriptor: Int32

    /// Creates the map with the written end `end`, and replaces any older map. nil if that fails; then only checkpoints count.
    ///
    /// - Parameter takesPlace: false leaves the map under its `nextPath` until `takePlace(_:)`. It counts there, too, if there is no other.
    package init?(_ path: String, _ header: MapHeader, end: ByteCount, takesPlace: Bool = true) {
        guard let bytes = header.encoded(), bytes.count <= Self.slotsStart else { return nil }
        let next = Self.nextPath(path)
        unlink(next)
        descriptor = open(next, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return nil }
        guard pwrite(descriptor, bytes, bytes.count, 0) == bytes.count, save(end), !takesPlace || Self.takePlace(path) else {
            unlink(next)
            return nil
        }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Records that the part file is written up to `end`; call after the `pwrite`. If it returns false, the map is unchanged.
    @discardableResult package func save(_ end: ByteCount) -> Bool {
        let slot = (UInt64(0).littleEndian, end.littleEndian)
        return withUnsafeBytes(of: slot) { pwrite(descriptor, $0.baseAddress, $0.count, off_t(Self.slotsStart)) } == 16
    }

    private static func nextPath(_ path: String) -> String { "\(path).next" }

    /// Gives its name to a map created with `takesPlace` false.
    @discardableResult package static func takePlace(_ path: String) -> Bool { rename(nextPath(path), path) == 0 }

    /// Removes the map, and an unfinished one.
    package static func remove(_ path: String) {
        unlink(nextPath(path))
        unlink(path)
    }

    /// Reads the map of the file with this identity. It counts if its header is whole and has the same boot, device, inode and mount, and
    /// its slot begins at the first byte. Any other map under these names is removed, because a later file may get the same inode.
    static func read(_ path: String, of identity: FileIdentity) -> (header: MapHeader, end: ByteCount)? {
        func believed(_ path: String) -> (header: MapHeader, end: ByteCount)? {
            guard !identity.boot.isEmpty, let found = readOne(path) else { return nil }
            return found.header.identity.isSameFileAndMount(as: identity) ? found : nil
        }
        if let found = believed(path) {
            unlink(nextPath(path))
            return found
        }
        if let found = believed(nextPath(path)), takePlace(path) { return found }
        remove(path)
        return nil
    }

    private static func readOne(_ path: String) -> (header: MapHeader, end: ByteCount)? {
        let descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: slotsStart + 16)
        guard pread(descriptor, &bytes, bytes.count, 0) == bytes.count, let header = MapHeader(bytes[..<slotsStart]) else { return nil }
        var slot = ByteReader(bytes[slotsStart...])
        guard slot.number() == 0, let end = slot.number() else { return nil }
        return (header, end)
    }
}

/// The file that a written map describes, and what that file's bytes belong to.
///
/// On disk: the magic with its version, the length of the fields, their FNV-1a checksum (64 bits), then the fields:
///
/// - device, inode, mount
/// - total; all ones while unknown
/// - kind of validator: 0 none (a checksum must prove the whole file), 1 entity tag, 2 Last-Modified
/// - boot id and validator, each as length and bytes
package struct MapHeader: Equatable {
    private static let magic: UInt64 = 0x0001_5041_4D4B_4454  // "TDKMAP" and version 1

    var identity: FileIdentity
    var total: ByteCount?
    var validator: Validator?

    init(identity: FileIdentity, total: ByteCount?, validator: Validator?) {
        (self.identity, self.total, self.validator) = (identity, total, validator)
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
        var bytes: [UInt8] = []
        bytes.append(Self.magic)
        bytes.append(UInt64(fields.count))
        bytes.append(Self.checksum(fields[...]))
        return bytes + fields
    }

    /// nil unless the bytes start with a whole header of this version.
    init?(_ bytes: ArraySlice<UInt8>) {
        var reader = ByteReader(bytes)
        guard reader.number() == Self.magic, let length = reader.number(), let checksum = reader.number(),
            length <= UInt64(reader.rest.count)
        else { return nil }
        let fields = reader.rest.prefix(Int(length))
        guard Self.checksum(fields) == checksum else { return nil }
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
        identity = FileIdentity(device: device, inode: inode, mount: mount, boot: boot)
        self.total = total == .max ? nil : total
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

    fileprivate mutating func append(_ text: String) {
        append(UInt64(text.utf8.count))
        append(contentsOf: text.utf8)
    }
}
