internal import CSystem
internal import Glibc

/// One alarm on the wall clock (CLOCK_REALTIME), which also rings after a suspend. It reports when that clock is set (timerfd_create(2),
/// `TFD_TIMER_CANCEL_ON_SET`).
///
/// The descriptor is created with the first call of `set`, also if that sets no alarm, so that each set clock is reported. Without an
/// alarm, nothing else wakes the loop.
@BusActor public final class WallAlarm {
    private let ring: @BusActor () -> Void
    private let clockSet: @BusActor (Duration) -> Void
    /// timerfd_settime(2); returns 0 or errno.
    private let arm: (Int32, itimerspec) -> Int32
    /// read(2) of the timer; returns 0 or errno.
    private let take: (Int32) -> Int32
    /// How far CLOCK_REALTIME is ahead of CLOCK_BOOTTIME now.
    private let lead: () -> Duration
    private var descriptor: Int32 = -1
    private var armed: UInt64?
    /// The lead when the descriptor was created, or at the last report of a set clock. Only set clocks change the lead.
    private var offset: Duration = .zero

    /// - Parameter clockSet: gets the time by which the clock was set forward. The alarm is then off.
    public convenience init(_ ring: @escaping @BusActor () -> Void, clockSet: @escaping @BusActor (Duration) -> Void) {
        self.init(ring, clockSet: clockSet, arm: Self.armTimer)
    }

    /// - Parameter arm: replaced by tests, to simulate a clock that is set; so are `take` and `lead`.
    init(
        _ ring: @escaping @BusActor () -> Void, clockSet: @escaping @BusActor (Duration) -> Void,
        arm: @escaping (Int32, itimerspec) -> Int32, take: @escaping (Int32) -> Int32 = WallAlarm.takeReport,
        lead: @escaping () -> Duration = WallAlarm.presentLead
    ) { (self.ring, self.clockSet, self.arm, self.take, self.lead) = (ring, clockSet, arm, take, lead) }

    nonisolated static func armTimer(_ descriptor: Int32, _ spec: itimerspec) -> Int32 {
        var spec = spec
        return timerfd_settime(descriptor, Int32(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET), &spec, nil) == 0 ? 0 : errno
    }

    nonisolated static func takeReport(_ descriptor: Int32) -> Int32 {
        var count: UInt64 = 0
        return read(descriptor, &count, 8) < 0 ? errno : 0
    }

    nonisolated static func presentLead() -> Duration { now(CLOCK_REALTIME) - now(CLOCK_BOOTTIME) }

    private nonisolated static func now(_ clock: clockid_t) -> Duration {
        var time = timespec()
        clock_gettime(clock, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }

    /// Sets the alarm to an instant in microseconds since the Unix epoch; nil turns it off. An instant in the past rings in the next turn
    /// of the loop.
    public func set(microseconds: UInt64?) {
        guard microseconds != armed || descriptor < 0 else { return }
        if descriptor < 0 { open() }
        armed = microseconds
        var spec = Self.off
        if let microseconds {
            let nanoseconds = Int(microseconds % 1_000_000) * 1000
            // Zero would disarm it.
            spec.it_value = timespec(tv_sec: Int(clamping: microseconds / 1_000_000), tv_nsec: microseconds == 0 ? 1 : nanoseconds)
        }
        guard arm(descriptor, spec) == ECANCELED else { return }
        // The clock was set after the previous alarm. The next read would have reported that, but arming again has discarded the report.
        armed = nil
        _ = arm(descriptor, Self.off)
        BusActor.spawn { [self] in report() }
    }

    /// An instant that never comes. Disarming the timer would discard a report that has not been read, and return no error.
    private static var off: itimerspec {
        var spec = itimerspec()
        spec.it_value.tv_sec = Int.max
        return spec
    }

    private func open() {
        descriptor = timerfd_create(CLOCK_REALTIME, Int32(TFD_CLOEXEC | TFD_NONBLOCK))
        precondition(descriptor >= 0, "timerfd_create: errno \(errno)")
        offset = lead()
        _ = Poller.shared.watch(descriptor, for: .readable) { [weak self] _ in self?.ready() }
    }

    private func ready() {
        let result = take(descriptor)
        if result == EAGAIN { return }
        armed = nil
        if result == ECANCELED { report() } else { ring() }
    }

    /// Reports the changes of the clock since the last report.
    private func report() {
        let before = offset
        offset = lead()
        clockSet(offset - before)
    }
}
