internal import DownloadModel
internal import Testing

@testable internal import Desktop

@Suite struct `A toast that waits for the notification server` {
    let now = ContinuousClock.now
    var later: ContinuousClock.Instant { now + .seconds(60) }

    private func drain(_ queue: inout ToastQueue) -> [ToastDelivery] {
        var all: [ToastDelivery] = []
        while let next = queue.next() { all.append(next) }
        return all
    }

    @Test func `is merged: new progress replaces older progress`() {
        var queue = ToastQueue()
        queue.add(.of(10), at: now)
        #expect(queue.add(.finished(2), until: later) == nil)
        queue.add(.of(20), at: now)
        #expect(drain(&queue) == [.progress(.of(20)), .end(.finished(2), until: later)])
    }

    @Test func `drops the progress of ended downloads, and closes what was shown, once`() {
        var queue = ToastQueue()
        queue.add(.of(10), at: now)
        queue.closeProgress()
        #expect(queue.isEmpty)
        queue.add(.of(10), at: now)
        _ = queue.next()
        queue.add(.of(20), at: now)
        queue.closeProgress()
        queue.closeProgress()
        #expect(drain(&queue) == [.closeProgress])
    }

    @Test func `is bounded: the oldest end is dropped`() {
        var queue = ToastQueue()
        let dropped = (1...40).compactMap { queue.add(.finished($0), until: later)?.number.value }
        #expect(dropped == Array(1...8))
        #expect(drain(&queue).count == ToastQueue.mostEnds)
        #expect((1...40).compactMap { queue.hold(.finished($0), until: later, again: nil)?.number.value } == Array(1...8))
        queue.serverCame()
        #expect(drain(&queue).count == ToastQueue.mostEnds)
    }

    @Test func `contains no progress while the gate is closed`() {
        var queue = ToastQueue()
        queue.set(.closed(until: now + .seconds(60)))
        queue.add(.of(1), at: now + .seconds(59))
        #expect(queue.isEmpty && !queue.wantsProgress(at: now + .seconds(59)))
        queue.add(.of(1), at: now + .seconds(60))
        #expect(!queue.isEmpty)
        queue = ToastQueue()
        queue.set(.closedUntilServerChanges)
        queue.add(.of(1), at: now)
        #expect(queue.isEmpty && !queue.wantsProgress(at: now))
        queue.serverCame()
        #expect(queue.wantsProgress(at: now))
        queue.set(.absent)
        queue.set(.open)
        #expect(queue.add(.finished(1), until: later) == .finished(1))
        #expect(queue.hold(.finished(1), until: later, again: nil) == .finished(1))
        #expect(queue.isEmpty)
    }

    @Test func `is kept for the next server, in order and before newer toasts, while it is worth showing`() {
        var queue = ToastQueue()
        for number in 1...3 as ClosedRange<UInt64> {
            #expect(queue.hold(.finished(number), until: now + .seconds(number), again: nil) == nil)
        }
        #expect(queue.isEmpty && queue.expiry == now + .seconds(1))
        #expect(queue.expire(at: now + .seconds(1)) == [.finished(1)])
        #expect(queue.expiry == now + .seconds(2))
        #expect(queue.add(.finished(4), until: later) == nil)
        queue.serverCame()
        #expect(queue.expiry == nil && queue.expire(at: later) == [])
        #expect(
            drain(&queue) == [
                .end(.finished(2), until: now + .seconds(2)), .end(.finished(3), until: now + .seconds(3)),
                .end(.finished(4), until: later),
            ])
    }

    @Test func `is retried if nobody received it, at its time, or as soon as the server answers`() {
        var queue = ToastQueue()
        func hold() {
            for (number, seconds) in [(1, nil), (2, 20), (3, 10)] as [(UInt64, Int?)] {
                #expect(queue.hold(.finished(number), until: later, again: seconds.map { now + .seconds($0) }) == nil)
            }
        }
        func ends(_ numbers: UInt64...) -> [ToastDelivery] { numbers.map { .end(.finished($0), until: later) } }
        hold()
        #expect(queue.expiry == now + .seconds(10))
        queue.tryAgain(at: now + .seconds(9))
        #expect(queue.isEmpty)
        queue.tryAgain(at: now + .seconds(10))
        #expect(drain(&queue) == ends(3) && queue.expiry == now + .seconds(20))
        queue.serverAnswered()
        // The first toast was sent, and may be on screen.
        #expect(drain(&queue) == ends(2) && queue.expiry == later)
        queue.serverCame()
        #expect(drain(&queue) == ends(1) && queue.expiry == nil)
        hold()
        #expect(queue.expire(at: later).count == 3)
    }

    @Test func `comes after one retry of an older unsent toast`() {
        var queue = ToastQueue()
        func end(_ number: UInt64) -> ToastDelivery { .end(.finished(number), until: now + .seconds(Int(number))) }
        #expect(queue.hold(.finished(1), until: now + .seconds(1), again: now) == nil)
        for number in [2, 3] as [UInt64] { #expect(queue.add(.finished(number), until: now + .seconds(Int(number))) == nil) }
        #expect(queue.next() == end(1))
        // The server still does not answer.
        #expect(queue.hold(.finished(1), until: now + .seconds(1), again: now) == nil)
        #expect(queue.next() == end(1))
        #expect(queue.isEmpty)
        queue.serverAnswered()
        #expect(drain(&queue) == [end(2), end(3)])
    }

    @Test func `waits without a retry timer while there is no server`() {
        var queue = ToastQueue()
        queue.add(.of(10), at: now)
        _ = queue.next()
        #expect(queue.hold(.finished(1), until: later, again: now + .seconds(30)) == nil)
        #expect(queue.add(.finished(2), until: later) == nil)
        #expect(queue.withdraw(DownloadNumber(3)) == 0)
        queue.closeProgress()
        queue.serverLeft()
        #expect(queue.keepForServer() == [])
        #expect(queue.isEmpty && queue.expiry == later && !queue.wantsProgress(at: later))
        // The progress toast disappeared with its server, so it need not be closed.
        queue.serverCame()
        #expect(drain(&queue) == [.end(.finished(1), until: later), .end(.finished(2), until: later)])
        #expect(queue.wantsProgress(at: now))
        let dropped = (1...40).compactMap { queue.add(.finished($0), until: later)?.number.value }
        #expect(dropped == Array(1...8) && queue.keepForServer() == [])
        #expect(queue.hold(.finished(41), until: later, again: nil) == .finished(9))
    }

    @Test func `is dropped without libnotify, and so is the closing of progress`() {
        var queue = ToastQueue()
        queue.add(.of(10), at: now)
        _ = queue.next()
        queue.set(.absent)
        queue.closeProgress()
        #expect(queue.isEmpty)
    }

    @Test func `is withdrawn when out of date`() {
        var queue = ToastQueue()
        _ = queue.add(.finished(1), until: later)
        _ = queue.add(.finished(2), until: later)
        _ = queue.hold(.failed(1), until: later, again: nil)
        #expect(queue.withdraw(DownloadNumber(1)) == 2)
        #expect(queue.withdraw(DownloadNumber(3)) == 0)
        queue.serverCame()
        #expect(
            drain(&queue) == [.end(.finished(2), until: later), .withdraw(DownloadNumber(1)), .withdraw(DownloadNumber(3))])
    }

    @Test func `is dropped at the exit, which only closes toasts on screen`() {
        var queue = ToastQueue()
        queue.finish()
        #expect(queue.isEmpty)
        queue = ToastQueue()
        queue.add(.of(1), at: now)
        _ = queue.next()
        _ = queue.add(.finished(2), until: later)
        _ = queue.hold(.finished(3), until: later, again: nil)
        _ = queue.withdraw(DownloadNumber(4))
        queue.finish()
        #expect(drain(&queue) == [.withdraw(DownloadNumber(4)), .closeProgress])
        #expect(queue.expiry == nil)
    }
}
