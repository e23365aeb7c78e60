internal import CDBus
public import EventLoop
internal import Glibc

/// A connection to a message bus. The bus loop serves libdbus' watches and timeouts.
///
/// Everything runs on `BusActor`. A connection lives until its program ends or the bus goes away.
@BusActor public final class Connection {
    /// Most reads of the socket by `dispatchArrived`, of about 2 KiB each.
    private static let mostReadings = 10_000

    /// libdbus stops reading while so many descriptors of received messages are open. Its default of 4,096 is more than the 1,024 files
    /// that some systems let a program open. `CallerGate` holds fewer.
    private static let mostDescriptors = 256

    let raw: OpaquePointer
    /// libdbus' watches and timeouts, by their pointers.
    var watches: [OpaquePointer: Poller.Token] = [:]
    var timeouts: [OpaquePointer: Poller.Token] = [:]
    private var dispatchIsScheduled = false
    /// An answer was dispatched, and its caller has not continued yet.
    var callerContinues = false
    /// Calls whose callers have been identified meanwhile. The last element is answered next.
    private var identified: [(PendingCall, CallerIdentity)] = []
    private var isHeld = false
    private var subscriptions: [UInt64: (rule: MatchRule, receive: @BusActor (Message) -> Void)] = [:]
    private var nextSubscription: UInt64 = 0
    private var tree: (any ObjectTree)?
    private var gate: CallerGate?
    private var refusal: DBusError?
    private(set) var isConnected = true
    /// Of a monitor: called with each message.
    var observer: (@BusActor (Message) -> Void)?

    /// Method calls received since the connection was made, and the time of the last one.
    public private(set) var callsReceived: UInt64 = 0
    public private(set) var lastCall = ContinuousClock.now
    /// Called once when the bus goes away.
    public var onDisconnect: (@BusActor () -> Void)?

    /// Connects to the session bus and says Hello. Blocks until the bus answers.
    public static func session() throws(DBusError) -> Connection { try connect(to: DBUS_BUS_SESSION) }

    private static func connect(to bus: DBusBusType) throws(DBusError) -> Connection {
        let raw = try withDBusError { dbus_bus_get_private(bus, &$0) }
        guard let raw else { throw .disconnected("no answer from the bus") }
        return Connection(adopting: raw)
    }

    /// Connects to the bus at `address` (D-Bus specification, "Server Addresses") and says Hello. Blocks until the bus answers.
    public static func open(address: String) throws(DBusError) -> Connection {
        let raw = try withDBusError { dbus_connection_open_private(address, &$0) }
        guard let raw else { throw .disconnected("nothing answers at \(address)") }
        let connection = Connection(adopting: raw)  // its deinit closes the connection if registering fails
        _ = try withDBusError { dbus_bus_register(raw, &$0) }
        return connection
    }

    /// Adopts the private connection `raw` (+1). It is closed with the last reference to this object.
    init(adopting raw: OpaquePointer) {
        self.raw = raw
        dbus_connection_set_exit_on_disconnect(raw, 0)
        dbus_connection_set_route_peer_messages(raw, 0)
        let me = Unmanaged.passUnretained(self).toOpaque()  // deinit removes the functions
        dbus_connection_set_watch_functions(raw, watchAdded, watchRemoved, watchToggled, me, nil)
        dbus_connection_set_timeout_functions(raw, timeoutAdded, timeoutRemoved, timeoutToggled, me, nil)
        dbus_connection_add_filter(raw, messageReceived, me, nil)
        scheduleDispatch()
    }

    isolated deinit {
        dbus_connection_remove_filter(raw, messageReceived, Unmanaged.passUnretained(self).toOpaque())
        dbus_connection_set_watch_functions(raw, nil, nil, nil, nil, nil)
        dbus_connection_set_timeout_functions(raw, nil, nil, nil, nil, nil)
        for token in watches.values { Poller.shared.cancel(token) }
        for token in timeouts.values { Poller.shared.cancel(token) }
        dbus_connection_close(raw)
        dbus_connection_unref(raw)
    }

    /// Tells this run of the bus, and so a session, from all others: 32 hexadecimal digits (D-Bus specification, "UUIDs").
    public var busID: String {
        guard let id = dbus_connection_get_server_id(raw) else { return "" }
        defer { dbus_free(id) }
        return String(cString: id)
    }

    public var uniqueName: String { dbus_bus_get_unique_name(raw).map { String(cString: $0) } ?? "" }

    // MARK: Names

    /// Requests `name`. Blocks until the bus answers. False if another connection owns the name.
    public func requestName(_ name: String) throws(DBusError) -> Bool {
        try check(name)
        let raw = raw
        let result = try readingOn { () throws(DBusError) in
            try withDBusError { dbus_bus_request_name(raw, name, UInt32(DBUS_NAME_FLAG_DO_NOT_QUEUE), &$0) }
        }
        return result == DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER || result == DBUS_REQUEST_NAME_REPLY_ALREADY_OWNER
    }

    /// Releases `name`. Blocks until the bus answers.
    public func releaseName(_ name: String) throws(DBusError) {
        try check(name)
        let raw = raw
        _ = try readingOn { () throws(DBusError) in try withDBusError { dbus_bus_release_name(raw, name, &$0) } }
    }

    /// Makes the blocking call `call`. The bus sends the calls for us before its answer, also those that it kept for the name. libdbus must
    /// not stop reading before that answer, however many bytes and descriptors the calls bring.
    private func readingOn<R>(_ call: () throws(DBusError) -> R) throws(DBusError) -> R {
        let mostBytes = dbus_connection_get_max_received_size(raw)
        dbus_connection_set_max_received_size(raw, Int(Int32.max))
        dbus_connection_set_max_received_unix_fds(raw, Int(Int32.max))
        defer {
            dbus_connection_set_max_received_size(raw, mostBytes)
            dbus_connection_set_max_received_unix_fds(raw, Self.mostDescriptors)
            scheduleDispatch()  // messages that came before the answer have been read already, so no descriptor announces them
        }
        return try call()
    }

    /// libdbus aborts on a malformed name.
    private func check(_ name: String) throws(DBusError) {
        guard dbus_validate_bus_name(name, nil) != 0 else { throw .invalidArgs("\"\(name)\" is not a bus name") }
    }

    // MARK: Messages out

    /// Queues `message` in libdbus, which writes it in order when the socket is writable. Does nothing once the bus is gone.
    public func send(_ message: Message) {
        guard isConnected else { return }
        dbus_connection_send(raw, message.raw, nil)
    }

    /// Bytes that are not yet written to the bus.
    public var outgoingBytes: Int { Int(dbus_connection_get_outgoing_size(raw)) }

    /// Blocks until all sent messages have been written.
    public func flush() {
        guard isConnected else { return }
        dbus_connection_flush(raw)
        scheduleDispatch()  // flushing also reads messages
    }

    /// Calls a method of another program and awaits the answer.
    ///
    /// A caller on the actor continues before any later message is handled. So it can read a state, and then follow it by signals.
    ///
    /// - Parameters:
    ///   - timeout: `NoReply` is thrown after this time, in which the sleep of the machine does not count; nil: never.
    ///   - starts: whether the bus may start a program for the call. If false and the name has no owner, `NameHasNoOwner` is thrown.
    ///   - wait: gives the call up before its answer; for one call at a time.
    /// - Throws: the other program's error; `NoReply`; `Disconnected` when the bus goes away meanwhile, or when `wait` is given up;
    ///   `InvalidArgs` for an answer of other types than declared; the errors of `tell`.
    public func call<In, Out>(
        _ method: MethodOf<In, Out>, on destination: String, at path: ObjectPath, _ arguments: In, timeout: Duration? = .seconds(25),
        starts: Bool = true, wait: AnswerWait? = nil
    ) async throws(DBusError) -> Out {
        let message = try makeCall(method, on: destination, at: path, arguments)
        if !starts { message.startsNothing() }
        let reply = try await exchange(message, timeout: timeout, wait).get()
        if let error = reply.error { throw error }
        guard reply.signature == method.outSignature else {
            throw .invalidArgs("\(destination) answered \(method.name) with (\(reply.signature)), not (\(method.outSignature))")
        }
        return try reply.read(method.readOut)
    }

    /// Calls a method of another program without asking for an answer.
    ///
    /// - Throws: `InvalidArgs` for an invalid name or path, and for a text with a NUL, at which D-Bus would cut it; `LimitsExceeded` for
    ///   arguments of more than 64 MiB or 64 levels, and for a descriptor that cannot be duplicated.
    public func tell<In, Out>(_ method: MethodOf<In, Out>, on destination: String, at path: ObjectPath, _ arguments: In) throws(DBusError) {
        let message = try makeCall(method, on: destination, at: path, arguments)
        dbus_message_set_no_reply(message.raw, 1)
        send(message)
    }

    private func makeCall<In, Out>(
        _ method: MethodOf<In, Out>, on destination: String, at path: ObjectPath, _ arguments: In
    ) throws(DBusError) -> Message {
        try check(destination)
        guard ObjectPath.isValid(path.value) else { throw .invalidArgs("\"\(path)\" is not an object path") }
        let message = Message.call(to: destination, path: path.value, interface: method.interface, member: method.name)
        var writer = Writer(appendingTo: message.raw)
        method.writeIn(arguments, &writer)
        if let fault = writer.fault(of: "the call of \(method.name)", advice: "send less in one call") { throw fault }
        if writer.isCut { throw .invalidArgs("a text in the call of \(method.name) has a NUL, which D-Bus does not carry") }
        return message
    }

    private func exchange(_ message: Message, timeout: Duration?, _ wait: AnswerWait?) async -> Result<Message, DBusError> {
        // A call that is given up fails as if the bus were gone for it; see `AwaitedReply`.
        guard isConnected, !(wait?.isGivenUp ?? false) else { return .failure(.disconnected("the bus is gone")) }
        defer { wait?.end() }
        // libdbus aborts on a negative time; the largest time means never.
        let milliseconds = timeout.map { Int32(max(.zero, min($0, .milliseconds(Int32.max - 1))) / .milliseconds(1)) }
        return await withCheckedContinuation { continuation in
            var pending: OpaquePointer?
            dbus_connection_send_with_reply(raw, message.raw, &pending, milliseconds ?? Int32(DBUS_TIMEOUT_INFINITE))
            guard let pending else { return continuation.resume(returning: .failure(.disconnected("the bus is gone"))) }
            let box = Unmanaged.passRetained(AwaitedReply(self, continuation)).toOpaque()  // libdbus calls `releaseContinuation`
            dbus_pending_call_set_notify(pending, pendingCallEnded, box, releaseContinuation)
            wait?.begin(pending)
            dbus_pending_call_unref(pending)  // the connection holds its own reference until the reply
        }
    }

    // MARK: Messages in

    /// Holds arriving messages until `export`, because the service cannot answer yet when it gets its name.
    public func hold() { isHeld = true }

    /// Answers the held calls with `error` and releases `name`: for a service that cannot start.
    public func refuse(_ error: DBusError, leaving name: String) {
        refusal = error
        isHeld = false
        try? releaseName(name)  // later calls are not for us
        dispatchArrived()
        flush()
    }

    /// Makes `gate` identify each caller before its calls are answered. Without a gate every caller is `.user`.
    public func guardCalls(by gate: CallerGate) {
        gate.attach(to: self)
        self.gate = gate
    }

    /// From now on `tree` answers method calls.
    public func export(_ tree: any ObjectTree) {
        self.tree = tree
        isHeld = false
        scheduleDispatch()
    }

    /// Identifies a subscription.
    public struct Subscription: Hashable, Sendable { fileprivate let number: UInt64 }

    /// Calls `receive` with each signal that matches, until `unsubscribe`.
    public func subscribe(_ rule: MatchRule, _ receive: @escaping @BusActor (Message) -> Void) -> Subscription {
        nextSubscription += 1
        subscriptions[nextSubscription] = (rule, receive)
        addMatch(rule)
        return Subscription(number: nextSubscription)
    }

    /// Asks the bus to send matching messages. The bus counts equal rules.
    func addMatch(_ rule: MatchRule) {
        if isConnected { dbus_bus_add_match(raw, rule.text, nil) }  // does not block, because no error is asked for
    }

    func removeMatch(_ rule: MatchRule) {
        if isConnected { dbus_bus_remove_match(raw, rule.text, nil) }
    }

    public func unsubscribe(_ subscription: Subscription) {
        guard let (rule, _) = subscriptions.removeValue(forKey: subscription.number) else { return }
        removeMatch(rule)
    }

    /// Calls `changed` with the new owner's unique name, or nil, whenever the owner of `name` changes.
    ///
    /// A unique name (`:1.7`) never comes back, so nil is its last value. `changed` gets nil even if the owner had left before this call.
    public func watchOwner(of name: String, _ changed: @escaping @BusActor (String?) -> Void) -> Subscription {
        var rule = MatchRule(sender: "org.freedesktop.DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged")
        rule.argument0 = name
        let subscription = subscribe(rule) { message in
            guard let owner = BusDaemon.nameOwnerChanged.read(message)?.2 else { return }
            changed(owner.isEmpty ? nil : owner)
        }
        if name.hasPrefix(":") { BusActor.spawn { [weak self] in await self?.tellIfGone(name, subscription) { changed(nil) } } }
        return subscription
    }

    /// The owner may have left before the bus added the match rule; then no signal comes.
    private func tellIfGone(_ name: String, _ subscription: Subscription, _ tell: @BusActor () -> Void) async {
        let answer = try? await call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, name, timeout: nil)
        guard answer == false, subscriptions[subscription.number] != nil else { return }
        unsubscribe(subscription)
        tell()
    }

    /// Handles every message that has arrived, without waiting for more. Stops after `time`, because other programs may send faster than
    /// this one handles their messages. If the program then ends, the bus answers the calls that are left with `NoReply`.
    ///
    /// - Returns: false if messages may be left.
    @discardableResult public func dispatchArrived(for time: Duration = .seconds(5)) -> Bool {
        guard !isHeld else { return false }
        let end = ContinuousClock.now + time
        for _ in 0..<Self.mostReadings {
            dbus_connection_read_write(raw, 0)  // reads about 2 KiB
            while dispatchOne() { guard .now < end else { return !hasMessages } }
            guard hasInput else { return true }
            guard .now < end else { return false }
        }
        return false
    }

    /// Whether messages have been read and not handled, or wait in the socket.
    private var hasMessages: Bool {
        !identified.isEmpty || dbus_connection_get_dispatch_status(raw) == DBUS_DISPATCH_DATA_REMAINS || hasInput
    }

    private var hasInput: Bool {
        var descriptor: Int32 = -1
        var byte: UInt8 = 0
        guard dbus_connection_get_unix_fd(raw, &descriptor) != 0 else { return false }
        return recv(descriptor, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT)) == 1
    }

    func scheduleDispatch() {
        guard !dispatchIsScheduled else { return }
        dispatchIsScheduled = true
        BusActor.spawn { [weak self] in
            self?.dispatchIsScheduled = false
            self?.dispatch()
        }
    }

    /// Dispatches messages for the time of one step, or up to an answer, whose caller continues next. Does nothing if a dispatch is
    /// scheduled already, so that each turn of the loop has at most one dispatch.
    func dispatch() {
        guard !isHeld, !dispatchIsScheduled else { return }
        let step = StepTime()
        callerContinues = false
        while dispatchOne() {
            if callerContinues || step.isOver { return scheduleDispatch() }
        }
    }

    /// Answers the next call of `identified`, or dispatches the next message of libdbus.
    ///
    /// - Returns: false if none was left.
    private func dispatchOne() -> Bool {
        if let (call, identity) = identified.popLast() {
            answer(call, from: identity)
            return true
        }
        guard dbus_connection_get_dispatch_status(raw) == DBUS_DISPATCH_DATA_REMAINS else { return false }
        return dbus_connection_dispatch(raw) != DBUS_DISPATCH_NEED_MEMORY
    }

    func receive(_ message: Message) -> DBusHandlerResult {
        // The bus disconnects a monitor that answers a call, so no message goes further.
        if let observer, message.interface != "org.freedesktop.DBus.Local" {
            observer(message)
            return DBUS_HANDLER_RESULT_HANDLED
        }
        switch message.kind {
        case .call:
            callsReceived += 1
            lastCall = .now
            let call = PendingCall(message: message, connection: self)
            if let refusal {
                call.fail(refusal)
                return DBUS_HANDLER_RESULT_HANDLED
            }
            guard let gate else {
                answer(call, from: .user)
                return DBUS_HANDLER_RESULT_HANDLED
            }
            if let identity = gate.identity(of: call.sender) { answer(call, from: identity) } else { gate.hold(call) }
            return DBUS_HANDLER_RESULT_HANDLED
        case .signal:
            if message.interface == "org.freedesktop.DBus.Local", message.member == "Disconnected" {
                isConnected = false
                onDisconnect?()
                onDisconnect = nil
                return DBUS_HANDLER_RESULT_HANDLED
            }
            if let gate, message.sender == BusDaemon.name { gate.take(message) }
            // In the order of subscription. A receiver may unsubscribe others.
            let matching = subscriptions.filter { $0.value.rule.matches(message) }.keys.sorted()
            for number in matching { subscriptions[number]?.receive(message) }
            return DBUS_HANDLER_RESULT_HANDLED
        case .reply, .error: return DBUS_HANDLER_RESULT_NOT_YET_HANDLED
        }
    }

    /// Answers `calls`, whose caller is now known, before any message that has not been dispatched yet.
    func answerSoon(_ calls: [PendingCall], from identity: CallerIdentity) {
        identified.insert(contentsOf: calls.reversed().map { ($0, identity) }, at: 0)
        scheduleDispatch()
    }

    private func answer(_ call: PendingCall, from identity: CallerIdentity) {
        call.caller = identity
        if let tree { answer(call, from: tree) } else { call.fail(.unknownObject("this connection has no objects")) }
        call.forgetArguments()
    }
}

func withDBusError<R>(_ body: (inout CDBus.DBusError) -> R) throws(DBusError) -> R {
    var error = CDBus.DBusError()
    dbus_error_init(&error)
    let result = body(&error)
    guard dbus_error_is_set(&error) != 0 else { return result }
    defer { dbus_error_free(&error) }
    throw DBusError(error.name.map { String(cString: $0) } ?? "", error.message.map { String(cString: $0) } ?? "")
}
