internal import CDBus
public import EventLoop

/// One call's wait for its answer, which may end before the answer comes.
@BusActor public final class AnswerWait {
    /// libdbus' part of the wait, +1 until the wait is over.
    private var pending: OpaquePointer?
    private(set) var isGivenUp = false

    public init() {}

    /// Ends the wait: the call throws `Disconnected`. D-Bus cannot take the call back, so the other program still answers. The answer is
    /// dropped.
    public func giveUp() {
        isGivenUp = true
        if let pending { dbus_pending_call_cancel(pending) }
        end()  // libdbus then frees the last reference, which resumes the caller
    }

    func begin(_ pending: OpaquePointer) { self.pending = dbus_pending_call_ref(pending) }

    func end() {
        if let pending { dbus_pending_call_unref(pending) }
        pending = nil
    }
}
