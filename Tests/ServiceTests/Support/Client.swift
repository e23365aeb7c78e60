internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport

/// A client of the service on its own connection, which records every signal of the service from the start.
@BusActor final class Client {
    let connection: Connection
    let signals: Recorder

    init(address: String) async throws {
        let connection = try Connection.open(address: address)
        let recorder = Recorder()
        (self.connection, signals) = (connection, recorder)
        _ = connection.subscribe(MatchRule(sender: BusName.service)) { recorder.take($0) }
        // The bus has the match rule once it has answered a later call.
        _ = try await connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, BusName.service)
    }

    /// Calls a method of the service. The call may wait for later steps of its test, and each step takes seconds on a busy machine.
    func call<In, Out>(
        _ method: MethodOf<In, Out>, at path: ObjectPath = BusName.managerPath, _ arguments: In, timeout: Duration = .seconds(180)
    )
        async throws -> Out
    { try await connection.call(method, on: BusName.service, at: path, arguments, timeout: timeout) }

    func download(_ url: String, _ options: [String: Variant]) async throws -> ObjectPath {
        try await untilFolderAnswers { try await call(Manager.download, (url, patient(options))) }
    }
    func registerAsset(_ app: String, _ name: String, _ url: String, _ options: [String: Variant]) async throws -> ObjectPath {
        try await untilFolderAnswers { try await call(Manager.registerAsset, (app, name, url, options)) }
    }

    /// Makes a call again, at most four times, while the service refuses it because a folder did not answer in time. A refused call has
    /// changed nothing. On a busy machine, the thread that looks at the folder may not run for five seconds.
    func untilFolderAnswers<Value>(_ call: () async throws -> Value) async throws -> Value {
        for _ in 0..<4 {
            do {
                return try await call()
            } catch let error as DBusError where error.isSilentFolder {}
        }
        return try await call()
    }

    /// Waits until the download has ended, which may take as long as the disk does.
    func wait(_ path: ObjectPath) async throws -> String { try await call(Download.wait, at: path, [:], timeout: .seconds(180)) }
    func list(_ filter: [String: Variant] = [:]) async throws -> [ObjectPath] { try await call(Manager.list, filter) }
    func pause(_ path: ObjectPath) async throws { try await call(Download.pause, at: path, ()) }
    func resume(_ path: ObjectPath) async throws { try await call(Download.resume, at: path, ()) }
    func cancel(_ path: ObjectPath) async throws { try await call(Download.cancel, at: path, ()) }
    func retry(_ path: ObjectPath) async throws { try await call(Download.retry, at: path, ()) }
    func remove(_ path: ObjectPath, deletingFile: Bool = false) async throws { try await call(Download.remove, at: path, deletingFile) }

    func get(_ interface: String, _ name: String, at path: ObjectPath) async throws -> Variant {
        try await call(Standard.get, at: path, (interface, name))
    }
    func get<V>(_ property: PropertyOf<V>, at path: ObjectPath = BusName.managerPath) async throws -> V {
        let value = try await get(property.interface, property.name, at: path)
        guard let value = V(value) else { throw DBusError.invalidArgs("\(property.name) is \(value)") }
        return value
    }
    func set<V>(_ property: PropertyOf<V>, at path: ObjectPath = BusName.managerPath, _ value: V) async throws {
        try await call(Standard.set, at: path, (property.interface, property.name, value.variant))
    }
    func all(_ path: ObjectPath) async throws -> [String: Variant] { try await call(Standard.getAll, at: path, Download.interface) }

    /// Whether the service refuses changes because the disk of its queue is full: three in a row, because it opens the database again after
    /// a failure, which may make room for another commit.
    func isRefusedStorage() async -> Bool {
        var refusals = 0
        for limit in 100...5000 as ClosedRange<UInt32> where refusals < 3 {
            let refusal = await thrown { try await set(Manager.maxActive, limit) }
            refusals = refusal?.name == todokuError("Storage") ? refusals + 1 : 0
        }
        return refusals == 3
    }
}

extension DBusError {
    /// Whether the service refused a call because a folder did not answer in time.
    fileprivate var isSilentFolder: Bool {
        name == todokuError("PermissionDenied") && message.hasSuffix(" did not answer within 5 seconds.")
    }
}

/// One signal of the service, as received.
struct Seen: Sendable {
    let message: Message
    let path: String
    let member: String
    let arrived = ContinuousClock.now

    init(_ message: Message) { (self.message, path, member) = (message, message.path, message.member) }

    var progress: (written: UInt64, received: UInt64, total: Int64)? { Download.progress.read(message) }
    var resumedAt: (offset: UInt64, total: Int64)? { Download.resumedAt.read(message) }
    var completed: (error: String, message: String, details: [String: Variant])? { Download.completed.read(message) }
    var ended: (path: ObjectPath, outcome: String, error: String)? { Manager.downloadEnded.read(message) }
    var changed: [String: Variant]? { Standard.propertiesChanged.read(message)?.1 }
    /// The state in a `PropertiesChanged`.
    var state: String? { changed?["State"]?.string }
}

/// All signals of the service, in the order of their arrival.
@BusActor final class Recorder {
    private(set) var seen: [Seen] = []
    private var waiters: [(id: Int, isMet: ([Seen]) -> Bool, resume: (Bool) -> Void)] = []
    private var nextWaiter = 0

    func take(_ message: Message) {
        guard message.interface != "org.freedesktop.DBus" else { return }
        seen.append(Seen(message))
        let met = waiters.filter { $0.isMet(seen) }
        waiters.removeAll { waiter in met.contains { $0.id == waiter.id } }
        for waiter in met { waiter.resume(true) }
    }

    /// Waits until the signals so far meet a condition; false if they do not within `limit`.
    func until(within limit: Duration = .seconds(60), _ isMet: @escaping ([Seen]) -> Bool) async -> Bool {
        await withCheckedContinuation { continuation in
            // Check in here, because other work of the loop may run between an outside check and this body.
            if isMet(seen) { return continuation.resume(returning: true) }
            nextWaiter += 1
            let id = nextWaiter
            let timer = Poller.shared.schedule(after: limit) { [self] in
                waiters.removeAll { $0.id == id }
                continuation.resume(returning: false)
            }
            waiters.append(
                (
                    id, isMet,
                    { result in
                        Poller.shared.cancel(timer)
                        continuation.resume(returning: result)
                    }
                ))
        }
    }

    /// Waits until an object has sent a signal `count` times; false if it does not within `limit`.
    func has(_ member: String, at path: ObjectPath = BusName.managerPath, count: Int = 1, within limit: Duration = .seconds(60)) async
        -> Bool
    {
        await until(within: limit) { seen in seen.count { $0.member == member && $0.path == path.value } >= count }
    }

    /// How many such signals the object has sent so far.
    func count(_ member: String, at path: ObjectPath) -> Int { seen.count { $0.member == member && $0.path == path.value } }

    /// Waits until the object has announced `state`, whatever it has announced since. For a state that passes.
    func hasBeen(_ state: String, _ path: ObjectPath, within limit: Duration = .seconds(60)) async -> Bool {
        await until(within: limit) { seen in seen.contains { $0.path == path.value && $0.state == state } }
    }

    /// Waits until `state` is the last that the object has announced. Only for a state that stays until the test changes it.
    func isIn(_ state: String, _ path: ObjectPath, within limit: Duration = .seconds(60)) async -> Bool {
        await until(within: limit) { seen in seen.last { $0.path == path.value && $0.state != nil }?.state == state }
    }

    /// Forgets the signals so far.
    func forget() { seen = [] }

    /// The signals of one object.
    func of(_ path: ObjectPath) -> [Seen] { seen.filter { $0.path == path.value } }
    /// The states that an object has announced, in order.
    func states(of path: ObjectPath) -> [String] { of(path).compactMap(\.state) }
    func count(_ member: String) -> Int { seen.count { $0.member == member } }
}
