/// When an asset is updated without a call.
public enum AssetUpdatePolicy: String, CaseIterable, Sendable {
    case manual
    /// Once in each session.
    case login
    /// Once in 24 hours.
    case daily
}

/// An update that is under way, or that the next `Update` continues.
public struct PendingUpdate: Equatable, Sendable {
    /// What comes next. Everything before it is on disk.
    public enum Step: String, CaseIterable, Sendable {
        case downloading, extracting, switching
    }

    public var manifest: AssetManifest
    /// The name of the new version's folder in the asset's directory.
    public var folder: String
    public var step: Step
    /// The download of the archive; nil: not started yet.
    public var download: DownloadNumber?
    /// The place of the download's URL in `AssetManifest.sources`.
    public var source = 0
    /// false: the update has failed, and waits for the next `Update`.
    public var isRunning = true
    /// Whether no call has asked for the update: it waits for an unmetered connection.
    public var isBackground = false
    /// What was unpacked into the folder; nil: unknown, or nothing yet.
    public var unpacked: FolderSize?

    public init(manifest: AssetManifest, folder: String, step: Step = .downloading) {
        (self.manifest, self.folder, self.step) = (manifest, folder, step)
    }

    /// The URL of the archive at the place `source`.
    public var url: String { manifest.source(at: source) }

    /// Takes another manifest of the same version. The download keeps its URL if the manifest still names it, and gets the first otherwise.
    package mutating func renew(by manifest: AssetManifest) {
        let former = url
        source = manifest.sources.firstIndex { $0.isSameBytes(as: former) } ?? 0
        self.manifest = manifest
    }
}

/// What is still to be deleted in an asset's directory.
public struct AssetRemoval: Hashable, Sendable {
    /// The name of a version's folder. Its archive, and what an interrupted extraction has left, are always deleted.
    public var folder: String
    /// Whether the folder itself stays, because it is a version in use.
    public var keepsFolder: Bool
    /// The download of the archive, which goes off the list with it.
    public var download: DownloadNumber?

    public init(folder: String, keepsFolder: Bool, download: DownloadNumber? = nil) {
        (self.folder, self.keepsFolder, self.download) = (folder, keepsFolder, download)
    }
}

/// The data of an asset that outlast a restart. It makes no decisions.
public struct AssetRecord: Equatable, Sendable {
    /// The name of the link to the installed version, in the asset's directory.
    public static let link = "current"
    /// The time between two checks without a call (`AssetUpdatePolicy.daily`).
    public static let checkInterval: Duration = .seconds(86_400)
    /// The least time between the beginnings of two checks without a call, such as a failed one and the next.
    public static let checkPause: Duration = .seconds(3600)

    public let key: AssetKey
    public var manifestURL: String
    /// The options of the asset's downloads and of its toast. `app` is the owner. `isNamedByPublicServer` is about the URLs of the manifest
    /// that was read last; nil: none of this URL has been read, or the row is of an earlier version.
    public var options: DownloadOptions
    /// The Ed25519 key that signs the manifest, 32 bytes; empty: the manifest is not signed.
    public var publicKey: [UInt8] = []
    public var update = AssetUpdatePolicy.manual
    /// The absolute path of the folder that holds the versions and the link.
    public var directory: String

    /// The version that the link leads to.
    public var installed: AssetVersion?
    /// The version before it, for a rollback.
    public var previous: AssetVersion?
    /// A version that no rollback leads to, and whose folder stays until the next switch: readers may have it open.
    public var left: AssetVersion?
    /// The version that a rollback has left. No update brings it back before the manifest names another.
    public var skipped: String?
    /// The version that the manifest named last, and when that was published.
    public var latest: String?
    public var latestTimestamp: WallTime?
    /// The server says that the manifest no longer exists.
    public var isObsolete = false
    /// When the manifest was read last.
    public var checkedAt: WallTime?
    /// The session in which the manifest was read last.
    public var checkedIn: String?
    /// When a check without a call was begun last.
    public var triedAt: WallTime?

    public var pending: PendingUpdate?
    /// A rollback is under way.
    public var isRollingBack = false
    /// The asset is being unregistered.
    public var isLeaving = false
    /// Whether the unregistration deletes the installed version.
    public var deletesData = false
    /// Why the last update failed; nil: it did not.
    public var failure: DownloadFailure?
    /// The last update was cancelled.
    public var isCancelled = false
    public var removals: [AssetRemoval] = []
    /// The owner is still to be called because a new version is ready (option `activate`).
    public var owesCall = false
    /// When the installed version became ready.
    public var readyAt: WallTime?
    /// The number in the name of the last version's folder.
    public var lastFolder: UInt64 = 0

    public init(key: AssetKey, manifestURL: String, options: DownloadOptions, directory: String) {
        (self.key, self.manifestURL, self.options, self.directory) = (key, manifestURL, options, directory)
    }

    /// The path of the link. It never changes.
    public var path: String { "\(directory)/\(Self.link)" }

    /// The names of all folders of versions that may be on the disk.
    public var folders: Set<String> {
        Set([installed?.folder, previous?.folder, left?.folder, pending?.folder].compactMap { $0 } + removals.map(\.folder))
    }

    /// Notes that `folder` is to be deleted; only what belongs to it, if `keepsFolder`.
    package mutating func addRemoval(_ folder: String, keepsFolder: Bool, download: DownloadNumber? = nil) {
        let earlier = removals.first { $0.folder.isSameBytes(as: folder) }
        removals.removeAll { $0.folder.isSameBytes(as: folder) }
        removals.append(AssetRemoval(folder: folder, keepsFolder: keepsFolder, download: download ?? earlier?.download))
    }

    /// Whether a text is the name of a folder that Todoku may have made. Nothing else is ever deleted.
    public static func isFolder(_ name: String) -> Bool {
        name.utf8.count <= 64 && name.utf8.starts(with: "version-".utf8) && name.utf8.dropFirst(8).allSatisfy { (0x30...0x39).contains($0) }
            && name.utf8.count > 8
    }

    /// Whether a link that no row knows may lead to a folder of ours: the number in its name is an instant in microseconds.
    public static func isFoundFolder(_ name: String) -> Bool { isFolder(name) && name.utf8.count >= 24 }

    /// The least number in the name of a folder, in microseconds: of 16 digits, as `isFoundFolder` wants.
    package static let leastInstant: UInt64 = 1_000_000_000_000_000

    /// The name of the archive of the version in `folder`, in the asset's directory.
    public static func archive(of folder: String) -> String { "\(folder).archive" }

    /// Whether an update brings the version of `manifest`: it is another than the installed one and not published before it.
    ///
    /// - Parameter forces: whether also the version counts that a rollback has left.
    public func isNewer(_ manifest: AssetManifest, forces: Bool) -> Bool {
        isNewer(manifest.version, published: manifest.timestamp, forces: forces)
    }

    /// Whether an update would bring the version that the manifest named last.
    public var isOutdated: Bool { latest.map { isNewer($0, published: latestTimestamp, forces: false) } ?? false }

    private func isNewer(_ version: String, published: WallTime?, forces: Bool) -> Bool {
        guard let installed else { return true }
        if version.isSameBytes(as: installed.version) { return false }
        if !forces, let skipped, skipped.isSameBytes(as: version) { return false }
        if let old = installed.timestamp, let published, published < old { return false }
        return true
    }
}
