public import DownloadModel

/// What an asset is doing, or how its last update ended. Raw values are those of the D-Bus contract.
public enum AssetStage: String, CaseIterable, Sendable {
    /// Nothing is installed.
    case idle
    /// The manifest is being fetched.
    case checking
    case downloading
    case verifying
    case extracting
    /// The version `InstalledVersion` is ready to be used.
    case ready
    /// The last update failed. A version that was installed before stays.
    case failed
    case cancelled
}

/// How current an asset is. Raw values are those of the D-Bus contract.
public enum AssetStatus: String, CaseIterable, Sendable {
    case notInstalled = "not-installed"
    case updateAvailable = "update-available"
    /// An update is under way.
    case downloading
    /// The download of an update is paused.
    case paused
    /// An update waits for a connection that is not metered.
    case waitingForUnmetered = "waiting-unmetered"
    case upToDate = "up-to-date"
    /// The server says that the manifest no longer exists. The installed version stays.
    case obsolete
}

/// The present activity of an asset. It is not saved: after a restart, the record says what to continue.
public enum AssetActivity: Equatable, Sendable {
    case none
    case checking(Ticket)
    case checkingSpace(Ticket)
    /// The download of the archive is being added.
    case starting(Ticket)
    case downloading(DownloadNumber)
    case verifying(DownloadNumber)
    case extracting
    case switching
    case rollingBack
    /// The installed version is being deleted.
    case deleting

    /// Tells the answer to one question from a late one to an earlier question.
    public struct Ticket: Hashable, Sendable {
        let value: UInt64
        package init(_ value: UInt64) { self.value = value }
    }
}

/// An asset, and what it is doing.
public struct AssetState: Sendable {
    public internal(set) var record: AssetRecord
    public internal(set) var activity = AssetActivity.none
    /// The calls that wait for the manifest, and those that wait for the end of the update.
    var checks: [AssetCaller] = []
    var updates: [AssetCaller] = []
    /// The calls for an update that came while an update of an earlier process was in progress. Its manifest may be old, so these calls get
    /// the answer of the next update.
    var nextUpdates: [AssetCaller] = []
    /// `forces` of the next update; nil: no call has asked for a next update. The callers may have left since.
    var nextForces: Bool?
    /// Whether the update that is under way is one of an earlier process.
    var isResumed = false
    var rollbacks: [AssetCaller] = []
    var departures: [AssetCaller] = []
    /// Whether the manifest is fetched for an update.
    var wantsUpdate = false
    /// Whether the update also brings the version that a rollback has left.
    var forces = false
    /// Whether no call has asked for what is under way.
    var isBackground = false
    /// The folders that the disk works on. Nothing else may touch them meanwhile.
    var busy: Set<String> = []
    /// The removals that failed. The next update or the next start tries again.
    var stuck: Set<AssetRemoval> = []
    /// A check is due because somebody has logged in since the last one.
    var owesCheck = false
    /// Whether the manifest is fetched without a call, and so waits for an unmetered connection.
    public internal(set) var fetchesInBackground = false
    /// The last registration that came during a switch, which ends first, and the calls that wait for it. One of these registrations has
    /// another manifest or key.
    var nextRegistration: AssetRecord?
    var registering: [AssetCaller] = []
    /// The place of the next download's URL in `AssetManifest.sources`.
    var source = 0
    /// The places of those that have failed in this update.
    var failedSources: Set<Int> = []
    /// Whether the download that is under way was begun by an earlier update, maybe with other options.
    var isOldDownload = false
    /// How often the archive was downloaded again because it had vanished.
    var restarts = 0
    /// The owner is being called.
    var isCallingOwner = false
    /// A version became ready since the call under way began, which may be about the version before.
    var owesAnotherCall = false

    init(_ record: AssetRecord) { self.record = record }

    /// Whether the asset itself has work in progress. A download keeps the process running by itself, unless it is paused.
    var isWorking: Bool {
        if !busy.isEmpty || isCallingOwner { return true }
        return switch activity {
        case .none, .checking, .downloading, .verifying: false
        case .checkingSpace, .starting, .extracting, .switching, .rollingBack, .deleting: true
        }
    }

    /// Whether a call waits for an answer about this asset.
    package var hasCallers: Bool { ![checks, updates, nextUpdates, rollbacks, departures, registering].allSatisfy(\.isEmpty) }

    mutating func dropCallers(where hasLeft: (AssetCaller) -> Bool) {
        checks.removeAll(where: hasLeft)
        updates.removeAll(where: hasLeft)
        nextUpdates.removeAll(where: hasLeft)
        rollbacks.removeAll(where: hasLeft)
        departures.removeAll(where: hasLeft)
        registering.removeAll(where: hasLeft)
    }

    public var stage: AssetStage {
        switch activity {
        case .checking: .checking
        case .checkingSpace, .starting, .downloading: .downloading
        case .verifying: .verifying
        case .extracting, .switching: .extracting
        case .none, .rollingBack, .deleting: restingStage
        }
    }

    private var restingStage: AssetStage {
        if record.failure != nil { return .failed }
        if record.isCancelled { return .cancelled }
        return record.installed == nil ? .idle : .ready
    }

    /// - Parameter download: the state of the archive's download, if there is one.
    public func status(download: DownloadState?) -> AssetStatus {
        switch activity {
        case .checkingSpace, .starting, .verifying, .extracting, .switching: return .downloading
        case .downloading:
            switch download {
            case .paused, .waiting(.pausedAll, _): return .paused
            case .waiting(.metered, _): return .waitingForUnmetered
            default: return .downloading
            }
        case .none, .checking, .rollingBack, .deleting: break
        }
        if record.isObsolete { return .obsolete }
        if record.installed == nil { return .notInstalled }
        return record.isOutdated ? .updateAvailable : .upToDate
    }
}

/// A call that waits for an answer.
enum AssetCaller: Hashable, Sendable {
    case call(AssetUpdater.CallNumber)
    /// One asset of a call for several.
    case group(UInt64, AssetKey)
}
