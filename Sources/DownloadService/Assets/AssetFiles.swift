internal import Assets
internal import DownloadModel
internal import EventLoop
internal import Extraction
internal import Glibc
internal import PartFiles
internal import Transport

/// The disk operations for an asset. Every call blocks: use the pool. The directory of an asset may be hidden, because the default
/// directory is below $XDG_DATA_HOME.
enum AssetFiles {
    /// Whether an asset may lie in `directory`.
    ///
    /// - Parameter isDefault: the service has chosen the folder: it may be hidden, and is made if it counts as deleted.
    /// - Returns: the path without superfluous slashes and dots, the folder that a link from an earlier registration leads to, and the
    ///   identity of the directory.
    static func prepare(
        _ directory: String, isDefault: Bool, allowHidden: Bool
    ) -> Result<(directory: String, found: String?, identity: FileIdentity?), Refusal> {
        let makes = countsAsDeleted(directory, isDefault: isDefault)
        return Destination.check(directory, allowHidden: allowHidden || isDefault, create: makes).flatMap { directory in
            switch VersionLink.current(AssetRecord.link, directory: directory, allowHidden: true) {
            case .success(let found?) where !AssetRecord.isFoundFolder(found):
                return .failure(
                    Refusal(
                        .alreadyExists,
                        """
                        directory: \(directory)/\(AssetRecord.link) leads to \(shown(found)), which is no version of an asset; choose another \
                        folder.
                        """))
            case .success(let found): return .success((directory, found, identity(of: directory)))
            case .failure(let error): return .failure(Refusal(.permissionDenied, "directory: \(error.failure(folder: directory).message)"))
            }
        }
    }

    /// The bytes by which the room in `directory` is too small. 0 also if the folder is missing, because then the download waits for it.
    ///
    /// - Parameter files: the names of files that make room, because they are being deleted. They need not exist.
    static func shortage(in directory: String, needed: ByteCount, deleting files: Set<String>, _ reserve: DiskReserve) -> ByteCount {
        // Look at the files first: if one is deleted meanwhile, its room must not be missing.
        var freed: ByteCount = 0
        if !files.isEmpty, let folder = try? OpenFolder.open(directory, allowHidden: true) {
            for file in files { if let status = folder.status(file) { freed +|= ByteCount(clamping: status.st_blocks) *| 512 } }
        }
        guard let room = Destination.room(in: directory, allowHidden: true, reserve: reserve) else { return 0 }
        return needed -| room -| freed
    }

    static func extract(
        _ folder: String, in directory: String, isDefault: Bool, _ manifest: AssetManifest, _ reserve: DiskReserve,
        _ control: ExtractionControl
    ) -> AssetUpdater.ExtractionEnd {
        let parent: OpenFolder
        let archive: Int32
        let isLost: Bool
        do throws(DiskError) {
            parent = try OpenFolder.open(directory, allowHidden: true)
            archive = openUninterrupted(
                parent.descriptor, AssetRecord.archive(of: folder), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
            isLost = archive < 0 && errno == ENOENT
            guard archive >= 0 || isLost else { throw DiskError("open the archive") }
        } catch {
            // A deleted directory had the archive in it. On a disk that is away, the archive is still there: the next update unpacks it.
            let isDeleted = error.code == ENOENT && countsAsDeleted(directory, isDefault: isDefault)
            return isDeleted ? .archiveLost : .failed(error.failure(folder: directory))
        }
        if isLost { return .archiveLost }
        defer { close(archive) }
        var limits = ExtractionLimits()
        limits.unpacked = manifest.unpackedSize
        let request = ExtractionRequest(
            archive: archive, fingerprint: manifest.sha256.digest, directory: directory, name: folder, limits: limits,
            expectedSize: manifest.unpackedSize, reserve: reserve, allowHidden: true, decode: iconvDecoder)
        switch Unpacking.run(request, control) {
        case .success:
            do throws(DiskError) {
                guard let size = try FolderCount.count(folder, directory: directory, allowHidden: true) else {
                    throw DiskError("find the version \(folder)", ENOENT)
                }
                return .whole(size)
            } catch {
                // The next run finds the whole folder again.
                return .failed(error.failure(folder: directory))
            }
        case .failure(.cancelled): return .cancelled
        case .failure(let failure):
            let end = failure.diskFailure(folder: directory) ?? DownloadFailure(.extraction, failure.message(folder: directory))
            func isChanged() -> Bool { Self.isChanged(archive, of: folder, in: parent, manifest) }
            switch failure {
            case .unsupported, .damaged, .refused, .excessive:
                // Files of a changed archive must not count as those of the next one.
                guard isChanged(), case .removed = Unpacking.discard(directory: directory, name: folder) else { return .unusable(end) }
                return .archiveLost
            // The version was unpacked whole before the archive changed. Its journal fits the archive that is downloaded again.
            case .taken where isChanged(): return .archiveLost
            default: return .failed(end)
            }
        }
    }

    /// Whether another program has changed the archive since its download verified it. Deletes a changed archive.
    private static func isChanged(_ archive: Int32, of folder: String, in parent: OpenFolder, _ manifest: AssetManifest) -> Bool {
        guard let digest = try? Digest.compute(.sha256, of: archive), digest != manifest.sha256.digest else { return false }
        // The next download needs its room. If the file stays, the download replaces it.
        _ = try? parent.removeOwn(AssetRecord.archive(of: folder))
        return true
    }

    /// How a switch of the link ended.
    enum SwitchEnd: Sendable {
        case switched
        /// The version is missing or not whole. The link is unchanged.
        case lost
        case failed(DownloadFailure)
    }

    /// Makes the link lead to the version in `folder`, unless files of the version are missing. After a failure, the link leads to its
    /// former target, or is gone if it was new, as far as the disk allows. A later cancellation then deletes the version.
    ///
    /// If the link leads to the version already, its files are not counted, because its app may be using the version.
    ///
    /// - Parameters:
    ///   - size: the size of the unpacked files; nil: unknown.
    ///   - isRollback: no download can replace the version. So the version may have more than the unpacked files, such as a file that its
    ///     app has written there. A version of unknown size is accepted as it is.
    ///   - isDefault: as for `presence`.
    static func switchLink(
        to folder: String, of size: FolderSize?, isRollback: Bool, in directory: String, isDefault: Bool
    ) -> SwitchEnd {
        var before: String?
        var isSwitching = false
        do throws(DiskError) {
            before = try VersionLink.current(AssetRecord.link, directory: directory, allowHidden: true).get()
            if before?.isSameBytes(as: folder) != true, try !isWhole(folder, of: size, isRollback: isRollback, in: directory) {
                return .lost
            }
            isSwitching = true
            try VersionLink.point(AssetRecord.link, to: folder, directory: directory, allowHidden: true).get()
            return .switched
        } catch {
            if presence(of: folder, in: directory, isDefault: isDefault) == .lost { return .lost }
            if let before {
                _ = VersionLink.point(AssetRecord.link, to: before, directory: directory, allowHidden: true)
            } else if isSwitching {
                _ = VersionLink.remove(AssetRecord.link, to: folder, directory: directory, allowHidden: true)
            }
            return .failed(error.failure(folder: directory))
        }
    }

    /// Whether the folder of a version still holds all files that were unpacked into it.
    private static func isWhole(
        _ folder: String, of size: FolderSize?, isRollback: Bool, in directory: String
    ) throws(DiskError) -> Bool {
        guard let size else { return isRollback }
        let found = try FolderCount.count(folder, directory: directory, allowHidden: true) { found in
            isRollback ? found.covers(size) : !size.covers(found)
        }
        return found.map { isRollback ? $0.covers(size) : $0 == size } ?? false
    }

    /// Deletes the archive of a version, the leftovers of its extraction, and its folder unless `removal` keeps the folder. Never deletes a
    /// folder that the link leads to.
    ///
    /// - Returns: whether all of these files are deleted, even after a power cut.
    static func remove(_ removal: AssetRemoval, in directory: String) -> Bool {
        guard AssetRecord.isFolder(removal.folder) else { return true }
        let parent: OpenFolder
        do throws(DiskError) { parent = try OpenFolder.open(directory, allowHidden: true) } catch { return error.code == ENOENT }
        do throws(DiskError) {
            try parent.removeOwn(AssetRecord.archive(of: removal.folder))
            guard parent.sync() else { return false }
        } catch { return false }
        guard case .removed = Unpacking.discard(directory: directory, name: removal.folder) else { return false }
        if removal.keepsFolder { return true }
        guard case .success(let current) = VersionLink.current(AssetRecord.link, directory: directory, allowHidden: true),
            current != removal.folder,
            case .removed = FolderRemoval.remove(
                removal.folder, directory: directory, allowHidden: true, control: ExtractionControl())
        else { return false }
        return true
    }

    /// Deletes the link and these versions. Then, if the directory is the default directory and empty, deletes it, and the folder above
    /// likewise. All deletions are on disk when the call returns.
    ///
    /// - Returns: the failure if a file or folder is left, and whether nothing was deleted.
    static func deleteData(
        _ folders: [String], in directory: String, isDefault: Bool
    ) -> (failure: DownloadFailure?, isUntouched: Bool) {
        do throws(DiskError) {
            let parent = try OpenFolder.open(directory, allowHidden: true)
            // Delete the link first, so that nothing leads to the folders any more.
            if case .success(let target?) = VersionLink.current(AssetRecord.link, directory: directory, allowHidden: true),
                folders.contains(target)
            {
                guard unlinkat(parent.descriptor, AssetRecord.link, 0) == 0 || errno == ENOENT else {
                    throw DiskError("delete the link \(AssetRecord.link)")
                }
                guard parent.sync() else { throw DiskError("save the folder") }
            }
        } catch {
            // The directory may have been deleted by a process that died before it flushed the deletion.
            guard error.code == ENOENT, folders.isEmpty || countsAsDeleted(directory, isDefault: isDefault) else {
                return (Self.untouched(directory, error), true)
            }
            return (isDefault ? removeEmpty(directory) : nil, false)
        }
        for folder in folders where !remove(AssetRemoval(folder: folder, keepsFolder: false), in: directory) {
            return (DownloadFailure(.writeFailed, "The folder \(directory)/\(folder) cannot be deleted."), false)
        }
        return (isDefault ? removeEmpty(directory) : nil, false)
    }

    /// Deletes a default directory and the folder of its app, and flushes the deletions. A folder that is not empty stays, and so does what
    /// the user has put in the place of a folder: a link to another folder (ENOTDIR), or a mount (EBUSY).
    private static func removeEmpty(_ directory: String) -> DownloadFailure? {
        var folder = directory
        for _ in 0..<2 {
            let above = folderAbove(folder)
            if rmdir(folder) != 0, errno != ENOENT {
                if [ENOTEMPTY, EEXIST, ENOTDIR, EBUSY].contains(errno) { return nil }
                return DiskError("delete a folder").failure(folder: folder)
            }
            do throws(DiskError) {
                guard try OpenFolder.open(above, allowHidden: true).sync() else { throw DiskError("save the folder") }
            } catch {
                if error.code != ENOENT { return error.failure(folder: above) }
            }
            folder = above
        }
        return nil
    }

    /// Whether a directory counts as deleted if it is missing, so that it may be made again. Any other missing directory may be on a disk
    /// that is away: one that the service has not chosen, and one behind a link that leads nowhere.
    static func countsAsDeleted(_ directory: String, isDefault: Bool) -> Bool { isDefault && !isBehindDeadLink(directory) }

    /// Makes a default directory that somebody has deleted.
    static func makeAgain(_ directory: String, isDefault: Bool) {
        if countsAsDeleted(directory, isDefault: isDefault) { _ = Destination.check(directory, allowHidden: true, create: true) }
    }

    /// Whether a default directory that is missing, or the folder of its app, is a link that leads nowhere.
    private static func isBehindDeadLink(_ directory: String) -> Bool {
        [directory, folderAbove(directory)].contains { path in
            var status = stat()
            return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK && isMissing(path)
        }
    }

    private static func folderAbove(_ folder: String) -> String { String(folder.dropLast(folder.lastPathComponent.utf8.count +| 1)) }

    private static func untouched(_ directory: String, _ error: DiskError) -> DownloadFailure {
        guard error.code == ENOENT else { return error.failure(folder: directory) }
        return DownloadFailure(
            .writeFailed,
            """
            The folder \(directory) is not there, so nothing was deleted. If it is on a disk that is away, unregister the asset again when \
            the disk is back, or without deleting its data.
            """)
    }

    /// Reads and checks a manifest that was fetched to `path`.
    ///
    /// - Parameter signature: the path of its signature; nil: none is needed.
    static func manifest(
        at path: String, from base: DownloadURL, signature: String?, publicKey: [UInt8]
    ) -> Result<AssetManifest, DownloadFailure> {
        guard let bytes = read(path, atMost: ManifestText.mostBytes) else {
            return .failure(DownloadFailure(.manifest, "The manifest at \(base) cannot be read back from \(path)."))
        }
        if !publicKey.isEmpty {
            guard let signature, let signed = read(signature, atMost: PartFiles.Signature.length) else {
                return .failure(DownloadFailure(.signature, "The signature of the manifest at \(base) has not 64 bytes."))
            }
            switch PartFiles.Signature.verify(signed, of: bytes, by: publicKey) {
            case .valid: break
            case .invalid:
                return .failure(DownloadFailure(.signature, "The manifest at \(base) is not signed by the key of this asset."))
            case .unknown(let reason):
                return .failure(DownloadFailure(.signature, "The signature of the manifest at \(base) cannot be verified: \(reason)."))
            }
        }
        do throws(DownloadFailure) { return .success(try ManifestText.parse(bytes, from: base)) } catch { return .failure(error) }
    }

    /// The bytes of a file; nil if it cannot be read or is larger.
    private static func read(_ path: String, atMost limit: Int) -> [UInt8]? {
        let file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        return try? readToEnd(file, atMost: limit)
    }
}
