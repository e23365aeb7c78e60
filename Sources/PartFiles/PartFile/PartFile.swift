internal import CSystem
package import DownloadModel
internal import EventLoop
internal import Glibc

/// The open, growing file of one download, with its written map and the representation of its bytes. The file is in the download's folder,
/// or comes from the caller. Bytes may be written anywhere: several connections may each write a stretch of the file.
package final class PartFile {
    /// Bytes written before write-back to the disk is started.
    private static let writebackStep: ByteCount = 8 << 20

    private(set) var name: String
    /// nil for a caller's file, which has no name for us.
    private let folder: OpenFolder?
    private let held: HeldDescriptor?
    package let descriptor: Int32
    package let identity: FileIdentity
    /// The strong validator of the representation that the bytes belong to; nil: none.
    package var validator: Validator?
    /// The digest that the server stated of that representation; nil: none.
    package var digest: Checksum? {
        didSet { if digest != oldValue { map = nil } }  // the next write makes a map with it
    }
    /// The mirror that the representation belongs to, as in `ResumeData`; nil: the URL of the download.
    package var mirror: UInt32?
    /// The origin (`DownloadURL.origin`) of the server that has last brought bytes of that representation; nil: an earlier transfer did.
    package var origin: String?
    /// Complete size of the representation; nil while unknown.
    package var total: ByteCount?
    /// Whether a later transfer can resume from these bytes.
    package var isResumable = false
    /// The bytes written to the kernel, which count as received.
    package private(set) var ranges: ByteRanges
    /// The number of bytes in `ranges`.
    package var written: ByteCount { ranges.byteCount }
    /// The error of the first failed write; nothing is written after it.
    package private(set) var error: DiskError?
    /// The written map; nil: none yet.
    private var map: WrittenMap?
    /// The path of the written map; nil: the file has none.
    private var mapPath: String?
    /// A stretch that holds all bytes written since write-back was last started, and the number of these bytes.
    private var unstarted: (stretch: Range<ByteCount>, count: ByteCount)?
    /// The free space to leave on the disk.
    package var diskReserve = DiskReserve.bytes(0)
    /// Whether this object has created the file, and has neither written nor reserved any bytes since.
    private var isUntouched = false
    /// The end of the range that the file system has reserved for this file.
    private var reservedEnd: ByteCount = 0
    /// The room that this file needs, and that only other part files leave to it, because the file system has reserved none.
    private var expected: ExpectedRoom?
    /// Bytes that may be written before the free space is checked again.
    private var allowance: ByteCount = 0
    private static let mostAllowance: ByteCount = 8 << 20
    /// Least free space for a download of unknown size.
    private static let roomForUnknown: ByteCount = 16 << 20
    /// Room is ample if this many times the missing bytes are free.
    private static let ampleRoom: ByteCount = 4

    private init(
        adopting descriptor: Int32, name: String, folder: OpenFolder, identity: FileIdentity, ranges: ByteRanges, mapPath: String?
    ) {
        (self.descriptor, self.name, self.folder, self.identity, held) = (descriptor, name, folder, identity, nil)
        (self.ranges, self.mapPath) = (ranges, mapPath)
    }

    private init(in held: HeldDescriptor, identity: FileIdentity, ranges: ByteRanges) {
        (descriptor, name, folder, self.identity, self.held) = (held.number, "", nil, identity, held)
        self.ranges = ranges
    }

    deinit { if held == nil { close(descriptor) } }

    /// Whether a checkpoint has brought the name to disk. Without it, a power cut takes the bytes, too.
    package var isNameOnDisk = false
    /// The open folder whose flush brings the name to disk; nil: that was done, or the file is a caller's.
    package var unflushedFolder: Int32? { isNameOnDisk ? nil : folder?.descriptor }

    /// Starts from 0 in a caller's file.
    package static func create(in held: HeldDescriptor, boot: String) throws(DiskError) -> PartFile {
        let identity = try fileIdentity(of: held.number, boot: boot)
        guard ftruncate(held.number, 0) == 0 else { throw DiskError("empty the file") }
        return PartFile(in: held, identity: identity, ranges: ByteRanges())
    }

    /// Resumes in a caller's file; nil if none of its bytes count. A caller's file has no written map, because its download ends with this
    /// process.
    package static func reopen(
        in held: HeldDescriptor, resume: ResumeData?, hasChecksum: Bool, boot: String
    ) throws(DiskError) -> PartFile? {
        let identity = try fileIdentity(of: held.number, boot: boot)
        var status = stat()
        guard let resume, !resume.ranges.isEmpty, resume.identity == identity, resume.proves(hasChecksum: hasChecksum),
            fstat(held.number, &status) == 0, status.byteCount >= resume.ranges.end
        else { return nil }
        let part = PartFile(in: held, identity: identity, ranges: resume.ranges)
        (part.validator, part.digest, part.total, part.isResumable) = (resume.validator, resume.digest, resume.total, true)
        part.mirror = resume.mirror
        return part
    }

    /// The name of the second file beside the part file `name`: ".todoku-1.new.part" beside ".todoku-1.part".
    package static func candidateName(_ name: String) -> String { name.hasSuffix(".part") ? "\(name.dropLast(5)).new.part" : "\(name).new" }

    /// Creates an empty part file. An old file of ours with its name is removed; anything else with that name is refused.
    ///
    /// - Parameter mapPath: the path of the written map, where an older map is removed first; nil: the file has none.
    package static func create(in folder: OpenFolder, name: String, mapPath: String?, boot: String) throws(DiskError) -> PartFile {
        if let mapPath { WrittenMap.prepare(mapPath) }
        let flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
        var descriptor = openUninterrupted(folder.descriptor, name, flags, 0o600)
        if descriptor < 0, errno == EEXIST {
            guard let status = folder.status(name), try folder.provesOurs(status), status.st_nlink == 1 else {
                throw DiskError("replace \(name), which it did not create,", EEXIST)
            }
            guard unlinkat(folder.descriptor, name, 0) == 0 else { throw DiskError("remove the old part file") }
            descriptor = openUninterrupted(folder.descriptor, name, flags, 0o600)
        }
        guard descriptor >= 0 else { throw DiskError("create the part file") }
        do throws(DiskError) {
            let status = try OpenFileStatus(of: descriptor, boot: boot)
            try checkReturn(to: status, in: folder, name, boot)
            let part = PartFile(
                adopting: descriptor, name: name, folder: folder, identity: status.identity, ranges: ByteRanges(), mapPath: mapPath)
            part.isUntouched = true
            return part
        } catch {
            close(descriptor)
            unlinkat(folder.descriptor, name, 0)
            throw error
        }
    }

    /// Checks, before a byte is fetched, that a new file can be opened again if the mount gives it to another user. Verifying, naming and
    /// resuming all open it by its name.
    private static func checkReturn(
        to status: OpenFileStatus, in folder: OpenFolder, _ name: String, _ boot: String
    ) throws(DiskError) {
        guard status.owner != geteuid() else { return }
        let action = "open again the files that it creates"
        let again = openUninterrupted(folder.descriptor, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC)
        guard again >= 0 else { throw DiskError(action) }
        defer { close(again) }
        guard try fileIdentity(of: again, boot: boot).isSameFileAndMount(as: status.identity) else { throw DiskError(action, ESTALE) }
    }

    /// Opens the existing part file and finds out which of its bytes count. `resume`, if it describes this file, and the written map may
    /// prove ranges; the proof of more bytes counts. Validator, digest and total come from the same source.
    ///
    /// - Parameters:
    ///   - hasChecksum: whether bytes with neither a validator nor a digest count, too.
    ///   - mapPath: the written map; nil: the file has none. A map counts if boot, device, inode and mount are those of the file, and the
    ///     file has all bytes that the map claims.
    /// - Returns: nil if there is no part file, or none of its bytes count. Throws if the disk cannot tell.
    package static func reopen(
        in folder: OpenFolder, name: String, resume: ResumeData?, hasChecksum: Bool, mapPath: String?, boot: String
    ) throws(DiskError) -> PartFile? {
        let descriptor = openUninterrupted(folder.descriptor, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else {
            if [ENOENT, ELOOP, EISDIR, EACCES, ENXIO].contains(errno) { return nil }  // ENXIO: a FIFO or a socket has the name
            throw DiskError("open the part file")
        }
        var part: PartFile?
        defer { if part == nil { close(descriptor) } }
        var status = stat()
        guard fstat(descriptor, &status) == 0, try folder.provesOurs(status), status.st_nlink == 1 else { return nil }
        let (identity, size) = (try fileIdentity(of: descriptor, boot: boot), status.byteCount)
        var best: ResumeData?
        func offer(_ data: ResumeData) {
            var data = data
            data.ranges = data.ranges.clipped(to: size)
            if data.proves(hasChecksum: hasChecksum), data.written > best?.written ?? 0 { best = data }
        }
        if let resume, resume.identity.isSamePart(as: identity) { offer(resume) }
        if let mapPath, let map = try WrittenMap.read(mapPath, of: identity) {
            // The map of a file that was cut after a failed flush claims bytes that are not on disk.
            if map.ranges.end > size { WrittenMap.remove(mapPath) } else { offer(map.header.resumeData(map.ranges)) }
        }
        guard let best else { return nil }
        let found = PartFile(
            adopting: descriptor, name: name, folder: folder, identity: identity, ranges: best.ranges, mapPath: mapPath)
        (found.validator, found.digest, found.total, found.isResumable) = (best.validator, best.digest, best.total, true)
        found.mirror = best.mirror
        part = found
        return found
    }

    /// The resume data once `ranges` are on disk; nil if a later transfer could not resume from them.
    package func resumeData(_ ranges: ByteRanges) -> ResumeData? {
        guard isResumable else { return nil }
        return ResumeData(ranges: ranges, total: total, validator: validator, identity: identity, digest: digest, mirror: mirror)
    }

    // MARK: The written map

    private var mapHeader: MapHeader { MapHeader(identity: identity, total: total, validator: validator, digest: digest, mirror: mirror) }

    private var deservesMap: Bool { isResumable && written >= WrittenMap.threshold }

    /// Records that the bytes around `offset` are written.
    private func saveMap(_ offset: ByteCount) {
        guard let mapPath, deservesMap, let run = ranges.range(around: offset) else { return }
        if map?.save(run) != true { map = WrittenMap(mapPath, mapHeader, ranges) }
    }

    /// The bytes of `range` turned out to be wrong: they count as missing.
    package func forget(_ range: Range<ByteCount>) {
        ranges.remove(range)
        renewMap()
    }

    /// From now on, the bytes count as those of another source, whose validator and digest are not known.
    package func turn(to mirror: UInt32?) {
        (validator, digest, self.mirror) = (nil, nil, mirror)
        renewMap()
    }

    /// Replaces the map, which claims what is not true any more, or was changed for another file.
    package func renewMap() {
        guard let mapPath else { return }
        map = deservesMap ? WrittenMap(mapPath, mapHeader, ranges) : nil
        if map == nil { WrittenMap.remove(mapPath) }
    }

    /// A further descriptor of the file, for reading on another thread; nil: there is none left, or the file cannot be read. The caller
    /// closes it.
    package func readable() -> Int32? {
        guard fcntl(descriptor, F_GETFL) & O_ACCMODE == O_RDWR else { return nil }
        let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        return copy >= 0 ? copy : nil
    }

    /// Removes the map, and makes no other. A flush failed, so it is no longer known which bytes are written.
    package func loseMap() {
        if let mapPath { WrittenMap.remove(mapPath) }
        (map, mapPath) = (nil, nil)
    }

    /// Replaces `other` under its name, in one step, and then its map. At every moment, one of the two files exists, whole and with a map
    /// that describes it.
    package func takePlace(of other: PartFile) throws(DiskError) {
        let path = other.mapPath
        var next: WrittenMap?
        if let path, deservesMap { next = WrittenMap(path, mapHeader, ranges, takesPlace: false) }
        guard let folder, renameat(folder.descriptor, name, folder.descriptor, other.name) == 0 else {
            throw DiskError("replace the old part file")
        }
        if let path {
            if next != nil { WrittenMap.takePlace(path) } else { WrittenMap.remove(path) }
        }
        (name, map, mapPath) = (other.name, next, path)
        (other.map, other.mapPath) = (nil, nil)
    }

    /// Deletes the file from its folder.
    package func remove() { if let folder { unlinkat(folder.descriptor, name, 0) } }

    /// Frees the file's disk space after its name is deleted. The file system would free it only when the last descriptor is closed.
    package func giveUp() { ftruncate(descriptor, 0) }

    /// Cuts off the bytes behind the last range. If there are none, it does not call ftruncate(2), which would drop the reservation.
    package func trim() throws(DiskError) {
        var status = stat()
        if fstat(descriptor, &status) == 0, status.byteCount == ranges.end { return }
        guard ftruncate(descriptor, off_t(clamping: ranges.end)) == 0 else { throw DiskError("shorten the part file") }
    }

    /// Checks that the file system can hold `total` bytes, if known, and has room for the missing ones. Space reserved for this file counts
    /// as free. So does the space of `held`, which may be deleted.
    ///
    /// - Throws: EFBIG, or ENOSPC with the missing bytes.
    package func makeRoom(beside held: PartFile?) throws(DiskError) {
        guard let total, total > written else { return }
        // A caller's descriptor shares its position with the caller's own.
        if total > ByteCount(Int64.max) || self.held == nil && lseek(descriptor, off_t(clamping: total), SEEK_SET) < 0 {
            throw DiskError("make a file of \(total) bytes", EFBIG)
        }
        guard var shortage = shortage(), shortage.missing > held?.allocated ?? 0 else { return }
        shortage.missing -|= held?.allocated ?? 0
        throw DiskError("reserve \(total) bytes", ENOSPC, shortage: shortage)
    }

    /// Whether the missing bytes do not fit on the disk now.
    package var isCramped: Bool { shortage() != nil }

    /// How many of the missing bytes do not fit; nil: all fit, or it is unknown.
    private func shortage() -> DiskError.Shortage? {
        guard let total, total > written else { return nil }
        return shortage(of: total -| written)
    }

    /// How many of `needed` further bytes do not fit.
    private func shortage(of needed: ByteCount) -> DiskError.Shortage? {
        guard let room else { return nil }
        let left = room -| (ExpectedRoom.sum(onDiskOf: identity) -| (expected?.bytes ?? 0))
        let there = (allocated -| written) +| left
        return needed > there ? DiskError.Shortage(missing: needed -| there, room: room) : nil
    }

    /// Free bytes of the disk beside the reserve; nil if it has no limit, or does not tell.
    private var room: ByteCount? {
        var space = statvfs()
        return fstatvfs(descriptor, &space) == 0 ? space.room(beside: diskReserve) : nil
    }

    /// How many bytes must be free before another attempt can get further, after the disk was full; nil if the disk does not tell.
    package var neededRoom: ByteCount? {
        // Bytes that cannot be resumed are deleted meanwhile and must be fetched again.
        let useless = isResumable ? 0 : written
        if let shortage = shortage() { return shortage.missing +| shortage.room +| useless }
        guard total == nil, let room, room < Self.roomForUnknown else { return nil }
        return Self.roomForUnknown +| useless
    }

    /// Checks from time to time that `count` more bytes, at `offset`, leave the reserve free.
    private func leaveReserve(_ count: Int, at offset: ByteCount) throws(DiskError) {
        let count = ByteCount(count)
        guard diskReserve != .bytes(0), offset +| count > reservedEnd else { return }
        if allowance < count {
            guard let room else { return }
            guard room >= count else { throw DiskError("write the part file", ENOSPC, shortage: shortage()) }
            // Other programs write to the disk, too.
            allowance = max(count, min(room / 4, Self.mostAllowance))
        }
        allowance -|= count
    }

    /// The file's bytes on the disk, written or reserved.
    private var allocated: ByteCount {
        if isUntouched { return 0 }
        var status = stat()
        return fstat(descriptor, &status) == 0 ? status.allocated : 0
    }

    /// Reserves disk space for `total` bytes, if known. A file system without reservations is no error; a full one is.
    ///
    /// Not in a caller's file: if that is in memory, the length that a server claims would use up the memory at once. In memory with ample
    /// room, only the part files of this process leave room to each other, because there fallocate(2) takes longer than it saves.
    package func reserve() throws(DiskError) {
        guard let total, total > written, held == nil else { return }
        let missing = total -| written
        if todoku_is_memory(descriptor), shortage(of: missing *| Self.ampleRoom) == nil {
            expected = ExpectedRoom(missing, onDiskOf: identity)
            return
        }
        isUntouched = false
        let start = ranges.prefixEnd
        let code = todoku_fallocate_keep_size(descriptor, off_t(clamping: start), off_t(clamping: total -| start))
        if code == 0 { reservedEnd = total }
        if ![0, EOPNOTSUPP, ENOSYS, EINVAL, EINTR, EPERM].contains(code) {
            throw DiskError("reserve \(total) bytes", code, shortage: shortage())
        }
    }

    /// Writes `bytes` at `offset`, and records them in the map. If it throws, some bytes may be written; `ranges` says which count.
    package func write(_ bytes: UnsafeRawBufferPointer, at offset: ByteCount) throws(DiskError) {
        if let error { throw error }
        do {
            try leaveReserve(bytes.count, at: offset)
        } catch {
            self.error = error
            throw error
        }
        isUntouched = false
        var (rest, place) = (bytes[...], offset)
        defer { count(offset..<place) }
        while !rest.isEmpty {
            let count = uninterrupted {
                pwrite(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count, off_t(clamping: place))
            }
            guard count > 0 else {
                let code = count == 0 ? EIO : errno
                let failed = DiskError("write the part file", code, shortage: shortage())
                error = failed
                throw failed
            }
            place +|= ByteCount(count)
            rest = rest.dropFirst(count)
        }
    }

    /// Counts the bytes of `range`, which are written.
    private func count(_ range: Range<ByteCount>) {
        guard !range.isEmpty else { return }
        ranges.insert(range, isGrowing: true)
        if let total { expected?.bytes = total -| written }
        saveMap(range.lowerBound)
        var (stretch, count) = unstarted ?? (range, 0)
        stretch = min(stretch.lowerBound, range.lowerBound)..<max(stretch.upperBound, range.upperBound)
        count +|= range.byteCount
        if count >= Self.writebackStep {
            // Only a hint, so ignore a failure.
            _ = todoku_start_writeback(descriptor, off_t(clamping: stretch.lowerBound), off_t(clamping: stretch.byteCount))
            unstarted = nil
        } else {
            unstarted = (stretch, count)
        }
    }
}

extension ResumeData {
    /// Whether a transfer that resumes from these bytes can prove its file: by the validator, or at the end by a digest.
    fileprivate func proves(hasChecksum: Bool) -> Bool { validator != nil || digest != nil || hasChecksum }
}

extension statvfs {
    /// Free bytes for us beside `reserve`; nil if the file system reports no size, or an impossible one.
    package func room(beside reserve: DiskReserve) -> ByteCount? {
        let size = ByteCount(f_blocks).multipliedReportingOverflow(by: ByteCount(f_frsize))
        let free = ByteCount(f_bavail).multipliedReportingOverflow(by: ByteCount(f_frsize))
        guard f_blocks > 0, !size.overflow, !free.overflow else { return nil }
        return free.partialValue -| reserve.bytes(ofDisk: size.partialValue)
    }
}
