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

    @Test func `that is set again rings at the new instant only`() async {
        let bell = Bell()
        await bell.alarm.set(microseconds: microseconds(.seconds(3600)))
        let time = microseconds(.milliseconds(300))
        await bell.alarm.set(microseconds: time)
        #expect(await eventually { await bell.rings.count == 1 })
        #expect(await bell.rings[0] >= time)
    }
}
