internal import DownloadModel
internal import Extraction
internal import Glibc
internal import PartFiles
internal import Transport

/// The disk operations of the option `extract`. Every call blocks: use the pool.
///
/// The archive is the part file of its download. The archive is unpacked into a hidden folder beside it. The folder gets its final name
/// when it is whole. The archive stays until the end of the download is on disk, so that an interrupted extraction continues without the
/// network.
enum Archives {
    /// How an extraction ended.
    enum End: Sendable {
        case unpacked
        /// The part file no longer exists, or is another file.
        case lost
        case stopped
        /// A later attempt may succeed.
        case failed(DownloadFailure)
        /// This archive is never unpacked. `isDamaged`: its bytes are wrong.
        case unusable(DownloadFailure, isDamaged: Bool)
    }

    /// The provisional name of the folder beside the part file `part`.
    private static func folder(_ part: String) -> String { "\(part).folder" }

    /// Unpacks the part file, or continues an interrupted extraction of it.
    static func unpack(
        _ record: DownloadRecord, part: String, _ reserve: DiskReserve, allowHidden: Bool, _ control: ExtractionControl
    ) -> End {
        guard let identity = record.resume?.identity else { return .lost }
        let archive: Int32
        do throws(DiskError) {
            let parent = try OpenFolder.open(record.directory, allowHidden: allowHidden)
            archive = openUninterrupted(parent.descriptor, part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
            if archive < 0, errno == ENOENT { return .lost }
            guard archive >= 0 else { throw DiskError("open the part file") }
        } catch {
            return .failed(error.failure(folder: record.directory))
        }
        defer { close(archive) }
        var status = stat()
        guard fstat(archive, &status) == 0, (try? fileIdentity(of: archive, boot: bootIdentity()))?.isSamePart(as: identity) == true,
            ByteCount(clamping: status.st_size) == record.received
        else { return .lost }
        let request = ExtractionRequest(
            archive: archive, fingerprint: fingerprint(status, identity), directory: record.directory, name: folder(part), reserve: reserve,
            allowHidden: allowHidden, decode: iconvDecoder)
        var result = Unpacking.run(request, control)
        if case .failure(.taken) = result {
            // Only this download uses the provisional name. So the folder comes from an archive that was lost and downloaded again, or its
            // journal was lost. If the folder cannot be deleted, the second run reports that it is in the way.
            _ = discard(directory: record.directory, part: part, control)
            result = Unpacking.run(request, control)
        }
        switch result {
        case .success: return .unpacked
        case .failure(.cancelled): return .stopped
        case .failure(let failure):
            var end =
                failure.diskFailure(folder: record.directory) ?? DownloadFailure(.extraction, failure.message(folder: record.directory))
            switch failure {
            case .unsupported, .damaged:
                end.isRetryable = !record.options.provesFile  // then a retry downloads the archive again
                return .unusable(end, isDamaged: true)
            case .refused, .excessive: return .unusable(end, isDamaged: false)
            case .stopped:
                end.isRetryable = true  // the process that unpacks was killed, for example: a retry continues with the same archive
                return .failed(end)
            case .cancelled, .noSpace, .taken, .disk, .unavailable: return .failed(end)
            }
        }
    }

    /// Distinguishes the archive from any other archive that has had the same part file, by inode, birth time, and time of the last write.
    private static func fingerprint(_ status: stat, _ identity: FileIdentity) -> [UInt8] {
        let stamp = status.stamp(boot: "")
        return Array("\(stamp.identity.inode) \(identity.born ?? 0) \(stamp.modified)".utf8)
    }

    /// Gives the unpacked folder its final name. An interrupted call is simply repeated.
    static func name(_ record: DownloadRecord, part: String, allowHidden: Bool) -> FolderNaming.Outcome {
        guard let name = record.folderName else { return .lost }
        return FolderNaming.name(
            folder(part), as: name, directory: record.directory, policy: record.options.ifExists, allowHidden: allowHidden)
    }

    /// Deletes everything that an extraction of the part file `part` has left.
    ///
    /// - Returns: whether nothing is left, even after a power cut.
    static func discard(directory: String, part: String, _ control: ExtractionControl = ExtractionControl()) -> Bool {
        let name = folder(part)
        guard Unpacking.forget(directory: directory, name: name),
            case .removed = Unpacking.discard(directory: directory, name: name, control: control),
            case .removed = FolderRemoval.remove(name, directory: directory, allowHidden: true, control: control)
        else { return false }
        return true
    }

    /// How `takeBack` ended.
    struct TakeBack: Sendable {
        /// The answer to the caller.
        var answer: Result<Void, Refusal>
        /// Whether `discard` may follow. If false, a folder that Todoku did not unpack has the provisional name.
        var mayDiscard = true
    }

    /// Renames the unpacked folder of a removed download to its provisional name, if it is still the folder with which the download ended.
    /// `discard` then deletes the folder.
    static func takeBack(_ folder: UnwantedFolder, directory: String, part: String) -> TakeBack {
        let path = folder.path
        func refuse(_ name: ErrorName, _ words: String) -> TakeBack { TakeBack(answer: .failure(Refusal(name, words))) }
        let end = FolderNaming.takeBack(
            String(path.lastPathComponent), as: Self.folder(part), directory: directory, identity: folder.identity)
        switch end {
        case .taken, .gone: return TakeBack(answer: .success(()))
        case .noFolder: return TakeBack(answer: Commit.deleteFinished(path, identity: folder.identity))
        case .other:
            return refuse(.notAllowed, "\(path) is now another folder, which was left alone; the download is off the list.")
        case .unproved:
            return refuse(
                .notAllowed,
                """
                \(path) was left alone: its file system records no birth times, so Todoku cannot tell whether it is still the unpacked \
                folder. Delete the folder by hand; the download is off the list.
                """)
        case .stranded(let now):
            var end = refuse(.notAllowed, "\(path) was another folder, which is at \(now) now; the download is off the list.")
            end.mayDiscard = false
            return end
        case .failed(let error):
            return refuse(
                .permissionDenied,
                error.refusal ?? "\(path) could not be deleted: cannot \(error.action): \(String(cString: strerror(error.code))).")
        }
    }
}
