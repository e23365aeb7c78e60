internal import DownloadModel
internal import Scheduling
internal import Testing

@Suite struct `A table by download number` {
    /// Applies the same changes to a dictionary. The numbers cover several pages, and some pages become empty.
    @Test func `holds the same values as a dictionary`() {
        var random = SystemRandomNumberGenerator()
        var (table, model) = (NumberTable<Int>(), [DownloadNumber: Int]())
        let edges: [UInt64] = [0, 767, 768, 1535, 1536, .max - 1, .max]
        for step in 0..<20_000 {
            let number = DownloadNumber(step % 50 == 0 ? edges.randomElement(using: &random)! : .random(in: 0..<3000, using: &random))
            switch Int.random(in: 0..<4, using: &random) {
            case 0: #expect(table.updateValue(step, for: number) == model.updateValue(step, forKey: number))
            case 1: #expect(table.removeValue(for: number) == model.removeValue(forKey: number))
            case 2: (table[number], model[number]) = (step, step)
            default: (table[number], model[number]) = (nil, nil)
            }
            #expect(table.count == model.count && table.isEmpty == model.isEmpty && table[number] == model[number])
        }
        #expect(table.numbers.sorted() == model.keys.sorted())
        #expect(table.values.sorted() == model.values.sorted())
        for isReversed in [false, true] {
            var walk = table.walk(isReversed: isReversed)
            var walked: [DownloadNumber] = []
            while let number = walk.next() { walked.append(number) }
            #expect(walked == (isReversed ? model.keys.sorted(by: >) : model.keys.sorted()))
        }
        for number in model.keys { table[number] = nil }
        #expect(table.isEmpty && Array(table.values) == [])
    }

    @Test func `has a matching set`() {
        var set = NumberSet()
        #expect(set.insert(DownloadNumber(7)) && !set.insert(DownloadNumber(7)) && set.insert(DownloadNumber(70_000)))
        #expect(set.contains(DownloadNumber(7)) && !set.contains(DownloadNumber(8)) && set.count == 2)
        #expect(set.sorted() == [DownloadNumber(7), DownloadNumber(70_000)])
        #expect(set.remove(DownloadNumber(7)) && !set.remove(DownloadNumber(7)) && set.remove(DownloadNumber(70_000)) && set.isEmpty)
    }
}

@Suite struct `A table by key` {
    @Test func `holds the same values as a dictionary`() {
        var random = SystemRandomNumberGenerator()
        var (table, model) = (KeyTable<String, Int>(), [String: Int]())
        for step in 0..<20_000 {
            let key = "key \(Int.random(in: 0..<3000, using: &random))"
            switch Int.random(in: 0..<4, using: &random) {
            case 0: (table[key, default: 7], model[key, default: 7]) = (table[key, default: 7] + 1, model[key, default: 7] + 1)
            case 1:
                table[key]? = step
                model[key]? = step
            case 2: (table[key], model[key]) = (step, step)
            default: (table[key], model[key]) = (nil, nil)
            }
            #expect(table[key] == model[key] && table.isEmpty == model.isEmpty)
        }
        #expect(table.keys.sorted() == model.keys.sorted())
    }

    @Test func `of sets drops a set with its last number`() {
        var table = KeyTable<String, NumberSet>()
        table.insert(DownloadNumber(1), at: "a")
        table.insert(DownloadNumber(2), at: "a")
        table.remove(DownloadNumber(1), at: "a")
        table.remove(DownloadNumber(3), at: "b")
        #expect(Array(table.keys) == ["a"])
        table.remove(DownloadNumber(2), at: "a")
        #expect(table.isEmpty)
    }
}
