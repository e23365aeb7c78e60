internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import PushInterface
internal import PushModel
internal import TodokuClient
internal import WebPush

/// The way of a message: checked, saved, its file fetched by the service, its app called.
///
/// A message is on disk before the distributor hears that it arrived, and leaves the disk when its app has answered. What was interrupted
/// begins again at the next start: a repeated `Fetch` has the same token, so it joins the first one or gets its answer.
@BusActor final class Deliveries {
    nonisolated static let mostWaiting = 1000
    static let mostWaitingOfRegistration = 64
    static let mostWaitingOfApp = 200
    /// Most calls of `Fetch` at a time: in all, below the service's bound of one connection, and for one registration. Those of one
    /// registration may all wait for an unmetered network, which another one of the app need not do.
    private static let mostFetches = 200
    private static let mostFetchesOfRegistration = 4
    /// How many refusals of a registration this process logs; the rest is only counted.
    private static let mostRefusalsLogged: UInt64 = 20
    /// How long to wait for an app's answer. The bus continues to start the app after that, and the call still reaches it.
    private static let patience: Duration = .seconds(25)
    /// When an app that did not answer is called again while this program runs; after that, at each start.
    private static let reminders: [Duration] = [.seconds(60), .seconds(600)]
    /// When a service that could not be reached, or had a full disk, is asked again while this program runs.
    private static let retryPause: Duration = .seconds(60)
    /// The longest time until a message's end is looked at again, because the wall clock may be set.
    private static let longestTimer: Duration = .seconds(3600)

    private let connection: Connection
    private let registry: Registry
    private let store: PushStore
    private let hold: PushIdleExit.Hold
    private let log: Logger
    private var client: DownloaderClient?
    /// By their ids. `order` has the ids that are still to be fetched, oldest first.
    private var waiting: [String: PendingPush] = [:] { didSet { look() } }
    private var order: [String] = []
    /// Ids whose file is being fetched, with the token of the registration. What leaves here meanwhile has ended in another way.
    private var fetching: [String: String] = [:]
    /// Ids that wait, because the service could not be reached (until it appears, the message is repeated, or some time has passed), or
    /// because the app did not answer (until the next start).
    private var resting: Set<String> = [] { didSet { look() } }
    /// Timers that end the messages whose file has not come when they are no longer valid.
    private var ends: [String: Poller.Token] = [:]
    private var retryTimer: Poller.Token?
    /// Downloads that are being taken from the service.
    private var removals = 0 { didSet { look() } }
    private var subscription: Connection.Subscription?
    private var refusalsLogged: [String: UInt64] = [:]

    init(connection: Connection, registry: Registry, store: PushStore, hold: PushIdleExit.Hold, log: Logger) {
        (self.connection, self.registry, self.store, self.hold, self.log) = (connection, registry, store, hold, log)
    }

    /// Begins with the messages of earlier processes.
    func begin(_ messages: [PendingPush]) {
        var rule = MatchRule(sender: BusDaemon.name, interface: BusDaemon.name, member: BusDaemon.nameOwnerChanged.name)
        rule.argument0 = BusName.service
        subscription = connection.subscribe(rule) { [weak self] message in
            guard let (name, _, owner) = BusDaemon.nameOwnerChanged.read(message), name == BusName.service, !owner.isEmpty else { return }
            self?.wake { _ in true }
        }
        let now = WallTime(microseconds: wallClock())
        for message in messages {
            guard registry[message.token] != nil, message.outcome.map({ now - $0.ended < Limits.remindedAge }) ?? true else {
                store.put(.message(message.id), nil)
                continue
            }
            waiting[message.id] = message
            if message.outcome != nil {
                BusActor.spawn { [self] in await tell(message.id, reminders: []) }
            } else if isOver(message.id) {
                start(message.id)
            } else {
                order.append(message.id)
                setTimer(message.id)
            }
        }
        fetchNext()
    }

    func waitingCount(of token: String) -> Int { waiting.values.count { $0.token == token } }

    /// Forgets the messages of a registration that ended, and takes their downloads from the service.
    func forget(_ registration: Registration) {
        for message in waiting.values where message.token == registration.token {
            drop(message.id)
            if message.outcome == nil { removeDownload(message.id, of: registration.key.app) }
        }
        fetchNext()
    }

    private func drop(_ id: String) {
        waiting[id] = nil
        fetching[id] = nil
        cancelTimer(id)
        resting.remove(id)
        order.removeAll { $0 == id }
        store.put(.message(id), nil)
    }

    private func look() { hold.isHeld = waiting.count > resting.count || removals > 0 }

    // MARK: Arrival

    /// Takes a message of the distributor: refuses it by the rules, or saves it and begins with it.
    ///
    /// - Parameter version: of the interface that the message came by.
    /// - Throws: `NoSuchObject` for a token that we did not issue; `Storage` if the message cannot be saved, so that the distributor may
    ///   send it again.
    func receive(_ token: String, _ bytes: [UInt8], version: UInt32) async throws(Refusal) {
        guard let registration = registry[token] else { throw DistributorLink.unknownToken }
        registry.change(token) { $0.counts.received +|= 1 }
        let push: AcceptedPush
        do throws(PushRefusal) { push = try check(bytes, version, registration) } catch {
            registry.change(token) { $0.counts.refused[error.reason, default: 0] +|= 1 }
            // Strangers may send as many as they like.
            refusalsLogged[token, default: 0] +|= 1
            log.log(
                level: refusalsLogged[token, default: 0] <= Self.mostRefusalsLogged ? .notice : .debug, "a push was refused",
                metadata: [
                    "app": "\(registration.key.app)", "name": "\(registration.key.name)", "rule": "\(error.reason.rawValue)",
                    "reason": "\(error.text)",
                ])
            return
        }
        let former = waiting.values.first { $0.outcome == nil && $0.token == token && $0.push.isSameFile(as: push) }
        if let former {
            registry.change(token) { $0.counts.unchanged +|= 1 }
            prolong(former.id, until: push.validUntil)
            wake { $0 == former.id }
            try await store.commit()  // the first message of the file
        } else {
            let message = PendingPush(
                id: randomName(), token: token, push: push, arrived: WallTime(microseconds: wallClock()), options: registration.options,
                isSandboxed: registration.isSandboxed, outcome: nil)
            waiting[message.id] = message
            setTimer(message.id)
            store.put(.message(message.id), message.record)
            do throws(Refusal) { try await store.commit() } catch {
                drop(message.id)
                throw error
            }
            // The app may have left meanwhile, or the message may have ended.
            guard let saved = waiting[message.id], saved.outcome == nil else { return }
            order.append(message.id)
            fetchNext()
        }
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
        while fetching.count < Self.mostFetches, let id = nextToFetch() {
            order.removeAll { $0 == id }
            start(id)
        }
    }

    private func start(_ id: String) {
        guard let message = waiting[id], registry[message.token] != nil else { return }
        fetching[id] = message.token
        BusActor.spawn { [self] in
            let outcome = await outcome(of: message)
            guard fetching.removeValue(forKey: id) != nil else { return }
            cancelTimer(id)
            if outcome?.error == ErrorName.expired.busName, renew(id) { return }
            fetchNext()
            if let outcome { await end(id, outcome) } else { rest(id) }
        }
    }

    private func nextToFetch() -> String? {
        order.first { id in
            guard let message = waiting[id] else { return true }
            return fetching.values.count { $0 == message.token } < Self.mostFetchesOfRegistration
        }
    }

    private func rest(_ id: String) {
        guard let message = waiting[id] else { return }
        resting.insert(id)
        guard message.outcome == nil else { return }
        setTimer(id)
        if retryTimer == nil {
            retryTimer = Poller.shared.schedule(after: Self.retryPause) { [weak self] in
                self?.retryTimer = nil
                self?.wake { _ in true }
            }
        }
    }

    /// Begins again with the messages of a registration that could not be ended.
    func resume(_ token: String) {
        let ids = waiting.values.filter { $0.token == token && $0.outcome == nil && fetching[$0.id] == nil && !order.contains($0.id) }
            .map(\.id)
        resting.formUnion(ids)
        wake { ids.contains($0) }
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
            id: randomName(), token: former.token, push: push, arrived: now, options: former.options, isSandboxed: former.isSandboxed,
            outcome: nil)
        waiting[message.id] = message
        store.put(.message(message.id), message.record)
        drop(id)
        removeDownload(id, of: app)
        setTimer(message.id)
        order.append(message.id)
        fetchNext()
        return true
    }

    private func cancelTimer(_ id: String) {
        if let timer = ends.removeValue(forKey: id) { Poller.shared.cancel(timer) }
    }

    private func timeHasCome(_ id: String) {
        guard isOver(id) else { return setTimer(id) }
        ends[id] = nil
        guard let message = waiting[id], message.outcome == nil else { return }
        if let app = registry[message.token]?.key.app { removeDownload(id, of: app) }
        fetching[id] = nil
        resting.remove(id)
        order.removeAll { $0 == id }
        BusActor.spawn { [self] in await end(id, expired) }
        fetchNext()
    }

    private var expired: PendingPush.Outcome {
        outcome(.failed, error: ErrorName.expired.busName, message: "The push was valid until a time that is over.")
    }

    /// Takes a download from the service, if it has that. Nobody waits for it any more.
    private func removeDownload(_ id: String, of app: String) {
        removals += 1
        BusActor.spawn { [self] in
            do throws(ClientError) {
                try await connected().remove(DownloadReference(app: app, token: Self.downloadToken(id)))
            } catch {
                if error.cause != .unknownDownload {
                    log.notice("a download could not be removed", metadata: ["cause": "\(error.message)"])
                }
            }
            removals -= 1
        }
    }

    /// nil: the service cannot be reached now, or the message has ended meanwhile.
    private func outcome(of message: PendingPush) async -> PendingPush.Outcome? {
        guard let registration = registry[message.token] else { return nil }
        if let path = await pathOfCopy(of: message.push, registration) { return outcome(.noData, path: path) }
        do throws(ClientError) {
            let client = try await connected()
            // An earlier process may have begun, and its file may have come in time.
            let isInTime = isOver(message.id) ? try await hasFileInTime(message, registration, client) : false
            guard fetching[message.id] != nil else { return nil }
            if isInTime || !isOver(message.id) {
                let file = try await client.fetch(message.push.url, Self.request(for: message, registration))
                if isInTime || !isOver(message.id) {
                    return outcome(file.isNew ? .newData : .noData, path: file.path, hasDownload: true)
                }
            }
            removeDownload(message.id, of: registration.key.app)
            return expired
        } catch {
            // A service whose disk is full refuses everything, as long as it lasts.
            guard error.cause == .refused && error.errorName != .storage || error.cause == .unknownDownload else {
                if isOver(message.id) { return expired }
                log.warning("the download service cannot be reached; the push is kept", metadata: ["cause": "\(error.message)"])
                return nil
            }
            return outcome(.failed, error: error.name, message: error.message, hasDownload: true)
        }
    }

    private func outcome(
        _ result: PushOutcome, path: String = "", error: String = "", message: String = "", hasDownload: Bool = false
    ) -> PendingPush.Outcome {
        PendingPush.Outcome(
            result: result, path: path, error: error, message: message, ended: WallTime(microseconds: wallClock()),
            hasDownload: hasDownload)
    }

    /// The path of the file if an earlier push brought it, and nobody has touched it since.
    private func pathOfCopy(of push: AcceptedPush, _ registration: Registration) async -> String? {
        guard let copy = registration.fetched.last(where: { $0.url == push.url && $0.sha256 == push.sha256 }) else { return nil }
        let path = copy.path
        let stamp = await DiskPool.shared.value(at: .path(path), within: .seconds(10)) { FileStamp(of: path) }
        return stamp == .some(copy.stamp) ? path : nil
    }

    private func connected() async throws(ClientError) -> DownloaderClient {
        if let client { return client }
        let new = try await DownloaderClient.connect()
        client = new
        return new
    }

    private func hasFileInTime(
        _ message: PendingPush, _ registration: Registration, _ client: DownloaderClient
    ) async throws(ClientError) -> Bool {
        do throws(ClientError) {
            let found = try await client.describe(DownloadReference(app: registration.key.app, token: Self.downloadToken(message.id)))
            return found.state == .finished && found.endedAt.map { $0 <= message.end } ?? false
        } catch {
            guard error.cause == .unknownDownload else { throw error }
            return false
        }
    }

    private nonisolated static func downloadToken(_ id: String) -> String { "push_\(id)" }

    private static func request(for message: PendingPush, _ registration: Registration) -> DownloadRequest {
        // A repeated `Fetch` must have the same options, also if the app has registered with others meanwhile.
        let (push, rules) = (message.push, message.rules(registration))
        var request = DownloadRequest()
        request.app = registration.key.app
        request.token = downloadToken(message.id)
        request.tag = "push"
        request.checksum = "sha256:\(push.sha256)"
        request.size = push.size
        request.maxSize = rules.maxSize
        request.set(\.expectType, to: push.type)
        request.set(\.directory, to: rules.directory)
        request.set(\.fileName, to: rules.fileName)
        request.ifExists = rules.ifExists
        request.allowsMetered = rules.allowsMetered
        request.allowsPrivate = rules.allowsPrivate
        request.deadline = .milliseconds(Int64(clamping: push.patience))
        request.priority = -1
        request.notify = .never
        request.showProgress = false
        return request
    }

    /// Saves how a fetch ended, and calls the app.
    private func end(_ id: String, _ outcome: PendingPush.Outcome) async {
        let path = outcome.path
        // Until the file is remembered, another message about it adds nothing to this one.
        let stamp =
            outcome.result == .newData ? await DiskPool.shared.value(at: .path(path), within: .seconds(10)) { FileStamp(of: path) } : nil
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
                registration.remember(
                    FetchedCopy(url: message.push.url, sha256: message.push.sha256, path: path, stamp: stamp))
            }
            if outcome.hasDownload { registration.lastDownload = id }
        }
        log.info(
            "a push ended",
            metadata: ["app": "\(registration.key.app)", "name": "\(registration.key.name)", "result": "\(outcome.result.rawValue)"])
        // Unsaved, the push would only be told twice.
        try? await store.commit()
        if outcome.hasDownload { await clearList(of: registration) }
        await tell(id, reminders: Self.reminders)
    }

    /// Takes the download of the push before off the service's list, which would grow with each push otherwise. The file stays.
    private func clearList(of registration: Registration) async {
        guard !registration.lastDownload.isEmpty, let client else { return }
        let former = DownloadReference(app: registration.key.app, token: Self.downloadToken(registration.lastDownload))
        try? await client.remove(former)
    }

    // MARK: The app

    /// Calls the app, and again after each of `reminders` if it does not answer. An app that is gone for good must not keep this program
    /// running for minutes at each start.
    private func tell(_ id: String, reminders: [Duration]) async {
        for delay in reminders.map(Optional.some) + [nil] {
            guard let message = waiting[id], let outcome = message.outcome, let registration = registry[message.token] else { return }
            guard let failure = await call(registration, message, outcome) else { return drop(id) }
            log.notice(
                "an app did not answer to a push; it is called again later",
                metadata: ["app": "\(registration.key.app)", "error": "\(failure.name)"])
            guard let delay else { break }
            await pause(delay)
        }
        rest(id)
    }

    private func call(_ registration: Registration, _ message: PendingPush, _ outcome: PendingPush.Outcome) async -> DBusError? {
        var details: [String: Variant] = ["url": .string(message.push.url), "sha256": .string(message.push.sha256)]
        if outcome.result == .failed {
            details["error"] = .string(outcome.error)
            details["message"] = .string(outcome.message)
        }
        let parameter = Variant.structure([
            .string(registration.key.name), .string(outcome.result.rawValue), .string(outcome.path), .dictionary(details),
        ])
        guard registration.isSandboxed else { return await call(registration, parameter, starts: true) }
        // An app in a sandbox must not be able to start itself at will, by a push that brings nothing.
        let failure = await call(registration, parameter, starts: false)
        guard let failure, failure.isNotThere, outcome.result == .newData, registry.countStart(of: registration.token) else {
            return failure
        }
        return await call(registration, parameter, starts: true)
    }

    private func call(_ registration: Registration, _ parameter: Variant, starts: Bool) async -> DBusError? {
        let name = registration.rules.activate
        do throws(DBusError) {
            try await connection.call(
                Application.activateAction, on: name, at: BusName.applicationPath(name), (Push.action, [parameter], [:]),
                timeout: Self.patience, starts: starts)
            return nil
        } catch { return error }
    }

    private func pause(_ delay: Duration) async {
        await withCheckedContinuation { continuation in Poller.shared.schedule(after: delay) { continuation.resume() } }
    }
}

extension DBusError {
    /// Whether nobody owns the name, and the bus could start nobody for it.
    fileprivate var isNotThere: Bool {
        let bus = "org.freedesktop.DBus.Error."
        return name == bus + "ServiceUnknown" || name == bus + "NameHasNoOwner" || name.hasPrefix(bus + "Spawn.")
    }
}
