import DownloadModel
import Scheduling
import TestSupport
import Testing

@Suite struct `The queue` {
    private func number(_ value: Int) -> DownloadNumber { DownloadNumber(UInt64(value)) }
    private func numbers(_ values: Int...) -> [DownloadNumber] { values.map(number) }

    /// Downloads 1, 2, … at these positions, with priority 0.
    private func queue(_ positions: [Int64]) -> DownloadQueue {
        var queue = DownloadQueue()
        for (index, position) in positions.enumerated() { queue.insert(number(index + 1), priority: 0, position: position) }
        return queue
    }

    @Test func `starts the highest priority first, then the lowest position, then the lowest number`() {
        var queue = DownloadQueue()
        #expect(queue.next == nil)
        queue.insert(number(1), priority: 0, position: 10)
        queue.insert(number(2), priority: 0, position: 5)
        queue.insert(number(3), priority: 7, position: 99)
        queue.insert(number(4), priority: -1, position: 0)
        queue.insert(number(5), priority: 0, position: 5)
        #expect(queue.ordered == numbers(3, 2, 5, 1, 4))
        #expect(queue.next == number(3))
        queue.remove(number(3))
        queue.remove(number(3))
        #expect(queue.next == number(2))
        #expect(queue.count == 4)
        #expect(queue.contains(number(5)))
        #expect(!queue.contains(number(3)))
        #expect(queue.place(of: number(1)) == 2)
        #expect(queue.place(of: number(4)) == 0)
        #expect(queue.place(of: number(3)) == nil)
        queue.insert(number(4), priority: 8, position: 0)
        #expect(queue.ordered == numbers(4, 2, 5, 1))
    }

    @Test(
        arguments: [
            (4, 0, [4, 1, 2, 3]), (4, 1, [1, 4, 2, 3]), (1, 1, [2, 1, 3, 4]), (1, 2, [2, 3, 1, 4]), (1, 3, [2, 3, 4, 1]),
            (1, 99, [2, 3, 4, 1]),
            (2, 1, [1, 2, 3, 4]), (4, .max, [1, 2, 3, 4]),
        ] as [(Int, UInt32, [Int])], [[0, 1 << 20, 2 << 20, 3 << 20], [1, 2, 3, 4], [7, 7, 7, 7]] as [[Int64]])
    func `moves a download to a place within its priority, whatever gaps there are`(_ move: (Int, UInt32, [Int]), positions: [Int64]) {
        var queue = queue(positions)
        queue.insert(number(90), priority: 1, position: 0)
        queue.insert(number(91), priority: -1, position: 0)
        let changed = queue.move(number(move.0), to: move.1)
        #expect(queue.ordered == numbers(90) + move.2.map(number) + numbers(91))
        #expect(changed.isEmpty == (move.2 == [1, 2, 3, 4]))
        // The saved positions give the same order again.
        var again = self.queue(positions)
        for (number, position) in changed { again.insert(number, priority: 0, position: position) }
        #expect(again.ordered == move.2.map(number))
    }

    @Test func `changes only the moved download if there is a gap`() {
        var queue = queue([
            DownloadQueue.position(of: number(1)), DownloadQueue.position(of: number(2)), DownloadQueue.position(of: number(3)),
        ])
        #expect(queue.move(number(3), to: 1) == [number(3): 3 << 19])
        #expect(queue.move(number(3), to: 0) == [number(3): 0])
        #expect(queue.move(number(3), to: 2) == [number(3): 2 << 20 + 1])
        #expect(queue.move(number(8), to: 0) == [:])
    }

    @Test func `starts a new download after those that were moved to the end`() {
        var queue = queue((1...3).map { DownloadQueue.position(of: number($0)) })
        queue.move(number(1), to: 99)
        queue.move(number(2), to: 99)
        queue.insert(number(4), priority: 0, position: DownloadQueue.position(of: number(4)))
        #expect(queue.ordered == numbers(3, 1, 2, 4))
    }

    @Test func `keeps the position of the last download if there is no gap, because later ones follow it`() {
        var queue = queue([1, 2, 3, 10, 11])
        let changed = queue.move(number(2), to: 3)
        #expect(queue.ordered == numbers(1, 3, 4, 2, 5) && changed[number(5)] == nil)
        queue.insert(number(6), priority: 0, position: 12)
        #expect(queue.ordered == numbers(1, 3, 4, 2, 5, 6))
    }

    /// Each changed position is a row on disk.
    @Test(arguments: [(2999, 1), (2998, 1500), (0, 2998), (0, 2500)] as [(Int, UInt32)])
    func `changes few positions, however often downloads are moved to one place`(from: Int, place: UInt32) {
        var queue = queue((1...3000).map { DownloadQueue.position(of: number($0)) })
        var expected = queue.ordered
        var changes = 0
        for _ in 0..<3000 {
            let moved = expected.remove(at: from)
            expected.insert(moved, at: Int(place))
            changes += queue.move(moved, to: place).count
        }
        #expect(queue.ordered == expected)
        #expect(changes < 100_000, "pushing the whole run on would change 4,500,000")
    }

    @Test(arguments: [[Int64.min, 0], [0, .max], [.min, .max], [.max, .max], [.min, .min]])
    func `takes positions at the ends of their range`(positions: [Int64]) {
        var queue = queue(positions)
        queue.insert(number(3), priority: 0, position: 0)
        for place in [0, 1, 2, 0] as [UInt32] {
            for value in 1...3 { queue.move(number(value), to: place) }
            #expect(Set(queue.ordered) == Set(numbers(1, 2, 3)))
        }
        #expect(DownloadQueue.position(of: DownloadNumber(.max)) == .max)
    }

    @Test func `agrees with a sorted list after any changes`() throws {
        struct Item { var number: DownloadNumber, priority: Int32, position: Int64 }
        var random = SeededRandom(42)
        var queue = DownloadQueue()
        var list: [Item] = []
        func sort() { list.sort { ($1.priority, $0.position, $0.number) < ($0.priority, $1.position, $1.number) } }
        for step in 0..<6000 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<6:
                let number = number(Int.random(in: 0..<3000, using: &random))
                let (priority, position) = (Int32.random(in: -1...1, using: &random), Int64.random(in: 0..<2000, using: &random))
                queue.insert(number, priority: priority, position: position)
                list.removeAll { $0.number == number }
                list.append(Item(number: number, priority: priority, position: position))
                sort()
            case 6..<8:
                guard let item = list.randomElement(using: &random) else { continue }
                queue.remove(item.number)
                list.removeAll { $0.number == item.number }
            default:
                guard let item = list.randomElement(using: &random) else { continue }
                let same = list.filter { $0.priority == item.priority }.map(\.number).filter { $0 != item.number }
                let place = Int.random(in: 0...(same.count + 1), using: &random)
                for (number, position) in queue.move(item.number, to: UInt32(place)) {
                    list[try #require(list.firstIndex { $0.number == number })].position = position
                }
                sort()
                var expected = same
                expected.insert(item.number, at: min(place, same.count))
                #expect(list.filter { $0.priority == item.priority }.map(\.number) == expected)
            }
            #expect(queue.next == list.first?.number)
            #expect(queue.count == list.count)
            if step.isMultiple(of: 100) {
                #expect(queue.ordered == list.map(\.number))
                for item in list.prefix(20) {
                    #expect(
                        queue.place(of: item.number) == list.filter { $0.priority == item.priority }.firstIndex { $0.number == item.number }
                    )
                }
            }
        }
    }

    /// A row of the database may hold any number and any position.
    @Test(arguments: [0, 1, 5, .max] as [UInt32]) func `leaves the last number at the last position in its place`(place: UInt32) {
        let last = DownloadNumber(.max)
        var queue = DownloadQueue()
        queue.insert(last, priority: 0, position: .max)
        #expect(queue.move(last, to: place).isEmpty)
        queue.insert(number(1), priority: 1, position: 0)
        queue.insert(number(2), priority: -1, position: 0)
        #expect(queue.move(last, to: place).isEmpty)
        #expect(queue.ordered == [number(1), last, number(2)])
    }

    @Test func `inserts and removes 100,000 in any order without moving all each time`() {
        var random = SeededRandom(3)
        let order = (1...100_000).shuffled(using: &random)
        var queue = DownloadQueue()
        let elapsed = ContinuousClock().measure {
            for value in order { queue.insert(number(value), priority: Int32(value % 3), position: Int64(value)) }
            for value in order.prefix(1000) { queue.move(number(value), to: 0) }
            for value in order.shuffled(using: &random) { queue.remove(number(value)) }
        }
        #expect(queue.count == 0)
        #expect(queue.ordered.isEmpty)
        // A debug build on a busy machine needs about a second. Moving a list as a whole would take minutes.
        #expect(elapsed < .seconds(60))
    }
}

@Suite struct `Text for people` {
    @Test(
        arguments: [
            (0, "0 B"), (512, "512 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1_572_864, "1.5 MiB"),
            (1_048_524, "1023.9 KiB"),
            (1_048_575, "1.0 MiB"), (2_147_483_648, "2.0 GiB"), (1 << 40, "1.0 TiB"), (1 << 50, "1.0 PiB"), (.max, "16.0 EiB"),
        ] as [(ByteCount, String)])
    func `gives sizes in binary multiples`(bytes: ByteCount, expected: String) { #expect(HumanText.size(bytes) == expected) }
}
