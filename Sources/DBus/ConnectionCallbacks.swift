internal import CDBus
internal import EventLoop

/// What libdbus asks of the bus loop: to watch descriptors, and to wake it after a time.
extension Connection {
    func add(watch: OpaquePointer) {
        guard dbus_watch_get_enabled(watch) != 0 else { return }
        let flags = dbus_watch_get_flags(watch)
        var events: Poller.Events = []
        if flags & UInt32(DBUS_WATCH_READABLE.rawValue) != 0 { events.insert(.readable) }
        if flags & UInt32(DBUS_WATCH_WRITABLE.rawValue) != 0 { events.insert(.writable) }
        // The pointer is libdbus' and valid until it calls `watchRemoved`, which cancels the token.
        watches[watch] = Poller.shared.watch(dbus_watch_get_unix_fd(watch), for: events) { [weak self] found in
            guard let self else { return }  // the last reference was released on another thread; `deinit` has yet to run here
            var flags: UInt32 = 0
            if found.contains(.readable) { flags |= UInt32(DBUS_WATCH_READABLE.rawValue) }
            if found.contains(.writable) { flags |= UInt32(DBUS_WATCH_WRITABLE.rawValue) }
            if found.contains(.error) { flags |= UInt32(DBUS_WATCH_ERROR.rawValue) }
            if found.contains(.hangUp) { flags |= UInt32(DBUS_WATCH_HANGUP.rawValue) }
            let step = StepTime()
            dbus_watch_handle(watch, flags)
            // libdbus checks a whole message when its last byte arrives. A large message has used up the time of this turn.
            if step.isOver { scheduleDispatch() } else { dispatch() }
        }
    }

    func remove(watch: OpaquePointer) {
        if let token = watches.removeValue(forKey: watch) { Poller.shared.cancel(token) }
    }

    func add(timeout: OpaquePointer) {
        guard dbus_timeout_get_enabled(timeout) != 0 else { return }
        let delay = Duration.milliseconds(Int(dbus_timeout_get_interval(timeout)))
        timeouts[timeout] = Poller.shared.scheduleAwake(after: delay) { [weak self] in
            guard let self else { return }
            timeouts[timeout] = nil
            add(timeout: timeout)  // libdbus' timeouts repeat until they are removed
            dbus_timeout_handle(timeout)
            dispatch()
        }
    }

    func remove(timeout: OpaquePointer) {
        if let token = timeouts.removeValue(forKey: timeout) { Poller.shared.cancel(token) }
    }
}

/// Waits for a reply and gets one result: the reply or, if libdbus drops the call with the connection or the call is given up, an error
/// from `deinit`.
final class AwaitedReply {
    private weak let connection: Connection?
    private var continuation: CheckedContinuation<Result<Message, DBusError>, Never>?

    init(_ connection: Connection, _ continuation: CheckedContinuation<Result<Message, DBusError>, Never>) {
        (self.connection, self.continuation) = (connection, continuation)
    }
    deinit { end(.failure(.disconnected("the bus is gone"))) }

    /// The connection dispatches the reply.
    @BusActor func end(by reply: Message) {
        connection?.callerContinues = true
        end(.success(reply))
    }

    private func end(_ result: Result<Message, DBusError>) {
        continuation?.resume(returning: result)
        continuation = nil
    }
}

// C callbacks. libdbus calls them on the thread that drives the connection; `assumeIsolated` verifies that.

/// Finds the connection and enters the actor. The pointer belongs to libdbus for the duration of the call.
private func enter<R: Sendable>(
    _ context: UnsafeMutableRawPointer?, _ pointer: OpaquePointer?, _ body: @BusActor (Connection, OpaquePointer) -> R
) -> R? {
    guard let context, let pointer else { return nil }
    nonisolated(unsafe) let lent = pointer  // lent to the body, which runs within this call on this thread
    let connection = Unmanaged<Connection>.fromOpaque(context).takeUnretainedValue()
    return BusActor.assumeIsolated { body(connection, lent) }
}

let watchAdded: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> dbus_bool_t = { watch, context in
    enter(context, watch) { $0.add(watch: $1) }
    return 1
}
let watchRemoved: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void = { watch, context in
    enter(context, watch) { $0.remove(watch: $1) }
}
let watchToggled: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void = { watch, context in
    enter(context, watch) {
        $0.remove(watch: $1)
        $0.add(watch: $1)
    }
}
let timeoutAdded: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> dbus_bool_t = { timeout, context in
    enter(context, timeout) { $0.add(timeout: $1) }
    return 1
}
let timeoutRemoved: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void = { timeout, context in
    enter(context, timeout) { $0.remove(timeout: $1) }
}
let timeoutToggled: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void = { timeout, context in
    enter(context, timeout) {
        $0.remove(timeout: $1)
        $0.add(timeout: $1)
    }
}
let messageReceived: @convention(c) (OpaquePointer?, OpaquePointer?, UnsafeMutableRawPointer?) -> DBusHandlerResult = {
    _, message, context in
    enter(context, message) { $0.receive(Message(retaining: $1)) } ?? DBUS_HANDLER_RESULT_NOT_YET_HANDLED
}
let pendingCallEnded: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void = { pending, context in
    guard let pending, let context else { return }
    // libdbus holds the reference, and releases it after this call. The body runs within this call, on this thread.
    nonisolated(unsafe) let awaited = Unmanaged<AwaitedReply>.fromOpaque(context).takeUnretainedValue()
    guard let reply = dbus_pending_call_steal_reply(pending) else { return }
    let message = Message(adopting: reply)
    BusActor.assumeIsolated { awaited.end(by: message) }
}
let releaseContinuation: @convention(c) (UnsafeMutableRawPointer?) -> Void = { context in
    if let context { Unmanaged<AwaitedReply>.fromOpaque(context).release() }
}
