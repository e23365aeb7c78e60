internal import CSystem
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import EventLoop

private func microseconds(_ later: Duration = .zero) -> UInt64 {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return UInt64(Int64(now.tv_sec) * 1_000_000 + Int64(now.tv_nsec) / 1000 + Int64(later / .microseconds(1)))
}

/// At this instant, a timer is readable at once.
private var past: itimerspec {
    var spec = itimerspec()
    spec.it_value = timespec(tv_sec: 0, tv_nsec: 1)
    return spec
}

/// An alarm whose timer, when it is due, reports a set clock. `armed` gets the timer's descriptor.
@BusActor private func reporting(
    _ told: Journal<Duration>, armed: @escaping (Int32) -> Void, lead: @escaping () -> Duration
) -> WallAlarm {
    WallAlarm {
    } clockSet: {
        told.append($0)
    } arm: { descriptor, spec in
        armed(descriptor)
        return WallAlarm.armTimer(descriptor, spec)
    } take: {
        let result = WallAlarm.takeReport($0)
        return result == 0 ? ECANCELED : result
    } lead: {
        lead()
    }
}

// A set clock cannot be tested without setting the machine's clock. The scheduler's tests show its effects.
@Suite(.timeLimit(.minutes(5))) struct `An alarm on the wall clock` {
    @BusActor private final class Bell {
        var rings: [UInt64] = []
        lazy var alarm = WallAlarm { [unowned self] in
            rings.append(microseconds())
        } clockSet: { _ in
        }
    }

    @Test func `rings once, at its instant or just after`() async {
        let bell = Bell()
        let time = microseconds(.milliseconds(300))
        await bell.alarm.set(microseconds: time)
        #expect(await eventually { await bell.rings.count == 1 })
        #expect(await bell.rings[0] >= time)
        await bell.alarm.set(microseconds: nil)
        #expect(await bell.rings.count == 1)
    }

    @Test func `rings at once where its instant has passed`() async {
        let bell = Bell()
        for time in [0, 1, microseconds(.seconds(-5))] {
            let before = await bell.rings.count
            await bell.alarm.set(microseconds: time)
            #expect(await eventually { await bell.rings.count == before + 1 })
        }
    }

    @Test @BusActor func `that is set again reports a clock that was set meanwhile`() async {
        var answers = [0, ECANCELED, 0, 0]
        let told = Journal<Duration>()
        let rings = Journal<UInt64>()
        let alarm = WallAlarm {
            rings.append(microseconds())
        } clockSet: {
            told.append($0)
        } arm: { descriptor, spec in
            let result = WallAlarm.armTimer(descriptor, spec)
            return result == 0 ? answers.removeFirst() : result
        }
        alarm.set(microseconds: microseconds(.seconds(3600)))
        alarm.set(microseconds: microseconds(.milliseconds(100)))
        #expect(await eventually { told.entries.count == 1 })
        // No alarm is set, as after a read that reported the set clock.
        #expect(rings.entries.isEmpty)
        alarm.set(microseconds: microseconds(.milliseconds(100)))
        #expect(await eventually { rings.entries.count == 1 })
        #expect(told.entries.count == 1)
    }

    @Test @BusActor func `that is off tells each change of the clock once`() async {
        var (timer, lead) = (Int32(-1), Duration.zero)
        let told = Journal<Duration>()
        let alarm = reporting(told) {
            timer = $0
        } lead: {
            lead
        }
        alarm.set(microseconds: microseconds(.seconds(3600)))
        // Set forward, set back, and a suspend. After each, nothing waits for an instant, so nobody sets the alarm.
        let leads: [Duration] = [.seconds(3600), .zero, .zero]
        for (index, now) in leads.enumerated() {
            lead = now
            _ = WallAlarm.armTimer(timer, past)
            #expect(await eventually { told.entries.count == index + 1 })
        }
        #expect(told.entries == [.seconds(3600), .seconds(-3600), .zero])
        alarm.set(microseconds: nil)
    }

    @Test @BusActor func `that has had no instant yet tells a change of the clock`() async throws {
        var (timer, lead) = (Int32(-1), Duration.zero)
        let told = Journal<Duration>()
        let alarm = reporting(told) {
            timer = $0
        } lead: {
            lead
        }
        alarm.set(microseconds: nil)
        try #require(timer >= 0, "the kernel can report nothing")
        lead = .seconds(3600)
        _ = WallAlarm.armTimer(timer, past)
        #expect(await eventually { told.entries == [.seconds(3600)] })
        alarm.set(microseconds: nil)
    }

    @Test @BusActor func `that is turned off tells a change of the clock whose report has not been read`() async {
        var (isUnread, lead) = (false, Duration.zero)
        let told = Journal<Duration>()
        let alarm = WallAlarm {
        } clockSet: {
            told.append($0)
        } arm: { descriptor, spec in
            let result = WallAlarm.armTimer(descriptor, spec)
            // As the kernel does: it says so when a timer is armed, and not when it is disarmed.
            guard isUnread, spec.it_value.tv_sec > 0 else { return result }
            isUnread = false
            return ECANCELED
        } lead: {
            lead
        }
        alarm.set(microseconds: microseconds(.seconds(3600)))
        (isUnread, lead) = (true, .seconds(3600))
        alarm.set(microseconds: nil)
        #expect(await eventually { told.entries == [.seconds(3600)] })
        alarm.set(microseconds: nil)
    }

    /// The kernel changes the clock first, and the timers after that.
    @Test @BusActor func `that is set between a change of the clock and its report tells the change`() async {
        var (timer, lead) = (Int32(-1), Duration.zero)
        let told = Journal<Duration>()
        let alarm = reporting(told) {
            timer = $0
        } lead: {
            lead
        }
        alarm.set(microseconds: microseconds(.seconds(3600)))
        lead = .seconds(3600)
        alarm.set(microseconds: microseconds(.seconds(7200)))
        _ = WallAlarm.armTimer(timer, past)
        #expect(await eventually { told.entries == [.seconds(3600)] })
        alarm.set(microseconds: nil)
    }

    @Test func `that is set again rings at the new instant only`() async {
        let bell = Bell()
        await bell.alarm.set(microseconds: microseconds(.seconds(3600)))
        let time = microseconds(.milliseconds(300))
        await bell.alarm.set(microseconds: time)
        #expect(await eventually { await bell.rings.count == 1 })
        #expect(await bell.rings[0] >= time)
    }
}
