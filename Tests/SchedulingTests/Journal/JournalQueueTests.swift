import DownloadModel
import Scheduling
import Testing

@Suite struct `The journal's queue` {
    @Test func `releases nothing before its change is on disk, and everything in order`() {
        var queue = JournalQueue<String>()
        #expect(queue.isClear && queue.begin() == nil)
        queue.append(.put(Desk.record(1)))
        queue.post("a")
        #expect(queue.begin()?.count == 1)
        queue.append(.put(Desk.record(2)))
        queue.post("b")
        #expect(queue.next() == nil && queue.begin() == nil, "one commit at a time")
        queue.succeeded()
        #expect(queue.next() == "a" && queue.next() == nil)
        #expect(queue.begin()?.count == 1)
        queue.succeeded()
        #expect(queue.next() == "b" && queue.isClear && !queue.isBusy)
    }

    @Test func `adds a batch with its members, whatever becomes of its row before the commit`() {
        let (members, first) = ([Desk.record(2), Desk.record(3)], BatchRecord(number: BatchNumber(1), count: 2))
        var later = first
        later.removed.insert(.cancelled)
        var queue = JournalQueue<String>()
        queue.append(.addBatch(first, members))
        queue.post("addition")
        queue.append(.remove(DownloadNumber(3)))
        queue.append(.putBatch(later))
        #expect(queue.begin() == [.addBatch(later, members), .remove(DownloadNumber(3))])
        queue.failed { _ in .keep }
        #expect(queue.begin() == [.addBatch(later, members), .remove(DownloadNumber(3))])
        queue.failed { _ in .drop(undoing: [1, 2, 3].map { DownloadNumber($0) }) }
        #expect(queue.begin() == [.removeBatch(BatchNumber(1)), .remove(DownloadNumber(3))])
    }

    @Test func `keeps the changes of a failed commit, except undone additions`() {
        var queue = JournalQueue<String>()
        queue.append(.put(Desk.record(1)))
        queue.post("addition")
        queue.append(.remove(DownloadNumber(9)))
        queue.post("message")
        _ = queue.begin()
        queue.append(.put(Desk.record(2)))
        queue.post("later")
        queue.failed { $0 == "addition" ? .drop(undoing: [DownloadNumber(1)]) : .keep }
        #expect(queue.next() == nil && !queue.isCommitting)
        #expect(queue.begin() == [.remove(DownloadNumber(1)), .remove(DownloadNumber(9)), .put(Desk.record(2))])
        queue.succeeded()
        #expect(queue.next() == "message" && queue.next() == "later" && queue.isClear)
    }

    @Test func `keeps nothing of additions that are undone again and again while commits fail`() {
        var queue = JournalQueue<String>()
        queue.append(.set(Settings()))
        for number in 1...1000 as ClosedRange<UInt64> {
            queue.append(.put(Desk.record(number)))
            queue.post("addition")
            _ = queue.begin()
            queue.failed { _ in .drop(undoing: [DownloadNumber(number)]) }
            #expect(queue.changeCount <= 2)
        }
        queue.append(.put(Desk.record(2000)))
        #expect(queue.begin()?.filter { if case .remove = $0 { false } else { true } } == [.set(Settings()), .put(Desk.record(2000))])
        queue.succeeded()
        queue.append(.put(Desk.record(2001)))
        _ = queue.begin()
        queue.failed { _ in .keep }
        queue.post("addition")
        queue.append(.put(Desk.record(2001)))
        _ = queue.begin()
        queue.failed { _ in .drop(undoing: [DownloadNumber(2001)]) }
        #expect(!queue.isBusy)
    }

    @Test func `drops items of a commit that does not return, and removes what it may have added`() {
        var queue = JournalQueue<String>()
        queue.append(.put(Desk.record(1)))
        queue.post("addition")
        queue.post("message")
        _ = queue.begin()
        queue.append(.put(Desk.record(2)))
        queue.post("later addition")
        queue.post("answer")
        queue.withdraw { item in
            switch item {
            case "addition": .drop(undoing: [DownloadNumber(1)])
            case "later addition": .drop(undoing: [DownloadNumber(2)])
            case "answer": .drop(undoing: [])
            default: .keep
            }
        }
        #expect(queue.waitingCount == 1 && queue.next() == nil && queue.isCommitting)
        queue.succeeded()
        #expect(queue.next() == "message" && !queue.isClear)
        #expect(queue.begin() == [.remove(DownloadNumber(2)), .remove(DownloadNumber(1))])
        queue.succeeded()
        #expect(queue.isClear)
    }

    @Test func `begins a commit without a change if one is due`() {
        var queue = JournalQueue<String>()
        #expect(queue.begin(isDue: true) == [] && queue.isBusy && queue.begin(isDue: true) == nil)
        queue.post("waits for nothing")
        queue.append(.put(Desk.record(1)))
        queue.post("later")
        queue.failed { _ in .keep }
        #expect(queue.next() == "waits for nothing" && queue.next() == nil)
        #expect(queue.begin(isDue: true)?.count == 1)
    }

    @Test func `saves the last change of a record, and of a removed one only the removal`() {
        var queue = JournalQueue<String>()
        for received in [1, 2, 3] as [ByteCount] { queue.append(.put(Desk.record(1) { $0.received = received })) }
        queue.append(.put(Desk.record(2)))
        queue.append(.remove(DownloadNumber(2)))
        #expect(queue.begin() == [.put(Desk.record(1) { $0.received = 3 }), .remove(DownloadNumber(2))])
    }

    @Test func `saves only the last change of each row, however long no commit succeeds`() {
        var queue = JournalQueue<String>()
        let (one, two) = (DownloadNumber(1), DownloadNumber(2))
        func request(_ host: String, _ at: UInt64) -> HostRequest {
            HostRequest(host: host, requestInterval: .zero, at: WallTime(microseconds: at), isSent: true)
        }
        for round in 1...100 as ClosedRange<UInt64> {
            queue.append(.set(Settings()))
            for host in ["a", "b"] { queue.append(.requested(request(host, round))) }
            queue.append(.sweep(one, directory: "/a"))
            queue.append(.swept(one))
            queue.append(.sweep(two, directory: "/a"))
            if round == 50 {
                _ = queue.begin()
                queue.append(.requestOver(host: "b", requestInterval: .zero))
                queue.failed { _ in .keep }
            }
        }
        queue.append(.requestOver(host: "b", requestInterval: .zero))
        #expect(queue.changeCount == 5)
        #expect(
            queue.begin() == [
                .set(Settings()), .requested(request("a", 100)), .requestOver(host: "b", requestInterval: .zero), .swept(one),
                .sweep(two, directory: "/a"),
            ])
    }

    @Test func `knows by its mark whether an item still waits`() {
        var queue = JournalQueue<String>()
        queue.append(.put(Desk.record(1)))
        let marks = ["a", "b", "c"].map { queue.post($0) }
        _ = queue.begin()
        queue.failed { $0 == "b" ? .drop(undoing: []) : .keep }
        #expect(queue.waitingCount == 2 && marks.map(queue.isWaiting) == [true, true, true])
        _ = queue.begin()
        queue.succeeded()
        #expect(queue.next() == "a" && marks.map(queue.isWaiting) == [false, false, true])
        #expect(queue.next() == "c" && marks.map(queue.isWaiting) == [false, false, false] && queue.waitingCount == 0)
    }
}
