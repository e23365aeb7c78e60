public import DownloadModel

/// The part that decides about assets: which manifest is fetched, what is downloaded, unpacked and switched, and what a restart continues.
///
/// It has no clock, socket or disk. `turn` takes what happened, and returns what the host must do. It is a client of the scheduler of
/// downloads, which it knows only by the numbers of downloads.
public final class AssetUpdater {
    /// How often an archive that vanished is downloaded again.
    static let mostRestarts = 2

    public let assets = AssetTable()
    private var index = AssetIndex()
    var actions: [Action] = []
    /// nil: not known yet.
    var network: NetworkCondition?
    /// The instant of the turn.
    private(set) var now = WallTime(microseconds: 0)
    var isEnding = false
    /// The session of the bus; empty: unknown.
    private(set) var session = ""
    /// Before the first turn with `begins`, nothing is checked.
    var hasBegun = false
    private var lastTicket: UInt64 = 0
    /// The calls for several assets that are not answered yet.
    var groups: [UInt64: AssetGroup] = [:]
    var lastGroup: UInt64 = 0

    /// - Parameter records: the stored assets.
    public init(_ records: [AssetRecord] = [], network: NetworkCondition? = nil) {
        self.network = network
        for record in records { assets.insert(AssetState(record)) }
    }

    public subscript(_ key: AssetKey) -> AssetState? { assets[key] }

    /// The registered assets of `app`, by name.
    public func keys(of app: String) -> [AssetKey] { assets.keys(of: app) }

    /// All rows, for a database that is written anew.
    public var rows: [StoreChange] { assets.values.map { .putAsset($0.record) } }

    /// Whether anything is under way by itself: the process must not exit. Downloads keep the process themselves, unless they are paused.
    public var hasWork: Bool { index.isAnyWorking }

    /// When to call `turn` with `time`; nil: at no known instant. The instant keeps no process running.
    public var nextWake: WallTime? { hasBegun && !isEnding ? index.nextDue() : nil }

    /// Whether a check without a call is due, and waits for a network.
    public var awaitsNetwork: Bool { hasBegun && !isEnding && !index.due.isEmpty }

    /// The downloads of all updates that are under way, or that have failed and are continued by the next.
    public var archiveNumbers: Set<DownloadNumber> { Set(index.archiveNumbers) }
    /// The asset whose update has this download.
    public func asset(ofArchive number: DownloadNumber) -> AssetKey? { index.key(ofArchive: number) }
    /// Another asset than `key` that has a version in a folder of this name; nil also if `key` itself has such a version.
    public func asset(ofFolder name: String, besides key: AssetKey) -> AssetKey? { index.key(ofFolder: name, besides: key) }

    /// How many instants of checks are kept, with outdated ones; for tests.
    package var instantsKept: Int { index.instantsKept }

    // MARK: The index

    /// Notes what the last event has changed.
    func reindex() {
        for key in assets.takeChanged() { reindex(key) }
    }

    /// Notes all assets anew: their instants are others.
    func reindexAll() {
        _ = assets.takeChanged()
        index.clockSet()
        for key in assets.keys { reindex(key) }
    }

    private func reindex(_ key: AssetKey) {
        let state = assets[key]
        index.update(key, state, dueAt: state.flatMap(dueAt))
    }

    func began(_ now: WallTime) { self.now = now }

    // MARK: Tools

    func newTicket() -> Ticket {
        lastTicket &+= 1
        return Ticket(lastTicket)
    }

    /// Changes the activity, and tells of it.
    func set(_ key: AssetKey, _ activity: AssetActivity) {
        assets[key]?.activity = activity
        actions.append(.tell(key))
    }

    func modify(_ key: AssetKey, _ body: (inout AssetState) -> Void) {
        guard var state = assets[key] else { return }
        body(&state)
        assets[key] = state
    }

    func change(_ key: AssetKey, _ body: (inout AssetRecord) -> Void) {
        guard var state = assets[key] else { return }
        body(&state.record)
        assets[key] = state
        actions.append(.save(state.record))
    }

    func answer(_ caller: AssetCaller, _ answer: Answer) {
        switch caller {
        case .call(let number): actions.append(.answer(number, answer))
        case .group(let number, let key): answerGroup(number, key, answer)
        }
    }

    func answer(_ callers: [AssetCaller], _ answer: Answer) { for caller in callers { self.answer(caller, answer) } }

    /// Takes the calls that wait for the end of an update.
    func takeUpdates(_ key: AssetKey) -> [AssetCaller] {
        defer { modify(key) { ($0.updates, $0.nextUpdates, $0.nextForces) = ([], [], nil) } }
        return assets[key].map { [$0.updates, $0.nextUpdates].flatMap { $0 } } ?? []
    }

    /// Forgets the calls whose callers have left. Whatever they have asked for continues.
    func callersLeft(_ calls: Set<CallNumber>) {
        for (number, group) in groups where calls.contains(group.call) { groups[number] = nil }
        for key in index.awaited {
            modify(key) { state in
                state.dropCallers { caller in
                    switch caller {
                    case .call(let call): calls.contains(call)
                    case .group(let number, _): groups[number] == nil
                    }
                }
            }
        }
    }

    // MARK: Registration

    func register(_ record: AssetRecord, found: String?, _ callers: [AssetCaller]) {
        let key = record.key
        guard let existing = assets[key]?.record else {
            // Two paths may lead to one directory. Folders of versions have unique names, so the directory is another asset's if its link
            // leads to a folder of that asset.
            if let other = assets.key(in: record.directory) ?? found.flatMap({ index.key(ofFolder: $0) }) {
                return answer(
                    callers, .refused(Refusal(.alreadyExists, "The folder \(record.directory) is that of the asset \(other).")))
            }
            var record = record
            // The app that registers an asset decides about its first check.
            record.checkedIn = session
            if let found { record.left = AssetVersion(version: "", folder: found) }
            assets.insert(AssetState(record))
            actions += [.save(record), .added(key)]
            return answer(callers, .registered(key))
        }
        guard !existing.isLeaving else { return answer(callers, .refused(Self.isLeaving(key))) }
        guard existing.directory.isSameBytes(as: record.directory) else {
            return answer(
                callers,
                .refused(
                    Refusal(.alreadyExists, "The asset \(key) is registered in \(existing.directory); unregister it before you move it.")))
        }
        let isOtherSource = record.manifestURL != existing.manifestURL || record.publicKey != existing.publicKey
        // A switch is one step. What it installs is by the manifest and the key that were registered when it began.
        if assets[key]?.activity == .switching, isOtherSource || assets[key]?.nextRegistration != nil {
            return modify(key) { state in
                state.nextRegistration = record
                state.registering += callers
            }
        }
        var changed = existing
        (changed.manifestURL, changed.options, changed.publicKey) = (record.manifestURL, record.options, record.publicKey)
        changed.update = record.update
        // What another manifest said says nothing about this one, which is due for a check.
        if record.manifestURL != existing.manifestURL {
            (changed.latest, changed.latestTimestamp, changed.isObsolete, changed.checkedAt) = (nil, nil, false, nil)
        } else {
            changed.options.isNamedByPublicServer = existing.options.isNamedByPublicServer
        }
        if changed != existing || !changed.options.isSameText(as: existing.options) {
            change(key) { $0 = changed }
            actions.append(.tell(key))
            // What is under way may be another server's, or not signed by the new key.
            if isOtherSource, existing.pending != nil {
                abandon(key, DownloadFailure(.cancelled, "The asset \(key) was registered with another manifest or key; update again."))
            }
            if case .checking(let ticket) = assets[key]?.activity {
                actions.append(.cancelFetch(key, ticket))
                beginCheck(key, isBackground: assets[key]?.fetchesInBackground ?? false)
            }
        }
        answer(callers, .registered(key))
    }

    static func isLeaving(_ key: AssetKey) -> Refusal { Refusal(.invalidState, "The asset \(key) is being unregistered.") }

    func unregister(_ key: AssetKey, deletesData: Bool, _ call: CallNumber) {
        modify(key) { state in
            state.departures.append(.call(call))
            state.stuck = []
        }
        let wasLeaving = assets[key]?.record.isLeaving ?? false
        if !wasLeaving { abandon(key, DownloadFailure(.cancelled, "The asset \(key) was unregistered.")) }
        change(key) { record in
            record.isLeaving = true
            record.deletesData = record.deletesData || deletesData
        }
        leave(key)
    }

    /// Goes on with an unregistration, once nothing else touches the asset's files.
    func leave(_ key: AssetKey) {
        guard let state = assets[key], state.record.isLeaving, state.activity == .none, state.busy.isEmpty else { return }
        guard state.record.pending == nil else {
            dropPending(key)
            tidy(key)
            return leave(key)
        }
        if state.record.deletesData {
            assets[key]?.activity = .deleting
            return actions.append(.deleteData(key, folders: state.record.folders.sorted()))
        }
        // Without a record nobody knows the other versions. If nothing is installed, the link may lead to the one that was found.
        let left = state.record.installed == nil ? nil : state.record.left
        let others = [state.record.previous, left].compactMap { $0?.folder }
        if !others.isEmpty {
            change(key) { record in
                (record.previous, record.left) = (nil, record.installed == nil ? record.left : nil)
                for folder in others { record.addRemoval(folder, keepsFolder: false) }
            }
        }
        tidy(key)
        guard let state = assets[key], state.busy.isEmpty else { return }
        guard !state.stuck.isEmpty else { return forget(key) }
        stay(
            key,
            DownloadFailure(
                .writeFailed, "Old files in \(state.record.directory) cannot be deleted, so the asset \(key) stays registered; try again."))
    }

    func dataDeleted(_ key: AssetKey, _ failure: DownloadFailure?, isUntouched: Bool) {
        guard assets[key]?.activity == .deleting else { return }
        assets[key]?.activity = .none
        guard let failure else { return forget(key) }
        if isUntouched { return stay(key, failure) }
        // Some of it may be gone. What is not is deleted by the next update, or by the next unregistration.
        change(key) { record in
            for folder in record.folders { record.addRemoval(folder, keepsFolder: false) }
            (record.installed, record.previous, record.left, record.skipped) = (nil, nil, nil, nil)
        }
        modify(key) { $0.stuck = Set($0.record.removals) }
        stay(key, failure)
    }

    /// The unregistration has failed.
    private func stay(_ key: AssetKey, _ failure: DownloadFailure) {
        let callers = assets[key]?.departures ?? []
        assets[key]?.departures = []
        change(key) { ($0.isLeaving, $0.deletesData, $0.failure) = (false, false, failure) }
        actions.append(.tell(key))
        answer(callers, .failed(failure))
    }

    private func forget(_ key: AssetKey) {
        guard let state = assets.remove(key) else { return }
        actions += [.delete(key), .gone(key)]
        answer(state.departures, .done)
        answer(state.registering, .refused(Self.isLeaving(key)))
    }

    // MARK: Startup

    func begin(isLogin: Bool, session: String) {
        (hasBegun, self.session) = (true, session)
        for key in assets.keys {
            guard let record = assets[key]?.record else { continue }
            if record.update == .login { beginSession(key, isLogin: isLogin) }
            tidy(key)
            // A switch that was interrupted is finished first: the link may lead to either folder.
            if record.isRollingBack, let previous = record.previous {
                switchLink(key, to: previous.folder, .rollingBack)
            } else if record.isLeaving, record.pending?.step != .switching {
                leave(key)
            } else if let pending = record.pending, pending.isRunning || record.isLeaving {
                modify(key) { ($0.isBackground, $0.isResumed) = (pending.isBackground, true) }
                proceed(key)
            }
            guard record.owesCall else { continue }
            // An app that is gone for good is not called at each start.
            if let time = record.readyAt, time <= now, now - time >= Limits.remindedAge {
                change(key) { $0.owesCall = false }
            } else {
                callOwner(key)
            }
        }
    }

    /// A check that found no network in its session is done in a later process of the same session, or at the next login.
    private func beginSession(_ key: AssetKey, isLogin: Bool) {
        guard let record = assets[key]?.record else { return }
        // The bus of a user who stays logged in elsewhere outlasts a login.
        if isLogin, record.checkedIn != nil { change(key) { $0.checkedIn = nil } }
        assets[key]?.owesCheck = isLogin || !session.isEmpty && record.checkedIn?.isSameBytes(as: session) != true
    }

    // MARK: Checks without a call

    /// When the next check without a call is due; nil: at no known instant.
    private func dueAt(_ state: AssetState) -> WallTime? {
        let record = state.record
        guard state.activity == .none, !record.isLeaving else { return nil }
        // An instant in the future: the clock was set back, and the instant says nothing.
        func after(_ time: WallTime?, _ pause: Duration) -> WallTime {
            time.flatMap { $0 > now ? nil : $0 + pause } ?? WallTime(microseconds: 0)
        }
        let earliest = after(record.triedAt, AssetRecord.checkPause)
        switch record.update {
        case .manual: return nil
        case .login: return state.owesCheck ? earliest : nil
        case .daily: return max(earliest, after(record.checkedAt, AssetRecord.checkInterval))
        }
    }

    /// Checks without a call need a connection that costs nothing.
    private var mayCheck: Bool { hasBegun && !isEnding && network.map { $0.reach == .online && !$0.isMetered } ?? false }

    func beginDueChecks(now: WallTime) {
        index.collectDue(now: now)
        guard mayCheck else { return }
        for key in index.due.sorted() {
            change(key) { $0.triedAt = now }
            modify(key) { ($0.isBackground, $0.wantsUpdate) = (true, true) }
            beginCheck(key, isBackground: true)
        }
    }
}

/// A call for all assets of an application.
struct AssetGroup {
    let call: AssetUpdater.CallNumber
    var waiting: [AssetKey]
    var results: [AssetUpdater.AppUpdate] = []
    var failures: [(key: AssetKey, answer: AssetUpdater.Answer)] = []
    let count: Int
}
