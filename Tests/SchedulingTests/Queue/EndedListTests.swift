import DownloadModel
import Testing

@testable import Scheduling

@Suite struct `The list of ended downloads` {
    private func number(_ value: UInt64) -> DownloadNumber { DownloadNumber(value) }

    @Test func `is in the order of the ends, and numbers them`() {
        var list = EndedList()
        let ends = [5, 3, 9].map { list.insert(number($0), app: "A") }
        #expect(ends == [1, 2, 3] && list.last == 3)
        #expect(list.ordered == [number(5), number(3), number(9)] && list.oldest == number(5))
        list.remove(number(5), app: "A")
        #expect(list.insert(number(5), app: "A") == 4, "an end after a retry is a new end")
        #expect(list.ordered == [number(3), number(9), number(5)] && list.contains(number(5)) && !list.contains(number(4)))
    }

    @Test func `knows the application with the most, the first by name if several have as many`() {
        var list = EndedList()
        #expect(list.most == nil)
        for (value, app) in [(1, "B"), (2, "A"), (3, "B"), (4, "A"), (5, "C")] { _ = list.insert(number(UInt64(value)), app: app) }
        #expect(list.most?.ordered == [number(2), number(4)])
        #expect((list.count, list.count(of: "B"), list.count(of: "D")) == (5, 2, 0))
        list.remove(number(2), app: "A")
        #expect(list.most?.ordered == [number(1), number(3)])
        for (value, app) in [(1, "B"), (3, "B"), (4, "A"), (5, "C")] { list.remove(number(UInt64(value)), app: app) }
        #expect(list.most == nil && list.count == 0)
    }
}
