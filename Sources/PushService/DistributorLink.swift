internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Logging
internal import PushInterface
internal import PushModel

@BusActor protocol EndpointObserver: AnyObject {
    /// A registration has another endpoint, or cannot have one.
    func changed(_ token: String, hasNewEndpoint: Bool)
}

/// Chooses the distributor, and makes and ends the registrations at it.
///
/// A distributor forgets nothing, but may be another one, or may have been set up anew. So all registrations are made again, with the same
/// tokens, at each start and when a distributor appears (UnifiedPush, "Connector").
@BusActor final class DistributorLink {
    /// Most calls to distributors at a time.
    private static let mostCalls = 16
    private static let patience: Duration = .seconds(30)
    /// How often a distributor may appear, one time soon after the other, and get the registrations at once; after that, with a pause.
    private static let promptAppearances = 3
    private static let appearancePause: Duration = .seconds(60)

    /// A call of `Register` at a distributor.
    private struct UnderWay {
        /// The key of the app's server that the call takes.
        let key: String?
        let distributor: String?
    }

    private let connection: Connection
    private let registry: Registry
    private let hold: IdleExit.Hold
    private let log: Logger
    /// The user's choice; empty: the only one.
    private(set) var setting: String
    private var running: Set<String> = []
    private var activatable: Set<String> = []
    private var subscription: Connection.Subscription?
    /// Whether the bus has told which distributors there are.
    private var isReady = false
    private var queue: [String] = []
    /// The calls under way, by the registration's token.
    private var calling: [String: UnderWay] = [:]
    /// The number of calls made so far.
    private(set) var calls: UInt64 = 0
    /// The number and the key of the last call that the distributor accepted, by the registration's token.
    private var accepted: [String: (call: UInt64, key: String?)] = [:]
    /// How often distributors appeared without a quiet time between, and when last.
    private var appearances: (count: Int, last: ContinuousClock.Instant?) = (0, nil)
    private var appearanceTimer: Poller.Token?
    /// Why a registration has no endpoint, by its token.
    private(set) var problems: [String: String] = [:]
    private weak var observer: (any EndpointObserver)?

    init(connection: Connection, registry: Registry, setting: String, hold: IdleExit.Hold, log: Logger) {
        (self.connection, self.registry, self.setting, self.hold, self.log) = (connection, registry, setting, hold, log)
    }

    /// All distributors, in alphabetical order.
    var distributors: [String] { running.union(activatable).sorted() }

    /// The one to use; nil: see `problem`.
    private var chosen: String? {
        let all = distributors
        if !setting.isEmpty { return all.contains(setting) ? setting : nil }
        return all.count == 1 ? all[0] : nil
    }

    private var problem: String {
        if !setting.isEmpty { return "the distributor \(setting) does not run; it is waited for" }
        let all = distributors
        return all.isEmpty
            ? "no distributor of UnifiedPush runs in this session; one is waited for"
            : "there are several distributors; choose one by the property Distributor: \(all.joined(separator: ", "))"
    }

    /// Finds the distributors, and makes all registrations again.
    func begin(telling observer: any EndpointObserver) async {
        self.observer = observer
        var rule = MatchRule(sender: BusDaemon.name, interface: BusDaemon.name, member: BusDaemon.nameOwnerChanged.name)
        rule.argument0Namespace = String(UnifiedPush.distributorPrefix.dropLast())
        subscription = connection.subscribe(rule) { [weak self] message in
            guard let (name, _, owner) = BusDaemon.nameOwnerChanged.read(message) else { return }
            self?.take(name, isThere: !owner.isEmpty)
        }
        // A name that comes or goes after these answers is in a signal.
        let names = try? await connection.call(BusDaemon.listNames, on: BusDaemon.name, at: BusDaemon.path, ())
        running.formUnion((names ?? []).filter(Self.isDistributor))
        let startable = try? await connection.call(BusDaemon.listActivatableNames, on: BusDaemon.name, at: BusDaemon.path, ())
        activatable = Set((startable ?? []).filter(Self.isDistributor))
        isReady = true
        registerAll()
    }

    private static func isDistributor(_ name: String) -> Bool { name.hasPrefix(UnifiedPush.distributorPrefix) }

    private func take(_ name: String, isThere: Bool) {
        guard Self.isDistributor(name) else { return }
        let former = chosen
        if isThere { running.insert(name) } else { running.remove(name) }
        // If one of two distributors leaves, the other one is chosen.
        if let chosen, isThere && name == chosen || chosen != former { appeared() }
    }

    /// Makes the registrations at a distributor that has appeared. The bus starts a distributor for each registration. If the distributor
    /// crashes each time, it appears again and again, so after `promptAppearances` the registrations wait.
    private func appeared() {
        let isSoon = appearances.last.map { .now - $0 < Self.appearancePause } ?? false
        appearances = (isSoon ? appearances.count +| 1 : 1, .now)
        guard appearances.count > Self.promptAppearances else { return registerRest() }
        guard appearanceTimer == nil else { return }
        appearanceTimer = Poller.shared.schedule(after: Self.appearancePause) { [weak self] in
            self?.appearanceTimer = nil
            self?.registerRest()
        }
    }

    /// A call that is under way may itself have started the distributor. A call to another distributor does not count: that one may have
    /// left without an answer.
    private func registerRest() {
        for registration in registry.all where calling[registration.token].map({ $0.distributor != chosen }) ?? true {
            register(registration.token)
        }
    }

    /// - Throws: `InvalidOption` for a name that no distributor can have.
    static func check(_ name: String) throws(Refusal) {
        guard name.isEmpty || isName(name) else {
            throw Refusal(
                .invalidOption, "Distributor must be a name such as \(UnifiedPush.distributorPrefix)ntfy, or empty, not “\(shown(name))”.")
        }
    }

    /// Moves all registrations to another distributor. The choice is on disk already.
    ///
    /// - Parameter name: one that `check` accepts.
    func choose(_ name: String) {
        setting = name
        registerAll()
    }

    private static func isName(_ name: String) -> Bool {
        guard isDistributor(name), name.utf8.count <= 255 else { return false }
        return name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).allSatisfy { element in
            guard let first = element.first, !first.isDigit else { return false }
            return element.allSatisfy { $0.isLetter || $0.isDigit || $0 == UInt8(ascii: "_") || $0 == UInt8(ascii: "-") }
        }
    }

    // MARK: Registering

    private func registerAll() { for registration in registry.all { register(registration.token) } }

    /// Makes a registration at the distributor, when its turn comes. Without a distributor, `changed` is told at once.
    ///
    /// Does nothing while the registration is not on disk. If that is refused, the distributor must not have it; else `PushObject` calls
    /// this function again.
    func register(_ token: String) {
        guard isReady, registry.saved(token) != nil else { return }  // `begin` makes all
        guard chosen != nil else { return settle(token, problem) }
        if !queue.contains(token) { queue.append(token) }
        callNext()
    }

    /// As `register`, unless a call with the same key is under way, or was accepted after the first `calls` calls: another call of
    /// `Register` may have been answered first.
    func register(_ token: String, unlessDoneAfter calls: UInt64) {
        let key = registry.saved(token)?.rules.vapid
        if let underWay = calling[token], underWay.key == key { return }
        if let last = accepted[token], last.call > calls, last.key == key { return }
        register(token)
    }

    private func callNext() {
        while calling.count < Self.mostCalls, let index = queue.firstIndex(where: { calling[$0] == nil }) {
            let token = queue.remove(at: index)
            guard let registration = registry.saved(token) else { continue }
            calling[token] = UnderWay(key: registration.rules.vapid, distributor: chosen)
            calls +|= 1
            BusActor.spawn { [self, number = calls] in
                await call(for: registration, number)
                calling.removeValue(forKey: token)
                callNext()
            }
        }
        hold.isHeld = !calling.isEmpty
    }

    private func call(for registration: Registration, _ number: UInt64) async {
        let token = registration.token
        guard let former = registry[token] else { return }
        guard let distributor = chosen else { return settle(token, problem) }
        if !former.distributor.isEmpty, former.distributor != distributor {
            // Do this first, so that an answer of the former distributor changes nothing.
            registry.change(token) { ($0.distributor, $0.endpoint, $0.version) = ("", "", 0) }
            if former.endpoint.isEmpty {
                // A distributor that has given no endpoint may hang. The new one does not wait for its answer.
                unregister(former)
            } else {
                observer?.changed(token, hasNewEndpoint: true)
                await unregister(token, at: former.distributor)
            }
        }
        let (failure, hasAnswered) = await register(registration, at: distributor)
        guard registry[token] != nil else {
            // The app left meanwhile.
            await unregister(token, at: distributor)
            return
        }
        // Without an answer, it may have the registration, or get it later. It must hear of the registration's end all the same.
        if failure == nil || !hasAnswered, registry[token]?.distributor != distributor {
            registry.change(token) { $0.distributor = distributor }
        }
        guard failure == nil else {
            log.notice(
                "the distributor refused a registration",
                metadata: ["app": "\(registration.key.app)", "distributor": "\(distributor)", "reason": "\(failure ?? "")"])
            return settle(token, "the distributor \(distributor) refused the registration: \(failure ?? "")")
        }
        accepted[token] = (number, registration.rules.vapid)
        problems[token] = registry[token]?.endpoint.isEmpty == true ? "the distributor \(distributor) has not told the endpoint yet" : nil
        if registry[token]?.endpoint.isEmpty == false { observer?.changed(token, hasNewEndpoint: false) }
    }

    /// - Returns: why the distributor refused, or nil: it did not; and whether it has answered.
    private func register(_ registration: Registration, at distributor: String) async -> (failure: String?, hasAnswered: Bool) {
        let description = registration.key.shortDescription
        var arguments: [String: Variant] = [
            "service": .string(Push.busName), "token": .string(registration.token), "description": .string(description),
        ]
        if let vapid = registration.rules.vapid { arguments["vapid"] = .string(vapid) }
        do throws(DBusError) {
            let answer = try await connection.call(
                UnifiedPush.Version2.register, on: distributor, at: UnifiedPush.distributorPath, arguments, timeout: Self.patience)
            guard answer["success"] != .string("REGISTRATION_SUCCEEDED") else { return (nil, true) }
            return (Self.brief(answer["reason"]?.string ?? "no reason given"), true)
        } catch {
            guard Self.isUnknown(error) else { return (Self.brief(error.message), !Self.isNoReply(error)) }
        }
        do throws(DBusError) {
            let (result, reason) = try await connection.call(
                UnifiedPush.Version1.register, on: distributor, at: UnifiedPush.distributorPath,
                (Push.busName, registration.token, description), timeout: Self.patience)
            guard result != "NEW_ENDPOINT", result != "REGISTRATION_SUCCEEDED" else { return (nil, true) }
            return (Self.brief(reason.isEmpty ? result : reason), true)
        } catch { return (Self.brief(error.message), !Self.isNoReply(error)) }
    }

    private static func isNoReply(_ error: DBusError) -> Bool { error.name == "org.freedesktop.DBus.Error.NoReply" }

    /// Whether the distributor has no version 2.
    private static func isUnknown(_ error: DBusError) -> Bool {
        ["UnknownMethod", "UnknownInterface", "UnknownObject", "InvalidArgs"].contains { error.name == "org.freedesktop.DBus.Error.\($0)" }
    }

    private static func brief(_ text: String) -> String { String(shown(text).unicodeScalars.prefix(300)) }

    /// Ends a registration at its distributor, if that runs.
    func unregister(_ registration: Registration) {
        (problems[registration.token], accepted[registration.token]) = (nil, nil)
        guard !registration.distributor.isEmpty else { return }
        BusActor.spawn { [self] in await unregister(registration.token, at: registration.distributor) }
    }

    private func unregister(_ token: String, at distributor: String) async {
        do throws(DBusError) {
            _ = try await connection.call(
                UnifiedPush.Version2.unregister, on: distributor, at: UnifiedPush.distributorPath, ["token": .string(token)],
                timeout: Self.patience, starts: false)
        } catch {
            guard Self.isUnknown(error) else { return }
            _ = try? await connection.call(
                UnifiedPush.Version1.unregister, on: distributor, at: UnifiedPush.distributorPath, token, timeout: Self.patience,
                starts: false)
        }
    }

    private func settle(_ token: String, _ problem: String) {
        problems[token] = problem
        observer?.changed(token, hasNewEndpoint: false)
    }

    // MARK: What the distributor says

    /// - Throws: `InvalidUrl` for an endpoint that is no URL; `NoSuchObject` for a token that we did not issue, or that the sender has no
    ///   longer.
    func newEndpoint(_ token: String, _ endpoint: String, version: UInt32, by sender: String) async throws(Refusal) {
        guard let former = registry[token] else { throw Self.unknownToken }
        _ = try DownloadURL(endpoint)
        let distributor = chosen ?? former.distributor
        var owner: String?
        if !distributor.isEmpty {
            owner = try? await connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, distributor)
            guard owner == nil || owner == sender else { throw Self.unknownToken }
        }
        guard let registration = registry[token] else { throw Self.unknownToken }
        // The registration may have moved meanwhile, and this distributor has heard of the end. Without a chosen one, nothing moves.
        let isPresent = chosen.map { $0 == distributor } ?? [former.distributor, distributor].contains(registration.distributor)
        guard isPresent else { throw Self.unknownToken }
        problems[token] = nil
        // Its answer to `Register` may have come too late. It must hear of the registration's end all the same.
        if owner != nil, registration.distributor.isEmpty { registry.change(token) { $0.distributor = distributor } }
        guard registration.endpoint != endpoint || registration.version != version else {
            observer?.changed(token, hasNewEndpoint: false)
            return
        }
        registry.change(token) { ($0.endpoint, $0.version) = (endpoint, version) }
        log.info("a registration has a new endpoint", metadata: ["app": "\(registration.key.app)", "name": "\(registration.key.name)"])
        observer?.changed(token, hasNewEndpoint: true)
    }

    /// A distributor dropped a registration. It is made again at the next start. One that had the registration before has no say.
    func unregistered(_ token: String, by sender: String) async {
        guard let former = registry[token], !former.endpoint.isEmpty else { return }
        let owner = try? await connection.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, former.distributor)
        guard owner == nil || owner == sender, let registration = registry[token], registration.endpoint == former.endpoint else { return }
        registry.change(token) { ($0.distributor, $0.endpoint, $0.version) = ("", "", 0) }
        problems[token] = "the distributor ended the registration"
        log.notice("the distributor ended a registration", metadata: ["app": "\(registration.key.app)"])
        observer?.changed(token, hasNewEndpoint: true)
    }

    static let unknownToken = Refusal(.noSuchObject, "There is no registration with this token.")
}
