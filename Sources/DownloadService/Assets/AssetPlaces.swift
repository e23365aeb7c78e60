internal import Assets
internal import DownloadModel
internal import EventLoop
internal import Extraction
internal import Glibc
internal import Logging
internal import PartFiles

/// The folders that assets have used, by identity. Symbolic links, `..` and bind mounts give one folder several paths, and two assets that
/// switch one link would lead each other's apps to the wrong version.
///
/// Device numbers may differ after a restart of the machine, so the folders are not saved.
struct AssetPlaces {
    /// A folder has one place, whatever its path and its mount. A newer folder may have the place of a deleted folder.
    private struct Place: Hashable {
        let device: UInt64
        let inode: UInt64
    }

    private var owners: [Place: (key: AssetKey, folder: FileIdentity)] = [:]
    private var places: [AssetKey: Place] = [:]

    /// Notes that `key` uses `folder`.
    ///
    /// - Returns: the other asset that uses `folder` already; nil: none. A folder with another birth time is another folder.
    mutating func claim(_ folder: FileIdentity, for key: AssetKey) -> AssetKey? {
        let place = Place(device: folder.device, inode: folder.inode)
        if let owner = owners[place], owner.key != key, owner.folder.isSameFile(as: folder) { return owner.key }
        release(key)
        if let former = owners[place]?.key { places[former] = nil }
        (owners[place], places[key]) = ((key, folder), place)
        return nil
    }

    mutating func release(_ key: AssetKey) {
        if let place = places.removeValue(forKey: key) { owners[place] = nil }
    }
}

extension AssetFiles {
    /// How much is left of an installed version.
    enum Presence: Sendable {
        case whole
        /// The version is there, but the link does not lead to it.
        case unlinked
        case lost
        /// The disk does not say, or is away.
        case unknown
    }

    /// Checks whether the version in `folder` exists, and whether the link leads to it.
    ///
    /// - Parameter isDefault: whether the service has chosen the directory. If it is missing then, somebody may have deleted it.
    static func presence(of folder: String, in directory: String, isDefault: Bool) -> Presence {
        let parent: OpenFolder
        do throws(DiskError) { parent = try OpenFolder.open(directory, allowHidden: true) } catch {
            return error.code == ENOENT && countsAsDeleted(directory, isDefault: isDefault) ? .lost : .unknown
        }
        do throws(DiskError) {
            guard let status = try parent.look(folder), status.st_mode & S_IFMT == S_IFDIR else { return .lost }
        } catch { return .unknown }
        return switch VersionLink.current(AssetRecord.link, directory: directory, allowHidden: true) {
        case .success(let target): target?.isSameBytes(as: folder) == true ? .whole : .unlinked
        case .failure: .unknown
        }
    }

    /// What tells which asset uses a folder.
    struct Use: Sendable {
        /// nil: the folder is missing, or the disk does not say.
        let identity: FileIdentity?
        /// The version that the link leads to; nil: there is no link, or the disk does not say.
        let target: String?
    }

    static func use(of directory: String) -> Use {
        let link = VersionLink.current(AssetRecord.link, directory: directory, allowHidden: true)
        return Use(identity: identity(of: directory), target: try? link.get())
    }

    /// The identity of the folder; nil: the folder is missing, or the disk does not say.
    static func identity(of directory: String) -> FileIdentity? {
        guard let folder = try? OpenFolder.open(directory, allowHidden: true) else { return nil }
        return try? fileIdentity(of: folder.descriptor, boot: "")
    }

    /// Whether a directory is certainly missing: it was deleted, or its disk is away.
    static func isMissing(_ directory: String) -> Bool {
        do throws(DiskError) { _ = try OpenFolder.open(directory, allowHidden: true) } catch { return error.code == ENOENT }
        return false
    }
}

extension AssetCentre {
    /// Whether the directory of an asset is the one that the service has chosen.
    func isDefaultDirectory(of record: AssetRecord) -> Bool { record.directory.isSameBytes(as: folders.directory(of: record.key)) }

    /// Reports an installed version that somebody has deleted, and then runs `then`.
    func lookForInstalled(_ key: AssetKey, then: @escaping @BusActor @Sendable () -> Void) {
        guard let record = updater[key]?.record, let folder = record.installed?.folder else { return then() }
        let (directory, isDefault) = (record.directory, isDefaultDirectory(of: record))
        DiskPool.shared.perform(at: .path(directory), within: DiskPatience.folder) {
            AssetFiles.presence(of: folder, in: directory, isDefault: isDefault)
        } then: { [self] presence in
            switch presence {
            case .lost?, .unlinked?:
                log.notice("the installed version of an asset was deleted", metadata: ["asset": "\(key)", "folder": "\(folder)"])
                decide(.versionLost(key, folder: folder, isFolderThere: presence == .unlinked))
            case .whole?, .unknown?, nil: break
            }
            then()
        }
    }

    /// The failure of an asset whose folder another asset uses by another path; nil: no other asset uses the folder.
    func claim(_ use: AssetFiles.Use?, of directory: String, for key: AssetKey) -> DownloadFailure? {
        // The asset that has switched the link may not have used the folder in this process. Each version has a name of its own.
        let owner = use?.target.flatMap { updater.asset(ofFolder: $0, besides: key) }
        guard let other = owner ?? use?.identity.flatMap({ places.claim($0, for: key) }) else { return nil }
        return DownloadFailure(.alreadyExists, "The folder \(directory) is that of the asset \(other), by another path.")
    }

    /// Runs `work`, unless another asset uses the folder of this one.
    func claimFolder(
        of key: AssetKey, then work: @escaping @BusActor @Sendable () -> Void,
        refused: @escaping @BusActor @Sendable (DownloadFailure) -> Void
    ) {
        guard let directory = updater[key]?.record.directory else { return }
        DiskPool.shared.perform(at: .path(directory)) {
            AssetFiles.use(of: directory)
        } then: { [self] use in
            if let failure = claim(use, of: directory, for: key) { refused(failure) } else { work() }
        }
    }
}
