public import DownloadModel

/// The part that decides about assets: which manifest is fetched, what is downloaded, unpacked and switched, and what a restart continues.
///
/// It has no clock, socket or disk. `turn` takes what happened, and returns what the host must do. It is a client of the scheduler of
/// downloads, which it knows only by the numbers of downloads.
public final class AssetUpdater {
    /// How often a check without a call is tried again after a failure.
    static let pause: Duration = .seconds(3600)
    static let day: Duration = .seconds(24 * 3600)
    /// How often an archive that vanished is downloaded again.
    static let mostRestarts = 2

    public internal(set) var assets: [AssetKey: AssetState] = [:]
    var actions: [Action] = []
    /// nil: not known yet.
    var network: NetworkCondition?
    var isEnding = false
    /// Before the first turn with `begins`, nothing is checked.
    var hasBegun = false
    private var lastTicket: UInt64 = 0
    /// The calls for several assets that are not answered yet.
    var groups: [UInt64: AssetGroup] = [:]
    var lastGroup: UInt64 = 0

    /// - Parameter records: the stored assets.
    public init(_ records: [AssetRecord] = [], network: NetworkCondition? = nil) {
        self.network = network
        for record in records { assets[record.key] = AssetState(record) }
    }

    public subscript(_ key: AssetKey) -> AssetState? { assets[key] }

    /// The registered assets of `app`, by name.
    public func keys(of app: String) -> [AssetKey] { assets.keys.filter { $0.app.isSameBytes(as: app) }.sorted() }

    /// Whether anything is under way by itself: the process must not exit. Downloads keep the process themselves, unless they are paused.
    public var hasWork: Bool {
        assets.values.contains { state in
            if !state.busy.isEmpty || state.isCallingOwner { return true }
            return switch state.activity {
            case .none, .checking, .downloading, .verifying: false
            case .checkingSpace, .starting, .extracting, .switching, .rollingBack, .deleting: true
            }
        }
    }

    /// When to call `turn` with `time`; nil: at no known instant. The instant keeps no process running.
    public var nextWake: WallTime? { mayCheck ? assets.values.compactMap(dueAt).min() : nil }

    /// Whether a check without a call is due, and waits for a network.
    public func awaitsNetwork(at now: WallTime) -> Bool { hasBegun && !isEnding && assets.values.contains { isDue($0, now: now) } }

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
        defer { modify(key) { ($0.updates, $0.nextUpdates) = ([], []) } }
        return assets[key].map { [$0.updates, $0.nextUpdates].flatMap { $0 } } ?? []
    }

    // MARK: Registration

    func register(_ record: AssetRecord, found: String?, _ call: CallNumber) {
        let key = record.key
        guard let existing = assets[key]?.record else {
            // Two paths may lead to one folder. The names of versions are unique, so a version that is another asset's tells.
            let isOthers = { (other: AssetState) in
                other.record.directory.isSameBytes(as: record.directory) || found.map { other.record.folders.contains($0) } ?? false
            }
            if let other = assets.values.first(where: isOthers) {
                return answer(
                    .call(call),
                    .refused(Refusal(.alreadyExists, "The folder \(record.directory) is that of the asset \(other.record.key).")))
            }
            var record = record
            if let found { record.left = AssetVersion(version: "", folder: found) }
            assets[key] = AssetState(record)
            actions += [.save(record), .added(key)]
            return answer(.call(call), .registered(key))
        }
        guard !existing.isLeaving else { return answer(.call(call), .refused(Self.isLeaving(key))) }
        guard existing.directory.isSameBytes(as: record.directory) else {
            return answer(
                .call(call),
                .refused(
                    Refusal(.alreadyExists, "The asset \(key) is registered in \(existing.directory); unregister it before you move it.")))
        }
        var changed = existing
        (changed.manifestURL, changed.options, changed.publicKey) = (record.manifestURL, record.options, record.publicKey)
        changed.update = record.update
        if changed != existing || !changed.options.isSameText(as: existing.options) {
            change(key) { $0 = changed }
            actions.append(.tell(key))
            let isOtherSource = changed.manifestURL != existing.manifestURL || changed.publicKey != existing.publicKey
            // What is under way may be another server's, or not signed by the new key.
            if isOtherSource, existing.pending != nil {
                abandon(key, DownloadFailure(.cancelled, "The asset \(key) was registered with another manifest or key; update again."))
            }
            if case .checking(let ticket) = assets[key]?.activity {
                actions.append(.cancelFetch(key, ticket))
                beginCheck(key)
            }
        }
        answer(.call(call), .registered(key))
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

    func dataDeleted(_ key: AssetKey, _ failure: DownloadFailure?) {
        guard assets[key]?.activity == .deleting else { return }
        assets[key]?.activity = .none
        guard let failure else { return forget(key) }
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
        guard let state = assets.removeValue(forKey: key) else { return }
        actions += [.delete(key), .gone(key)]
        answer(state.departures, .done)
    }

    // MARK: Startup

    func begin(isLogin: Bool) {
        hasBegun = true
        for key in assets.keys.sorted() {
            guard let record = assets[key]?.record else { continue }
            if record.update == .login { assets[key]?.owesCheck = isLogin }
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
            if record.owesCall { callOwner(key) }
        }
    }

    // MARK: Checks without a call

    /// When the next check without a call is due; nil: at no known instant.
    private func dueAt(_ state: AssetState) -> WallTime? {
        let record = state.record
        guard state.activity == .none, !record.isLeaving else { return nil }
        let earliest = state.triedAt.map { $0 + Self.pause } ?? WallTime(microseconds: 0)
        switch record.update {
        case .manual: return nil
        case .login: return state.owesCheck ? earliest : nil
        case .daily: return max(earliest, record.checkedAt.map { $0 + Self.day } ?? WallTime(microseconds: 0))
        }
    }

    /// Checks without a call need a connection that costs nothing.
    private var mayCheck: Bool { hasBegun && !isEnding && network.map { $0.reach == .online && !$0.isMetered } ?? false }

    func beginDueChecks(now: WallTime) {
        guard mayCheck else { return }
        for key in assets.values.filter({ isDue($0, now: now) }).map(\.record.key).sorted() {
            assets[key]?.triedAt = now
            modify(key) { ($0.isBackground, $0.wantsUpdate) = (true, true) }
            beginCheck(key)
        }
    }

    private func isDue(_ state: AssetState, now: WallTime) -> Bool {
        guard let due = dueAt(state) else { return false }
        if due <= now { return true }
        // A check in the future: the clock was set back. The pause after a failed check still counts.
        let last = state.record.checkedAt ?? now
        return last > now && state.triedAt.map { $0 > now || now - $0 >= Self.pause } ?? true
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
