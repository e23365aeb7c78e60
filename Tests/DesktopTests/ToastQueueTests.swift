internal import DownloadModel
internal import Testing

@testable internal import Desktop

@Suite struct `What waits for the notification server` {
    let now = ContinuousClock.now

    private func drain(_ queue: inout ToastQueue) -> [ToastDelivery] {
        var all: [ToastDelivery] = []
        while let next = queue.next() { all.append(next) }
        return all
    }

    @Test func `is merged: the newest progress, in its old place`() {
        var queue = ToastQueue()
        queue.add(.of(1, 10), at: now)
        queue.add(.of(2, 10), at: now)
        queue.add(.of(1, 20), at: now)
        #expect(drain(&queue) == [.progress(.of(1, 20)), .progress(.of(2, 10))])
    }

    @Test func `loses the progress of a download that has ended, and closes what was shown`() {
        var queue = ToastQueue()
        queue.add(.of(1, 10), at: now)
        #expect(queue.add(.finished(1)) == nil)
        #expect(drain(&queue) == [.end(.finished(1))])
        queue.add(.of(2, 10), at: now)
        _ = queue.next()
        queue.add(.of(2, 20), at: now)
        #expect(queue.add(.finished(2)) == nil)
        #expect(drain(&queue) == [.closeProgress(DownloadNumber(2)), .end(.finished(2))])
        queue.closeProgress(DownloadNumber(2))
        queue.closeProgress(DownloadNumber(3))
        #expect(queue.isEmpty)
    }

    @Test func `is bounded: the oldest end is dropped, further progress is not taken`() {
        var queue = ToastQueue()
        let dropped = (1...40).compactMap { queue.add(.finished($0))?.number.value }
        #expect(dropped == Array(1...8))
        #expect(drain(&queue).count == ToastQueue.mostEnds)
        for number in 1...100 as ClosedRange<UInt64> { queue.add(.of(number, 1), at: now) }
        #expect(drain(&queue).count == ToastQueue.mostProgress)
        queue.add(.of(100, 2), at: now)
        #expect(queue.isEmpty)
        queue.add(.of(1, 2), at: now)
        #expect(drain(&queue) == [.progress(.of(1, 2))])
    }

    @Test func `leaves progress out while the gate is closed`() {
        var queue = ToastQueue()
        queue.set(.closed(until: now + .seconds(60)))
        queue.add(.of(1, 1), at: now + .seconds(59))
        #expect(queue.isEmpty)
        queue.add(.of(1, 1), at: now + .seconds(60))
        #expect(!queue.isEmpty)
        queue = ToastQueue()
        queue.set(.closedUntilServerChanges)
        queue.add(.of(1, 1), at: now)
        #expect(queue.isEmpty)
        queue.set(.absent)
        queue.set(.open)
        #expect(queue.add(.finished(1)) == .finished(1))
        #expect(queue.isEmpty)
    }

    @Test func `ends with what is on screen being closed, or nothing`() {
        var queue = ToastQueue()
        queue.finish()
        #expect(queue.isEmpty)
        queue = ToastQueue()
        queue.add(.of(1, 1), at: now)
        _ = queue.next()
        queue.add(.of(2, 1), at: now)
        queue.finish()
        #expect(drain(&queue) == [.closeAllProgress])
    }
}
