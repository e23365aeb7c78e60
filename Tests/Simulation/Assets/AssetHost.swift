// SPDX-License-Identifier: Apache-2.0
import Assets
import DownloadModel
import Scheduling

/// One process with assets: carries out the decisions of the real `AssetUpdater` in the order of the service's `AssetCentre`, by downloads
/// of the simulated scheduler.
final class AssetHost {
    /// What a download is for.
    enum Purpose: Equatable {
        case archive(AssetKey)
        case manifest(AssetKey, AssetUpdater.Ticket)
        case signature(AssetKey, AssetUpdater.Ticket, manifest: String)
        /// The download could not be removed because its file is being renamed.
        case removal(AssetKey, AssetRemoval)
        /// Nobody waits for this fetch any more. It could not be removed because its file is being renamed.
        case discarded(file: String)

        /// Whether an asset waits for the file.
        var isWanted: Bool {
            switch self {
            case .archive, .manifest, .signature: true
            case .removal, .discarded: false
            }
        }
    }

    unowned let world: World
    let machine: AssetMachine
    let updater: AssetUpdater
    private var todo: [AssetUpdater.Action] = []
    private var isPosting = false
    /// The calls that the updater has not answered yet.
    private var undecided: Set<AssetUpdater.CallNumber> = []
    var purposes: [DownloadNumber: Purpose] = [:]
    /// The download of the manifest, or of its signature, that each asset fetches.
    var fetches: [AssetKey: DownloadNumber] = [:]
    /// For each fetch on the list, the key as it was added. A fresh link changes the URL, but not the key.
    var fetchKeys: [DownloadNumber: CopyKey] = [:]
    /// The folders whose extractions must stop.
    var stopping: Set<String> = []
    /// The network as the updater knows it.
    private(set) var network: NetworkCondition?
    private(set) var alarm: WallTime?
    /// The stage and the record of each asset after the last turn.
    private var stages: [AssetKey: AssetStage] = [:]
    private(set) var records: [AssetKey: AssetRecord] = [:]
    /// The assets whose first check of a session is due (policy `login`).
    private(set) var owesCheck: Set<AssetKey> = []
    private(set) var isLogin = false
    /// How often each asset was unregistered, now and when these calls registered it.
    private(set) var unregistrations: [AssetKey: Int] = [:]
    private(set) var registrations: [AssetUpdater.CallNumber: Int] = [:]
    /// When the checks without a call began whose manifests are not fetched yet.
    private var begun: [AssetKey: WallTime] = [:]

    init(_ world: World, _ machine: AssetMachine) {
        (self.world, self.machine) = (world, machine)
        updater = AssetUpdater(world.saved.assets.values.sorted { $0.key < $1.key })
        records = world.saved.assets
    }

    var plant: Plant? { world.plant }
    var session: String { "s\(machine.session)" }
    func fail(_ text: String) { world.fail(text) }
    func tell(_ text: @autoclosure () -> String) { world.tell(text()) }

    /// The service has started. Call after the scheduler has begun.
    func begin(isLogin: Bool) {
        self.isLogin = isLogin
        for entry in world.scheduler.entries.values.sorted(by: { $0.number < $1.number }) where entry.record.isFetch {
            fetchKeys[entry.number] = entry.record.copyKey
        }
        removeFormerManifests()
        deleteManifests(world.disk.finals.keys.compactMap(Self.manifestFile).sorted())
        for (key, record) in records where record.update == .login {
            if isLogin || record.checkedIn != session { owesCheck.insert(key) }
        }
        decide(.begins(isLogin: isLogin, session: session))
        for (key, record) in records {
            guard let pending = record.pending, pending.isRunning, !record.isLeaving, !record.isRollingBack else { continue }
            if updater[key]?.activity ?? AssetActivity.none == AssetActivity.none {
                fail("the update of \(key) does not go on after a restart")
            }
        }
    }

    // MARK: Decisions

    func decide(_ event: AssetUpdater.Event) {
        // No two events come in one microsecond, after which the folders of versions are named.
        world.now = world.now + .microseconds(1)
        let actions = updater.turn([event], at: world.now)
        // The action waits for the disk. Meanwhile the asset may be registered anew.
        for case .gone(let key) in actions { owesCheck.remove(key) }
        for case .fetchManifest(let key, _, true) in actions { begun[key] = checkDue(key) }
        todo += actions
        if case .begins = event { noteStages() } else { checkStages(event) }
        guard !isPosting else { return }
        isPosting = true
        while !todo.isEmpty {
            let actions = todo
            todo = []
            for action in actions { post(action) }
        }
        isPosting = false
        if plant != .dozing { alarm = updater.nextWake }
    }

    /// The alarm rings if it is due.
    func ring() {
        guard let alarm, alarm <= world.now else { return }
        self.alarm = nil
        decide(.time)
    }

    /// A call. It is answered once.
    func call(_ event: (AssetUpdater.CallNumber) -> AssetUpdater.Event) {
        machine.lastCall += 1
        let call = AssetUpdater.CallNumber(machine.lastCall)
        machine.unanswered.insert(call)
        ask(call) { event(call) }
    }

    /// Lets the updater decide about a call.
    func ask(_ call: AssetUpdater.CallNumber, _ event: () -> AssetUpdater.Event) {
        if world.isJournalFull { return answered(call, .refused(Refusal(.storage, "full"))) }
        undecided.insert(call)
        decide(event())
        if undecided.contains(call), !world.gate.isClear {
            world.gate.post(success: { nil }, failure: { [self] refusal in giveUp(call, refusal) })
        }
    }

    /// The queue cannot be saved, so a call that waits is answered with the error. What it has asked for continues.
    private func giveUp(_ call: AssetUpdater.CallNumber, _ refusal: Refusal) -> Message? {
        guard undecided.remove(call) != nil else { return nil }
        decide(.callersLeft([call]))
        return plant == .speechless ? nil : .asset(call, .refused(refusal))
    }

    /// Some of the callers that wait leave the bus. Nothing but the answers to their calls may change.
    func callersLeave(_ a: Int) {
        let gone = Set(undecided.filter { (Int($0.value) + a) % 2 == 0 })
        guard !gone.isEmpty else { return }
        tell("the callers of \(gone.map(\.value).sorted()) leave")
        undecided.subtract(gone)
        machine.unanswered.subtract(gone)
        decide(.callersLeft(gone))
    }

    private func post(_ action: AssetUpdater.Action) {
        switch action {
        case .save(let record):
            records[record.key] = record
            world.gate.append(.putAsset(record))
        case .delete(let key):
            unregistrations[key, default: 0] += 1
            machine.lastDue[key] = nil
            world.gate.append(.removeAsset(key))
        case .answer(let call, let answer):
            if case .registered(let key) = answer { registrations[call] = unregistrations[key, default: 0] }
            if undecided.remove(call) == nil { fail("call \(call.value) is answered again: \(answer)") }
            if world.gate.isClear { return world.send(.asset(call, answer)) }
            world.gate.post(
                success: { .asset(call, answer) },
                failure: { [plant] in plant == .speechless ? nil : .asset(call, .refused($0)) })
        case .fetchManifest(let key, _, true):
            let (tried, generation) = (begun.removeValue(forKey: key), unregistrations[key])
            world.gate.afterCommit { [self] in
                if let tried, unregistrations[key] == generation { machine.lastDue[key] = tried }
                perform(action)
            }
        default:
            if plant == .rash { return perform(action) }
            world.gate.afterCommit { [self] in perform(action) }
        }
    }

    /// The answer to a call has reached its caller.
    func answered(_ call: AssetUpdater.CallNumber, _ answer: AssetUpdater.Answer) {
        tell("told: the answer to call \(call.value) is \(answer.word)")
        if machine.unanswered.remove(call) == nil { fail("call \(call.value) is answered again: \(answer.word)") }
        checkAnswer(call, answer)
    }

    private func perform(_ action: AssetUpdater.Action) {
        checkAction(action)
        switch action {
        case .save, .delete, .answer, .added, .tell: break
        case .gone(let key): isGone(key)
        case .ready(let key, let version): tell("told: version \(version) of \(key) is ready")
        case .fetchManifest(let key, let ticket, let isBackground):
            if let site = site(key) { add(.look(site, ticket, isBackground: isBackground)) }
        case .cancelFetch(let key, let ticket): cancelFetch(key, ticket)
        case .checkSpace(let key, let ticket, _): if let site = site(key) { add(.space(site, ticket)) }
        case .startDownload(let key, let ticket, let url, let pending): startDownload(key, ticket, url, pending)
        case .resumeDownload(let key, let number, let retries): resumeDownload(key, number, retries: retries)
        case .raiseDownload(let key, let number): raiseDownload(key, number)
        case .removeDownload(let number): removeDownload(number)
        case .extract(let key, let folder, let manifest):
            guard let site = site(key) else { return }
            stopping.remove("\(site.directory)/\(folder)")
            add(.extract(site, folder: folder, manifest))
        case .cancelExtraction(let key, let folder): if let site = site(key) { stopping.insert("\(site.directory)/\(folder)") }
        case .switchLink(let key, let folder): if let site = site(key) { add(.switchLink(site, folder: folder)) }
        case .remove(let key, let removal): remove(key, removal)
        case .deleteData(let key, let folders): if let site = site(key) { add(.deleteData(site, folders, phase: 0, nil)) }
        case .callOwner(let key): add(.callOwner(key))
        }
    }

    func site(_ key: AssetKey) -> AssetSite? { updater[key].map { AssetSite(key: key, directory: $0.record.directory) } }

    /// Gives the pool a piece of work. Nothing else may work on its folder.
    func add(_ work: AssetWork) {
        let others = world.pool.compactMap { if case .asset(let other) = $0 { other } else { nil } }
        if let folder = work.folder {
            if others.contains(where: { $0.folder == folder || $0.directory.map { folder.hasPrefix($0 + "/") } ?? false }) {
                fail("the disk works on \(folder) already: \(work)")
            }
        } else if let directory = work.directory {
            if others.contains(where: { $0.folder?.hasPrefix(directory + "/") ?? ($0.directory == directory) }) {
                fail("\(directory) is deleted while the disk works on it")
            }
        }
        world.pool.append(.asset(work))
    }

    private func isGone(_ key: AssetKey) {
        tell("told: \(key) is gone")
        fetches[key] = nil
        if plant != .lingering { forgetManifests(of: key) }
        guard updater[key] == nil, let record = records.removeValue(forKey: key) else { return }
        stages[key] = nil
        // What the application still uses; without a link, nobody knows it any more.
        guard !record.deletesData else { return }
        let kept = record.installed ?? record.left
        if let folder = kept?.folder { machine.directories[record.directory]?.released.insert(folder) }
    }

    // MARK: What happens to downloads and to the network

    func decided() {
        guard world.scheduler.conditions.network != network else { return }
        network = world.scheduler.conditions.network
        decide(.network(network))
    }

    func changed(_ change: Scheduler.Change) {
        let entry = change.entry
        guard case .archive(let key)? = purposes[entry.number] else { return }
        switch entry.state {
        case .verifying: decide(.downloadVerifies(key, entry.number))
        case .queued, .waiting, .active, .paused: if updater[key]?.stage == .verifying { decide(.downloadContinues(key, entry.number)) }
        case .extracting, .committing, .finished, .failed, .cancelled: break
        }
    }

    func ended(_ entry: ScheduledDownload) {
        guard let purpose = purposes[entry.number] else { return }
        // Somebody has retried the download before its end was on disk: its next end counts.
        if !entry.state.hasEnded, purpose.isWanted { return }
        purposes[entry.number] = nil
        switch purpose {
        case .archive(let key): decide(.downloadEnded(key, entry.number, AssetUpdater.DownloadEnd(entry.state)))
        case .manifest(let key, let ticket): manifestEnded(key, ticket, entry)
        case .signature(let key, let ticket, let manifest): signatureEnded(key, ticket, manifest, entry)
        case .removal(let key, let removal): remove(key, removal)
        case .discarded(let file): discardedEnded(file, entry)
        }
    }

    func removed(_ entry: ScheduledDownload) {
        fetchKeys[entry.number] = nil
        guard let purpose = purposes.removeValue(forKey: entry.number) else { return }
        switch purpose {
        case .archive(let key): decide(.downloadEnded(key, entry.number, .lost))
        case .manifest(let key, let ticket), .signature(let key, let ticket, _):
            decide(.manifestFailed(key, ticket, DownloadFailure(.cancelled, "The download of the manifest was removed.")))
        case .removal(let key, let removal): remove(key, removal)
        case .discarded(let file): deleteManifests([file])
        }
    }

    func succeeded(_ key: AssetKey) { owesCheck.remove(key) }

    func clockIsSet() {
        (machine.lastDue, machine.hasJumped) = ([:], true)
        decide(.clockSet)
    }

    // MARK: What other parts of the service ask

    var archives: Set<DownloadNumber> { updater.archiveNumbers }
    func isArchive(_ number: DownloadNumber) -> Bool { updater.asset(ofArchive: number) != nil }
    /// All rows, for a new database.
    var rows: [StoreChange] { updater.rows }

    // MARK: Stages

    private func noteStages() {
        stages = Dictionary(uniqueKeysWithValues: updater.assets.values.map { ($0.record.key, $0.stage) })
    }

    /// Downloading, verifying and extracting come one after the other, and none of them without a check. A restart begins anywhere.
    private func checkStages(_ event: AssetUpdater.Event) {
        let before = stages
        noteStages()
        for (key, stage) in stages {
            guard let former = before[key], former != stage else { continue }
            tell("\(key) is \(stage.rawValue)")
            switch (former, stage) {
            case (.idle, .downloading), (.ready, .downloading), (.failed, .downloading), (.cancelled, .downloading),
                (.idle, .extracting), (.ready, .extracting), (.failed, .extracting), (.cancelled, .extracting),
                (.idle, .verifying), (.ready, .verifying), (.failed, .verifying), (.cancelled, .verifying),
                (.checking, .verifying), (.extracting, .verifying):
                fail("\(key) was \(former.rawValue), and is \(stage.rawValue) after \(event)")
            default: break
            }
        }
    }
}

extension Message {
    /// Whether the message refuses a call about assets.
    var isRefusal: Bool { if case .asset(_, .refused) = self { true } else { false } }
}

extension AssetUpdater.DownloadEnd {
    fileprivate init(_ state: DownloadState) {
        switch state {
        case .finished: self = .finished
        case .failed(let failure): self = .failed(failure)
        case .cancelled: self = .cancelled
        default: self = .lost
        }
    }
}

extension AssetUpdater.Answer {
    fileprivate var word: String {
        switch self {
        case .failed(let failure): "failed, \(failure.name): \(failure.message)"
        case .refused(let refusal): "refused, \(refusal.name): \(refusal.message)"
        default: "\(self)"
        }
    }
}
