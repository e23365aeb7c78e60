internal import CSystem
internal import Glibc

/// The descriptors and deadlines that the bus loop waits for. Nothing else wakes it.
@BusActor public final class Poller {
    public static let shared = Poller()

    /// The poll(2) bits to wait for on a descriptor, or that were found.
    public struct Events: OptionSet, Sendable {
        public let rawValue: Int16
        public init(rawValue: Int16) { self.rawValue = rawValue }
        public static let readable = Events(rawValue: Int16(POLLIN))
        public static let writable = Events(rawValue: Int16(POLLOUT))
        public static let error = Events(rawValue: Int16(POLLERR))
        public static let hangUp = Events(rawValue: Int16(POLLHUP))
    }

    /// Identifies one watched descriptor or one deadline.
    public struct Token: Hashable, Sendable { fileprivate let number: UInt64 }

    private struct Source {
        let descriptor: Int32
        var events: Events
        let ready: @BusActor (Events) -> Void
    }

    private var sources: [Token: Source] = [:]
    private var table: [pollfd] = []
    private var owners: [Token] = []
    private var changed = true
    private var next: UInt64 = 0
    private var deadlines = DeadlineHeap()
    private var actions: [Token: @BusActor () -> Void] = [:]
    private let timer: Int32
    private var armed: ContinuousClock.Instant?

    private init() {
        timer = timerfd_create(CLOCK_BOOTTIME, Int32(TFD_CLOEXEC | TFD_NONBLOCK))
        precondition(timer >= 0, "timerfd_create: errno \(errno)")
    }

    private func token() -> Token {
        next += 1
        return Token(number: next)
    }

    /// Calls `ready` on each turn in which `descriptor` has one of `events`, an error or a hang-up, until `cancel`.
    public func watch(_ descriptor: Int32, for events: Events, _ ready: @escaping @BusActor (Events) -> Void) -> Token {
        let token = token()
        sources[token] = Source(descriptor: descriptor, events: events, ready: ready)
        changed = true
        return token
    }

    /// Calls `action` once at `deadline` or soon after. The clock runs during suspend (CLOCK_BOOTTIME).
    @discardableResult
    public func schedule(at deadline: ContinuousClock.Instant, _ action: @escaping @BusActor () -> Void) -> Token {
        let token = token()
        actions[token] = action
        deadlines.insert(deadline, token.number)
        return token
    }

    /// Calls `action` once after `delay`.
    @discardableResult
    public func schedule(after delay: Duration, _ action: @escaping @BusActor () -> Void) -> Token {
        schedule(at: ContinuousClock.now + delay, action)
    }

    /// Calls `action` once after `delay`. The time in which the machine sleeps does not count. For the patience with a disk or a program,
    /// which cannot answer meanwhile.
    @discardableResult
    public func scheduleAwake(after delay: Duration, _ action: @escaping @BusActor () -> Void) -> Token {
        scheduleAwake(after: delay, now: { .now }, action)
    }

    /// - Parameter now: replaced by tests, to simulate a sleep.
    @discardableResult
    func scheduleAwake(
        after delay: Duration, now: @escaping @BusActor () -> SuspendingClock.Instant, _ action: @escaping @BusActor () -> Void
    ) -> Token {
        let token = token()
        wait(until: now() + delay, now, token, action)
        return token
    }

    private func wait(
        until end: SuspendingClock.Instant, _ now: @escaping @BusActor () -> SuspendingClock.Instant, _ token: Token,
        _ action: @escaping @BusActor () -> Void
    ) {
        actions[token] = { [self] in
            // After a sleep, the rest of the time is still to come.
            if now() < end { wait(until: end, now, token, action) } else { action() }
        }
        deadlines.insert(ContinuousClock.now + (end - now()), token.number)
    }

    /// Removes a descriptor or a deadline. A token that is gone already is ignored.
    public func cancel(_ token: Token) {
        if sources.removeValue(forKey: token) != nil { changed = true }
        actions.removeValue(forKey: token)
        // Cancelled deadlines in the far future would pile up in the heap.
        if deadlines.count > 2 * actions.count + 1000 { deadlines.keep { actions[Token(number: $0)] != nil } }
    }

    /// Deadlines in memory, including cancelled ones.
    var heldDeadlines: Int { deadlines.count }

    /// - Returns: when the wait for descriptors ended.
    func turn(block: Bool) -> ContinuousClock.Instant {
        while let first = deadlines.first, actions[Token(number: first.number)] == nil { deadlines.removeFirst() }
        let due = deadlines.first?.deadline
        if block { arm(due) }
        if changed { rebuild() }
        let found = poll(&table, nfds_t(table.count), block && (due.map { $0 > .now } ?? true) ? -1 : 0)
        let began = ContinuousClock.now
        if found > 0 { serve() }
        runDeadlines()
        return began
    }

    private func rebuild() {
        table = [
            pollfd(fd: BusActor.shared.wakeDescriptor, events: Int16(POLLIN), revents: 0),
            pollfd(fd: timer, events: Int16(POLLIN), revents: 0),
        ]
        owners = []
        for (token, source) in sources {
            table.append(pollfd(fd: source.descriptor, events: source.events.rawValue, revents: 0))
            owners.append(token)
        }
        changed = false
    }

    private func serve() {
        var value: UInt64 = 0
        if table[0].revents != 0 { _ = eventfd_read(table[0].fd, &value) }
        if table[1].revents != 0 {
            _ = read(timer, &value, 8)
            armed = nil
        }
        // A handler may watch or cancel. So this turn keeps its own list of owners, and looks up each source again.
        let ready = owners.indices.compactMap { table[$0 + 2].revents != 0 ? (owners[$0], table[$0 + 2].revents) : nil }
        for (token, events) in ready { sources[token]?.ready(Events(rawValue: events)) }
    }

    private func runDeadlines() {
        guard deadlines.first != nil else { return }
        let now = ContinuousClock.now
        // A deadline that an action schedules runs in a later turn, even if it is due already.
        var due: [Token] = []
        while let first = deadlines.first, first.deadline <= now {
            due.append(Token(number: first.number))
            deadlines.removeFirst()
        }
        for token in due { actions.removeValue(forKey: token)?() }
    }

    private func arm(_ deadline: ContinuousClock.Instant?) {
        guard deadline != armed else { return }
        armed = deadline
        var spec = itimerspec()
        if let deadline {
            let (seconds, attoseconds) = max(.nanoseconds(1), ContinuousClock.now.duration(to: deadline)).components
            spec.it_value = timespec(tv_sec: Int(seconds), tv_nsec: max(Int(attoseconds / 1_000_000_000), seconds == 0 ? 1 : 0))
        }
        timerfd_settime(timer, 0, &spec, nil)
    }
}

/// A binary heap of deadlines, earliest first. A cancelled deadline stays until it reaches the top or `keep` removes it.
struct DeadlineHeap {
    struct Entry {
        let deadline: ContinuousClock.Instant
        let number: UInt64

        static func precedes(_ a: Entry, _ b: Entry) -> Bool {
            a.deadline == b.deadline ? a.number < b.number : a.deadline < b.deadline
        }
    }

    private var entries: [Entry] = []

    var first: Entry? { entries.first }
    var count: Int { entries.count }

    mutating func insert(_ deadline: ContinuousClock.Instant, _ number: UInt64) {
        entries.append(Entry(deadline: deadline, number: number))
        var child = entries.count - 1
        while child > 0 {
            let parent = (child - 1) / 2
            guard Entry.precedes(entries[child], entries[parent]) else { break }
            entries.swapAt(child, parent)
            child = parent
        }
    }

    mutating func keep(_ isWanted: (UInt64) -> Bool) {
        entries.removeAll { !isWanted($0.number) }
        entries.sort(by: Entry.precedes)  // a sorted array is a heap
    }

    mutating func removeFirst() {
        entries.swapAt(0, entries.count - 1)
        entries.removeLast()
        var parent = 0
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2] where child < entries.count && Entry.precedes(entries[child], entries[least]) {
                least = child
            }
            guard least != parent else { return }
            entries.swapAt(parent, least)
            parent = least
        }
    }
}
