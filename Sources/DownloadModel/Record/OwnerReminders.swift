/// The calls to the owner of an ended download (option `activate`), as its row remembers them. The room Scheduling decides when to call.
public struct OwnerReminders: Equatable, Sendable {
    /// The owner has acknowledged the outcome: it is not called again.
    public var isAcknowledged = false
    /// The number of calls since the end. After the first call, calls at our startup do not count.
    public var calls: UInt32 = 0
    /// When to call next; nil: not before the next startup.
    public var nextAt: WallTime?

    public init() {}
}
