internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// A bus with a client and a notification server, on which cases run one after another.
@BusActor final class Lane {
    static let todokud = builtProgram("todokud", variable: "TODOKUD")

    let shim: Shim
    let toasts: OddServer
    private let bus: PrivateBus
    let connection: Connection
    private var owner: String?
    private var daemon: Child?
    /// The service's signals since the case began: how often each path sent each member.
    private(set) var signals: [String: [String: Int]] = [:]
    private(set) var received: [String: UInt64] = [:]
    /// The offsets from which the transfers of each path have resumed since the case began.
    private(set) var resumed: [String: [UInt64]] = [:]

    init(_ shim: Shim) async throws {
        self.shim = shim
        let proxies = ["http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"]
        bus = await PrivateBus(extra: Dictionary(uniqueKeysWithValues: proxies.map { ($0, "") }))
        toasts = try OddServer(name: "counter", at: bus.address, capabilities: ["actions", "body"])
        connection = try Connection.open(address: bus.address)
        _ = connection.watchOwner(of: BusName.service) { [weak self] in self?.owner = $0 }
        _ = connection.subscribe(MatchRule(sender: BusName.service)) { [weak self] in self?.take($0) }
        // The bus has the match rules once it has answered a later call.
        _ = try await connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
    }

    private func take(_ message: Message) {
        guard message.interface != "org.freedesktop.DBus" else { return }
        signals[message.path, default: [:]][message.member, default: 0] += 1
        if let progress = Download.progress.read(message) { received[message.path] = progress.1 }
        if let (offset, _) = Download.resumedAt.read(message) { resumed[message.path, default: []].append(offset) }
    }

    /// Forgets the previous case.
    func begin() {
        (signals, received, resumed) = ([:], [:], [:])
        toasts.forget()
    }

    /// How often a download has sent a signal.
    func count(_ member: String, _ path: ObjectPath) -> Int { signals[path.value]?[member] ?? 0 }

    // MARK: The daemon

    /// Starts a daemon, and waits until it answers or has ended.
    ///
    /// - Parameters:
    ///   - disks: file systems that only this daemon sees.
    ///   - idleExit: the daemon ends after so many seconds with nothing to do.
    /// - Returns: nil if the daemon runs, else how it ended.
    func start(
        _ place: Place, _ fault: Fault? = nil, on disks: MemoryDisks? = nil, more: [String: String] = [:], idleExit: Int = 3600
    ) async -> Ending? {
        precondition(owner == nil, "the daemon before still runs")
        let daemon = Child(
            (disks?.command ?? []) + [Self.todokud, "--idle-exit", "\(idleExit)"],
            environment: bus.environment.merging(place.environment(shim, fault, more: more)) { $1 })
        self.daemon = daemon
        guard await eventually({ owner != nil || !daemon.isRunning }) else { return Ending(status: -1, errors: "no name") }
        // The daemon owns its name before it has opened its database, and answers only after that.
        if owner != nil, await answers() { return nil }
        return await eventually { !daemon.isRunning }
            ? Ending(await daemon.wait()) : Ending(status: -1, errors: "it runs and does not answer")
    }

    private func answers() async -> Bool {
        // Not Ping, which libdbus itself answers.
        let arguments = (Manager.interface, Manager.version.name)
        let call = try? await connection.call(
            Standard.get, on: BusName.service, at: BusName.managerPath, arguments, timeout: .seconds(60))
        return call != nil
    }

    var isRunning: Bool { daemon?.isRunning ?? false }

    /// Sends a signal. Returns once the daemon has ended and the bus has noticed.
    @discardableResult func end(_ signal: Int32) async -> Ending {
        guard let daemon else { return Ending(status: 0, errors: "") }
        daemon.signal(signal)
        let ended = await eventually { !daemon.isRunning }
        if !ended { daemon.signal(SIGKILL) }
        let exit = Ending(await daemon.wait())
        self.daemon = nil
        #expect(await eventually { await isNameFree() })
        return ended ? exit : Ending(status: -1, errors: "it did not end within 60 seconds. \(exit.errors)")
    }

    /// Asks the bus, because the signals of a daemon that has lived briefly may be still on their way. They come before the answer.
    private func isNameFree() async -> Bool {
        let hasOwner = try? await connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
        return hasOwner == false && owner == nil
    }

    /// Whether the daemon, told to leave, releases its name in time. Its process may remain: the kernel keeps a process that waits for a
    /// disk.
    func leaves(within limit: Duration) async -> Bool {
        daemon?.signal(SIGTERM)
        return await eventually(within: limit) { owner == nil }
    }

    /// Whether the daemon has its name.
    var hasName: Bool { owner != nil }
    var pid: Int32? { daemon?.pid }
    var address: String { bus.address }

    /// Waits until the daemon has ended by itself, and returns its status.
    func crash() async throws -> Int32 {
        #expect(await eventually { !isRunning })
        return await end(SIGKILL).status
    }

    /// How the daemon ended, if it has.
    func lastWords() async -> String {
        guard let daemon, !daemon.isRunning else { return "" }
        let exit = await daemon.wait()
        return "; the daemon ended with \(exit.status): \(exit.errors.suffix(300))"
    }

    // MARK: Calls

    /// Whether the service answers a caller that is new to it.
    func answersNewcomer() async -> Bool {
        guard let newcomer = try? Connection.open(address: bus.address) else { return false }
        let arguments = (Manager.interface, Manager.version.name)
        let call = try? await newcomer.call(Standard.get, on: BusName.service, at: BusName.managerPath, arguments, timeout: .seconds(60))
        return call != nil
    }

    func download(_ url: String, _ options: [String: Variant]) async throws(DBusError) -> ObjectPath {
        let arguments = (url, patient(options))
        return try await connection.call(Manager.download, on: BusName.service, at: BusName.managerPath, arguments, timeout: .seconds(60))
    }
    func set(_ property: String, _ value: Variant) async throws(DBusError) {
        try await connection.call(
            Standard.set, on: BusName.service, at: BusName.managerPath, (Manager.interface, property, value), timeout: .seconds(60))
    }
    func retry(_ path: ObjectPath) async throws {
        try await connection.call(Download.retry, on: BusName.service, at: path, (), timeout: .seconds(60))
    }
    func cancel(_ path: ObjectPath) async throws {
        try await connection.call(Download.cancel, on: BusName.service, at: path, (), timeout: .seconds(60))
    }

    /// Opens the file of a finished download, and closes it again.
    func openFile(_ path: ObjectPath) async throws(DBusError) {
        _ = try await connection.call(Download.openFile, on: BusName.service, at: path, (), timeout: .seconds(60))
    }

    /// Removes a download and its finished file.
    func remove(_ path: ObjectPath) async throws(DBusError) {
        try await connection.call(Download.remove, on: BusName.service, at: path, true, timeout: .seconds(60))
    }

    func trash(_ path: ObjectPath) async throws(DBusError) {
        try await connection.call(Download.trash, on: BusName.service, at: path, (), timeout: .seconds(60))
    }

    func setHostRule(_ host: String, _ rule: [String: Variant]) async throws {
        try await connection.call(Manager.setHostRule, on: BusName.service, at: BusName.managerPath, (host, rule), timeout: .seconds(60))
    }

    /// All downloads of the service, by path.
    func describe() async throws -> [String: Described] {
        let names = ["State", "WaitReason", "WaitUntil", "Path", "Error", "Received"]
        let all = try await connection.call(
            Manager.describe, on: BusName.service, at: BusName.managerPath, ([:], names), timeout: .seconds(60))
        return Dictionary(uniqueKeysWithValues: all.map { ($0.fields.0.value, Described($0.fields.1)) })
    }

    /// The URLs of all downloads of the service, by path.
    func urls() async throws -> [String: String] {
        let all = try await connection.call(
            Manager.describe, on: BusName.service, at: BusName.managerPath, ([:], ["Url"]), timeout: .seconds(60))
        return Dictionary(uniqueKeysWithValues: all.map { ($0.fields.0.value, $0.fields.1["Url"]?.string ?? "") })
    }

    /// A property of the manager.
    func property(_ name: String) async throws -> Variant {
        try await connection.call(
            Standard.get, on: BusName.service, at: BusName.managerPath, (Manager.interface, name), timeout: .seconds(60))
    }

    /// How many downloads were salvaged from a damaged queue, and whether others may be lost.
    func salvaged() async throws -> (UInt32, Bool) {
        guard case .structure(let fields) = try await property("Salvaged") else { return (0, false) }
        return (fields.first?.uint32 ?? 0, fields.last?.bool ?? false)
    }

    /// Waits until all of `paths` have ended, the daemon has ended, or `limit` is over.
    func settle(_ paths: [ObjectPath], within limit: Duration = .seconds(180)) async throws -> [String: Described] {
        var last: [String: Described] = [:]
        _ = try await eventually(within: limit) {
            guard isRunning else { return true }
            last = try await describe()
            return paths.allSatisfy { last[$0.value]?.hasEnded ?? true }
        }
        return last
    }
}

/// How a daemon ended.
struct Ending: Sendable {
    let status: Int32
    let errors: String
}

extension Ending {
    init(_ exit: Child.Exit) { self.init(status: exit.status, errors: exit.errors) }
}

/// A download as `Describe` reports it.
struct Described: Sendable, Equatable {
    let state: String
    let waitReason: String
    /// Microseconds since the epoch; 0: none.
    let waitUntil: UInt64
    let path: String
    let error: EndError
    let received: UInt64

    init(_ properties: [String: Variant]) {
        state = properties["State"]?.string ?? ""
        waitReason = properties["WaitReason"]?.string ?? ""
        waitUntil = properties["WaitUntil"]?.uint64 ?? 0
        path = properties["Path"]?.string ?? ""
        error = properties["Error"].flatMap { EndError($0) } ?? EndError()
        received = properties["Received"]?.uint64 ?? 0
    }

    var hasEnded: Bool { ["finished", "failed", "cancelled"].contains(state) }
    /// The facts that must not change after the end.
    var outcome: String { "\(state) \(error.name) \(path)" }
}

/// Whether a message is one clear sentence for a person. It begins like a sentence (or with the name of its option), ends like one, is on
/// one line, and shows no internals.
func isClear(_ message: String) -> Bool {
    let message = message.hasPrefix("directory: ") ? "D" + message.dropFirst() : message
    guard let first = message.first, first.isUppercase || first.isNumber || !first.isLetter else { return false }
    return message.count > 15 && message.utf8.count < 1000 && message.hasSuffix(".") && !message.hasSuffix("..")
        && !["\n", "Optional(", "DiskError", "StoreError", "SQLITE_", "nil"].contains { message.contains($0) }
}

extension Lane {
    /// Each end has a toast. It is repeated only if the daemon was killed before the row recorded the toast.
    func expectToast(of name: String, kills: Int, _ verdict: inout Verdict) async {
        _ = await eventually { toasts.ends(of: name) > 0 }
        let times = toasts.ends(of: name)
        verdict.expect((1...1 + kills).contains(times), "\(name) was toasted \(times) times: \(toasts.bodies)")
    }
}

extension OddServer {
    /// The bodies of the toasts of ends, in order: 「ダウンロードが完了しました」 and 「ダウンロードに失敗しました」.
    var bodies: [String] { received.lazy.filter { $0.summary.hasSuffix("ました") }.map(\.body) }
    /// How many toasts say that this file is complete: "name (size)".
    func ends(of name: String) -> Int { bodies.count { $0.hasPrefix("\(name) (") } }
}
