public import DownloadModel
internal import EventLoop
internal import Glibc

// Cached copies: their stamps, and whether new bytes equal them. All calls block: use the pool.
extension Commit {
    /// The stamp of the file at `path`; nil if the file does not have this identity.
    public static func stamp(of path: String, identity: FileIdentity) -> FileStamp? {
        guard let (folder, name) = try? OpenFolder.parent(of: path), let status = folder.status(name), status.isRegular,
            status.st_ino == identity.inode
        else { return nil }
        var stamp = status.stamp(boot: bootIdentity())
        (stamp.identity.mount, stamp.identity.born) = (identity.mount, identity.born)
        return stamp
    }

    /// Whether the part file has the same bytes as `copy`, and the copy is still as it was written.
    public static func isCopy(directory: String, partName: String, of copy: CachedCopy) -> Bool {
        guard copy.key.directory.isSameBytes(as: directory), let folder = try? OpenFolder.open(directory, allowHidden: true) else {
            return false
        }
        let part = openUninterrupted(folder.descriptor, partName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        guard part >= 0 else { return false }
        defer { close(part) }
        let held = openUninterrupted(folder.descriptor, copy.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard held >= 0 else { return false }
        defer { close(held) }
        return isAsWritten(held, copy, in: folder) && haveSameBytes(part, held, size: copy.stamp.size)
            && isAsWritten(held, copy, in: folder)
            && folder.status(copy.name).map { copy.stamp.isOf($0.stamp(boot: bootIdentity())) } == true
    }

    private static func isAsWritten(_ descriptor: Int32, _ copy: CachedCopy, in folder: OpenFolder) -> Bool {
        var status = stat()
        return fstat(descriptor, &status) == 0 && folder.isOurs(status)
            && copy.stamp.isOf(status.stamp(boot: bootIdentity()))
    }

    private static func haveSameBytes(_ a: Int32, _ b: Int32, size: ByteCount) -> Bool {
        var status = stat()
        guard fstat(a, &status) == 0, status.byteCount == size else { return false }
        let (first, second) = (allocate(), allocate())
        defer {
            first.deallocate()
            second.deallocate()
        }
        var offset: ByteCount = 0
        while offset < size {
            let count = Int(clamping: min(size -| offset, ByteCount(Digest.readSize)))
            guard readAll(a, first, count, offset), readAll(b, second, count, offset), memcmp(first, second, count) == 0
            else { return false }
            offset +|= ByteCount(count)
        }
        return true
    }

    private static func allocate() -> UnsafeMutableRawPointer { .allocate(byteCount: Digest.readSize, alignment: 4096) }

    private static func readAll(_ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int, _ offset: ByteCount) -> Bool {
        var done = 0
        while done < count {
            let read = uninterrupted { pread(descriptor, buffer + done, count - done, off_t(clamping: offset +| ByteCount(done))) }
            guard read > 0 else { return false }
            done += read
        }
        return true
    }

    /// Flushes and verifies a caller's file.
    ///
    /// - Parameters:
    ///   - size: the number of bytes written. Another size means that another program wrote to the file.
    ///   - checksum: what the caller expects; `digest`: what the server stated. See `verify(directory:)`.
    public static func verify(
        _ held: HeldDescriptor, size: ByteCount, checksum: Checksum?, digest: Checksum? = nil, expectedSize: ByteCount?
    ) -> Verification {
        do throws(DiskError) {
            var status = stat()
            guard fstat(held.number, &status) == 0 else { throw DiskError("look at the file") }
            // The caller shares the flags and may have set O_APPEND meanwhile; the bytes would then be in other places.
            guard held.obstacle(reading: checksum != nil || digest != nil) == nil else {
                return .failed(DownloadFailure(.writeFailed, "The caller’s descriptor was changed while Todoku wrote into it."))
            }
            guard status.byteCount == size else {
                return .failed(DownloadFailure(.writeFailed, "The caller’s file was changed while Todoku wrote it."))
            }
            if let expectedSize, size != expectedSize {
                return .failed(DownloadFailure(.sizeMismatch, "The file has \(size) bytes instead of \(expectedSize)."))
            }
            guard fsync(held.number) == 0 else { throw DiskError("save the file") }
            let identity = try fileIdentity(of: held.number, boot: bootIdentity())
            return prove(held.number, identity, checksum: checksum, digest: digest) { $0.descriptorFailure }
        } catch {
            return .failed(error.descriptorFailure)
        }
    }
}
