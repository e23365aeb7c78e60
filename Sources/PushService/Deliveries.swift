internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import PushInterface
internal import PushModel
internal import WebPush

/// Handles messages: checks a message, saves it, has the service fetch its file, and calls its app.
///
/// A message is on disk before the distributor hears that it arrived, and leaves the disk when its app has answered. An interrupted message
/// begins again at the next start: its repeated `Fetch` has the same token, so it joins the first call or gets the answer of that call.
@BusActor final class Deliveries {
    nonisolated static let mostWaiting = 1000
    /// The most messages on disk: those that wait, and as many whose downloads are still to be removed.
    nonisolated static let mostKept = 2000
    static let mostWaitingOfRegistration = 64
    static let mostWaitingOfApp = 200
    /// The most calls of `Fetch` at a time.
    private static let mostFetches = 200
    /// As `mostFetches`, including the calls for messages that are no longer valid. These calls wait for no network, and must not queue
    /// behind calls that do. Below the limit of the service for one connection.
    private static let mostFetchesInAll = 240
    /// The most calls of `Fetch` at a time for one registration. All of them may wait for an unmetered network, while another registration
    /// of the app need not wait.
    private static let mostFetchesOfRegistration = 4
    /// How many refusals of a registration this process logs; the rest is only counted.
    private static let mostRefusalsLogged: UInt64 = 20
    /// When an app that did not answer is called again while this program runs; after that, at each start.
    private static let reminders: [Duration] = [.seconds(60), .seconds(600)]
    /// When a service that could not be reached, or refused any call for now, is asked again: twice as late after each failure.
    private static let retryPauses: [Duration] = [60, 120, 240, 480, 960, 1920, 3600].map { .seconds($0) }
    /// The longest time until a message's end is looked at again, because the wall clock may be set.
    private static let longestTimer: Duration = .seconds(3600)

    /// A fetch under way.
    private struct Fetch {
        /// Of the registration.
        let token: String
        /// Tells the fetch from an earlier one of the same message.
        let number: UInt64
        let task: Task<Void, Never>
    }

    /// A download that is being taken from the service.
    private struct Removal {
        let app: String
        /// Of the message.
        let end: WallTime
        /// Whether the service has not answered yet. If it has answered, it could not remove the download, and is asked again.
        var isAsked = false
    }

    private let connection: Connection
    private let registry: Registry
    private let store: PushStore
    private let hold: IdleExit.Hold
    private let log: Logger
    private let files: PushedFiles
    private let apps: PushedApps
    /// By their ids. `order` has the ids that are still to be fetched, oldest first.
    private var waiting: [String: PendingPush] = [:] { didSet { look() } }
    private var order: [String] = []
    /// Ids that are not on disk yet, with the number of calls that wait for that: the first one, and those that repeat it meanwhile.
    private var unsaved: [String: Int] = [:]
    /// The fetches in progress, by message id. The answer to a fetch that is no longer here does not count: the message has ended in
    /// another way, or its file is requested again.
    private var fetching: [String: Fetch] = [:]
    /// The number of fetches so far.
    private var fetches: UInt64 = 0
    /// Ids that wait because the service could not fetch for now: until it appears, the message is repeated, or some time has passed.
    private var resting: Set<String> = []
    /// Ids of messages whose file may have arrived in time without this process noticing: an earlier process requested the file, or the
    /// answer came while the registration was being ended. Only the service knows.
    private var unseen: Set<String> = []
    /// Ids whose fetch has failed, and whose end is not noted yet. Another message about the file begins anew.
    private var failing: Set<String> = []
    /// Ids whose app is being called, or is called again after a pause.
    private var telling: Set<String> = []
    /// The downloads that are being taken from the service, by message id. The records of the messages stay on disk until then.
    private var removing: [String: Removal] = [:] { didSet { look() } }
    /// Ids whose end is not on disk yet. After a crash, only their downloads say how they ended, so these stay on the service's list.
    private var unsavedEnds: Set<String> = []
    /// Ids whose app did not answer: they wait for the next start.
    private var unanswered: Set<String> = [] { didSet { look() } }
    /// Timers that end the messages whose file has not come when they are no longer valid.
    private var ends: [String: Poller.Token] = [:]
    private var retryTimer: Poller.Token?
    /// How often in a row the service could not be reached.
    private var failures = 0
    private var subscription: Connection.Subscription?
    private var refusalsLogged: [String: UInt64] = [:]

    init(
        connection: Connection, registry: Registry, store: PushStore, files: PushedFiles, apps: PushedApps, hold: IdleExit.Hold, log: Logger
    ) {
        (self.connection, self.registry, self.store, self.files, self.apps) = (connection, registry, store, files, apps)
        (self.hold, self.log) = (hold, log)
    }

    /// Begins with the messages of earlier processes.
    func begin(_ messages: [PendingPush]) {
        var rule = MatchRule(sender: BusDaemon.name, interface: BusDaemon.name, member: BusDaemon.nameOwnerChanged.name)
        rule.argument0 = BusName.service
        subscription = connection.subscribe(rule) { [weak self] message in
            guard let (name, _, owner) = BusDaemon.nameOwnerChanged.read(message), name == BusName.service, !owner.isEmpty else { return }
            self?.tryAgain()
        }
        let now = WallTime(microseconds: wallClock())
        var overdue: [String] = []
        for message in messages {
            guard registry[message.token] != nil, message.outcome.map({ now - $0.ended < Limits.remindedAge }) ?? true else {
                // The program died while it ended the registration.
                if message.mayHaveDownload, !message.app.isEmpty {
                    removeDownload(ofEnded: message, app: message.app)
                } else {
                    store.put(.message(message.id), nil)
                }
                continue
            }
            waiting[message.id] = message
            guard message.outcome == nil else {
                // If the service itself has ended the download, the end of the next push takes it off the list.
                if message.mayHaveDownload, let registration = registry[message.token], registration.lastDownload != message.id {
                    removeDownload(of: message, app: registration.key.app)
                }
                BusActor.spawn { [self] in await tell(message.id, reminders: []) }
                continue
            }
            unseen.insert(message.id)
            if isOver(message.id) {
                overdue.append(message.id)
            } else {
                order.append(message.id)
                setTimer(message.id)
            }
        }
        order = overdue + order
        fetchNext()
    }

    func waitingCount(of token: String) -> Int { waiting.values.count { $0.token == token } }

    /// Forgets the messages of a registration that ended, and takes their downloads from the service.
    func forget(_ registration: Registration) {
        // No later push will take this one off the service's list.
        if !registration.lastDownload.isEmpty { files.removeDownload(registration.lastDownload, of: registration.key.app) }
        for message in waiting.values where message.token == registration.token {
            // One that is not on disk yet has no download.
            if message.outcome == nil, unsaved[message.id] == nil { removeDownload(ofEnded: message, app: registration.key.app) }
            drop(message.id)
        }
        fetchNext()
    }

    /// Takes the download of a message that has ended from the service. The record of the message stays until the download is gone, so that
    /// the next start does the same if the program dies before.
    private func removeDownload(of message: PendingPush, app: String) {
        guard removing[message.id] == nil else { return }
        removing[message.id] = Removal(app: app, end: message.end)
        askForRemoval(message.id)
    }

    /// As above, for a message whose registration has ended: its file is too late from now on. Otherwise, a `valid-until` in the far future
    /// would keep the message, and the program running, for as long as the service cannot be reached.
    private func removeDownload(ofEnded message: PendingPush, app: String) {
        var message = message
        let now = wallClock() / 1_000_000
        if message.push.validUntil > now {
            message.push.validUntil = now
            store.put(.message(message.id), message.record)
        }
        removeDownload(of: message, app: app)
    }

    private func askForRemoval(_ id: String) {
        guard let removal = removing[id], !removal.isAsked else { return }
        removing[id]?.isAsked = true
        files.removeDownload(id, of: removal.app) { [self] isGone in
            // An app may register and unregister again and again while the service cannot be reached.
            guard isGone || Self.isForgotten(removal.end) || removing.count > Self.mostWaiting else {
                removing[id]?.isAsked = false
                return retryLater()
            }
            if isGone { failures = 0 }
            removing[id] = nil
            if waiting[id] == nil { store.put(.message(id), nil) }
        }
    }

    /// Whether a message that ended at `end` is given up although the service has not answered: a service that is gone for good must not
    /// keep it for ever.
    private static func isForgotten(_ end: WallTime) -> Bool { WallTime(microseconds: wallClock()) - end >= Limits.remindedAge }

    /// Ends the wait for a file. The service is not asked for the file again.
    ///
    /// - Returns: whether a fetch was under way.
    @discardableResult private func stopFetch(_ id: String) -> Bool {
        guard let fetch = fetching.removeValue(forKey: id) else { return false }
        fetch.task.cancel()
        return true
    }

    private func drop(_ id: String) {
        waiting[id] = nil
        stopFetch(id)
        unsaved[id] = nil
        cancelTimer(id)
        resting.remove(id)
        unseen.remove(id)
        unanswered.remove(id)
        order.removeAll { $0 == id }
        if removing[id] == nil { store.put(.message(id), nil) }
    }

    /// A message keeps the program running, unless its app did not answer. A message without its file does so also between two attempts,
    /// because no other program would request the file in time. The same holds for a download that is still to be removed.
    private func look() { hold.isHeld = waiting.count > unanswered.count || !removing.isEmpty }

    // MARK: Arrival

    /// Takes a message of the distributor: refuses it by the rules, or saves it and begins with it.
    ///
    /// - Parameter version: of the interface that the message came by.
    /// - Throws: `NoSuchObject` for a token that we did not issue; `Storage` if the message cannot be saved, so that the distributor may
    ///   send it again.
    func receive(_ token: String, _ bytes: [UInt8], version: UInt32) async throws(Refusal) {
        guard let registration = registry.saved(token) else { throw DistributorLink.unknownToken }
        registry.count(token) { $0.received +|= 1 }
        let push: AcceptedPush
        do throws(PushRefusal) { push = try check(bytes, version, registration) } catch {
            registry.count(token) { $0.refused[error.reason, default: 0] +|= 1 }
            // Anybody who knows the endpoint can send any number of messages, so only the first refusals are notices in the log.
            refusalsLogged[token, default: 0] +|= 1
            log.log(
                level: refusalsLogged[token, default: 0] <= Self.mostRefusalsLogged ? .notice : .debug, "a push was refused",
                metadata: [
                    "app": "\(registration.key.app)", "name": "\(registration.key.name)", "rule": "\(error.reason.rawValue)",
                    "reason": "\(error.text)",
                ])
            return
        }
        let former = waiting.values.first {
            $0.outcome == nil && $0.token == token && $0.push.isSameFile(as: push) && !failing.contains($0.id)
        }
        if let former {
            registry.count(token) { $0.unchanged +|= 1 }
            prolong(former.id, until: push.validUntil)
            wake { $0 == former.id }
            try await save(former.id)
        } else {
            let message = PendingPush(
                id: randomName(), token: token, app: registration.key.app, push: push, arrived: WallTime(microseconds: wallClock()),
                options: registration.options, isSandboxed: registration.isSandboxed, outcome: nil)
            waiting[message.id] = message
            setTimer(message.id)
            store.put(.message(message.id), message.record)
            unsaved[message.id] = 0
            try await save(message.id)
        }
    }

    /// Waits until a message is on disk for one of the calls that brought it. The first such call begins with the message.
    private func save(_ id: String) async throws(Refusal) {
        guard let count = unsaved[id] else { return try await store.commit() }
        unsaved[id] = count +| 1
        do throws(Refusal) { try await store.commit() } catch {
            // The write of another call brings the message to disk, too.
            if let count = unsaved[id] {
                unsaved[id] = count -| 1
                if count == 1 { drop(id) }
            }
            throw error
        }
        // The app may have left meanwhile, or the message may have ended.
        guard unsaved.removeValue(forKey: id) != nil, let saved = waiting[id], saved.outcome == nil else { return }
        order.append(id)
        fetchNext()
    }

    /// Another message about the same file may be valid for longer.
    private func prolong(_ id: String, until validUntil: UInt64) {
        guard var message = waiting[id], message.push.validUntil < validUntil else { return }
        message.push.validUntil = validUntil
        waiting[id] = message
        store.put(.message(id), message.record)
        setTimer(id)
    }

    private func check(_ bytes: [UInt8], _ version: UInt32, _ registration: Registration) throws(PushRefusal) -> AcceptedPush {
        guard !bytes.isEmpty else { throw PushRefusal(.length, "the message is empty") }
        guard bytes.count <= PushMessage.mostBytes else {
            throw PushRefusal(.length, "the message has \(bytes.count) bytes; at most \(PushMessage.mostBytes) are allowed")
        }
        guard registration.version == version || registration.version == 0 else {
            throw PushRefusal(.encryption, "the endpoint is of version \(registration.version), and the message came by version \(version)")
        }
        var text = bytes
        if version == 2 {
            do throws(WebPushError) { text = try registration.keys.decrypt(bytes) } catch {
                throw PushRefusal(.encryption, error.description)
            }
        }
        let push = try registration.rules.check(try PushMessage(text), now: WallTime(microseconds: wallClock()))
        guard waiting.count < Self.mostWaiting, waitingCount(of: registration.token) < Self.mostWaitingOfRegistration,
            waiting.values.count(where: { registry[$0.token]?.key.app == registration.key.app }) < Self.mostWaitingOfApp
        else { throw PushRefusal(.full, "too many messages wait already") }
        return push
    }

    // MARK: Fetching

    private func fetchNext() {
        while let id = nextToFetch() {
            order.removeAll { $0 == id }
            start(id)
        }
    }

    private func start(_ id: String) {
        guard let message = waiting[id], registry[message.token] != nil else { return }
        fetches +|= 1
        let number = fetches
        let task = BusActor.spawnTask { [self] in
            let outcome = await fetch(message, number)
            guard fetching[id]?.number == number else { return }
            fetching[id] = nil
            cancelTimer(id)
            if outcome?.error == ErrorName.expired.busName, renew(id) { return }
            fetchNext()
            if let outcome { await end(id, outcome) } else { rest(id) }
        }
        fetching[id] = Fetch(token: message.token, number: number, task: task)
    }

    private func nextToFetch() -> String? {
        order.first { id in
            // The file of a message that is over has come already, or is given up: it waits for no network.
            guard let message = waiting[id], !isOver(id) else { return fetching.count < Self.mostFetchesInAll }
            guard fetching.count < Self.mostFetches else { return false }
            return fetching.values.count { $0.token == message.token } < Self.mostFetchesOfRegistration
        }
    }

    private func rest(_ id: String) {
        guard waiting[id] != nil else { return }
        resting.insert(id)
        setTimer(id)
        retryLater()
    }

    private func retryLater() {
        guard retryTimer == nil else { return }
        let pause = Self.retryPauses[min(failures, Self.retryPauses.count -| 1)]
        failures +|= 1
        retryTimer = Poller.shared.schedule(after: pause) { [weak self] in
            self?.retryTimer = nil
            self?.tryAgain()
        }
    }

    private func tryAgain() {
        wake { _ in true }
        for id in removing.keys.sorted() { askForRemoval(id) }
    }

    /// nil: the service cannot fetch now, or the message has ended meanwhile.
    private func fetch(_ message: PendingPush, _ number: UInt64) async -> PendingPush.Outcome? {
        guard let registration = registry[message.token] else { return nil }
        let end = await files.fetch(message, registration) { [self] in
            guard fetching[message.id]?.number == number else { return .gone }
            guard !isOver(message.id) else { return .over }
            // The message has no timer if its time was over before, and the clock was set back since.
            if ends[message.id] == nil { setTimer(message.id) }
            return .inTime
        }
        switch end {
        case .ended(let outcome):
            failures = 0
            return outcome
        case .expired:
            removeDownload(of: message, app: registration.key.app)
            return expired
        case .unreachable: return Self.isForgotten((waiting[message.id] ?? message).end) ? expired : nil
        }
    }

    /// Begins again with the messages of a registration that could not be ended.
    func resume(_ token: String) {
        let ids = waiting.values.filter { $0.token == token && $0.outcome == nil && fetching[$0.id] == nil && !order.contains($0.id) }
            .map(\.id)
        // A fetch that ended meanwhile has lost its answer and its timer.
        unseen.formUnion(Set(ids).subtracting(resting))
        resting.formUnion(ids)
        for id in ids { setTimer(id) }
        wake { ids.contains($0) }
        for message in waiting.values where message.token == token && message.outcome != nil && !unanswered.contains(message.id) {
            BusActor.spawn { [self] in await tell(message.id, reminders: Self.reminders) }
        }
    }

    /// Begins again with messages that rest before their file has come.
    private func wake(_ isMeant: (String) -> Bool) {
        let ids = resting.compactMap { waiting[$0] }.filter { $0.outcome == nil && isMeant($0.id) }
            .sorted { ($0.arrived, $0.id) < ($1.arrived, $1.id) }.map(\.id)
        guard !ids.isEmpty else { return }
        order += ids
        resting.subtract(ids)
        fetchNext()
    }

    // MARK: The end of a message

    private func isOver(_ id: String) -> Bool {
        guard let message = waiting[id] else { return true }
        return message.end <= WallTime(microseconds: wallClock())
    }

    /// The service's own deadline counts only from a download's start, and one that waits for a network may start much later.
    private func setTimer(_ id: String) {
        cancelTimer(id)
        guard let message = waiting[id], message.outcome == nil else { return }
        // The service is asked first whether the file came in time.
        if unseen.contains(id), fetching[id] == nil, isOver(id) { return }
        let left = message.end - WallTime(microseconds: wallClock())
        ends[id] = Poller.shared.schedule(after: max(.zero, min(left, Self.longestTimer))) { [weak self] in self?.timeHasCome(id) }
    }

    /// A message that was prolonged begins anew if its download ended at the former time: with a name of its own, because the options of a
    /// download cannot be changed.
    ///
    /// - Returns: whether it did.
    private func renew(_ id: String) -> Bool {
        let now = WallTime(microseconds: wallClock())
        guard let former = waiting[id], former.isProlonged, former.end > now, let app = registry[former.token]?.key.app else {
            return false
        }
        var push = former.push
        push.patience = min(UInt64(clamping: (former.end - now).wholeMilliseconds), PushRules.longestWait *| 1000)
        let message = PendingPush(
            id: randomName(), token: former.token, app: app, push: push, arrived: now, options: former.options,
            isSandboxed: former.isSandboxed, outcome: nil)
        waiting[message.id] = message
        store.put(.message(message.id), message.record)
        drop(id)
        // Delete the former record now, and not after its download. The next start would count two records as two pushes.
        store.put(.message(id), nil)
        files.removeDownload(id, of: app)
        setTimer(message.id)
        order.append(message.id)
        fetchNext()
        return true
    }

    private func cancelTimer(_ id: String) { if let timer = ends.removeValue(forKey: id) { Poller.shared.cancel(timer) } }

    private func timeHasCome(_ id: String) {
        guard isOver(id) else { return setTimer(id) }
        ends[id] = nil
        guard let message = waiting[id], message.outcome == nil else { return }
        if unseen.contains(id) {
            // Ask the service whether the file came in time, even if it has not answered yet, because it may not even run. A message that
            // rests does not wait for its next try, which may be an hour away. A file that came later does not count.
            if stopFetch(id) || resting.remove(id) != nil { order.insert(id, at: 0) }
            return fetchNext()
        }
        if let app = registry[message.token]?.key.app { removeDownload(of: message, app: app) }
        stopFetch(id)
        resting.remove(id)
        order.removeAll { $0 == id }
        failing.insert(id)
        BusActor.spawn { [self] in await end(id, expired) }
        fetchNext()
    }

    private var expired: PendingPush.Outcome {
        PendingPush.Outcome(.failed, error: ErrorName.expired.busName, message: "The push was valid until a time that is over.")
    }

    /// Saves how a fetch ended, and calls the app.
    private func end(_ id: String, _ outcome: PendingPush.Outcome) async {
        if outcome.result == .failed { failing.insert(id) }
        defer { failing.remove(id) }
        let path = outcome.path
        // Until the file is remembered, another message about it adds nothing to this one.
        let stamp =
            outcome.result == .newData ? await DiskPool.shared.value(at: .path(path), within: .seconds(10)) { FileStamp(of: path) } : nil
        // The record of the registration names this download next. After a crash, no record would name the former one.
        let before = waiting[id].flatMap { registry[$0.token] }
        let isFormerSaved = before.map { !unsavedEnds.contains($0.lastDownload) } ?? false
        let former = outcome.hasDownload && isFormerSaved ? await files.clearList(of: before) : ""
        guard var message = waiting[id], message.outcome == nil, let registration = registry[message.token] else { return }
        message.outcome = outcome
        waiting[id] = message
        store.put(.message(id), message.record)
        registry.change(message.token) { registration in
            switch outcome.result {
            case .newData: registration.counts.fetched +|= 1
            case .noData: registration.counts.unchanged +|= 1
            case .failed: registration.counts.failed +|= 1
            }
            if let stamp = stamp ?? nil {
                registration.remember(FetchedCopy(url: message.push.url, sha256: message.push.sha256, path: path, stamp: stamp))
            }
            if outcome.hasDownload { registration.lastDownload = id }
        }
        log.info(
            "a push ended",
            metadata: ["app": "\(registration.key.app)", "name": "\(registration.key.name)", "result": "\(outcome.result.rawValue)"])
        unsavedEnds.insert(id)
        let ends = unsavedEnds
        // If the record cannot be saved, call the app nevertheless: the next start only calls it again.
        let isSaved = (try? await store.commit()) != nil
        if isSaved { unsavedEnds.subtract(ends) }
        // Another message of the registration has ended meanwhile.
        if isSaved, outcome.hasDownload, registration.lastDownload != former { await files.clearList(of: registration) }
        await tell(id, reminders: Self.reminders)
    }

    // MARK: The app

    /// Calls the app, and again after each of `reminders` if it does not answer. An app that is gone for good must not keep this program
    /// running for minutes at each start.
    private func tell(_ id: String, reminders: [Duration]) async {
        guard telling.insert(id).inserted else { return }
        defer { telling.remove(id) }
        for delay in reminders.map(Optional.some) + [nil] {
            guard let message = waiting[id], let outcome = message.outcome, let registration = registry[message.token] else { return }
            guard let failure = await apps.call(registration, message, outcome) else { return drop(id) }
            log.notice(
                "an app did not answer to a push; it is called again later",
                metadata: ["app": "\(registration.key.app)", "error": "\(failure.name)"])
            guard let delay else { break }
            await pause(delay)
        }
        if waiting[id] != nil { unanswered.insert(id) }
    }

    private func pause(_ delay: Duration) async {
        await withCheckedContinuation { continuation in Poller.shared.schedule(after: delay) { continuation.resume() } }
    }
}
