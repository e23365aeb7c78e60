import DBus
import DownloadModel
import Localization
import Testing

@testable import TodokuClient
@testable import todoku

@Suite struct `The largest or smallest number` {
    @Test func `is shown in each count of a batch`() {
        let counts = ["Remaining", "Succeeded", "Failed", "Cancelled"]
        let properties = Dictionary(uniqueKeysWithValues: counts.map { ($0, Variant.uint32(.max)) })
        let text = BatchFollower.text(BatchDescription(BatchReference(number: .max), properties), Catalog(.english))
        #expect(text.contains("failed") && text.contains("cancelled"), "\(text)")
    }

    @Test func `is clamped as a time, not wrapped`() {
        #expect(ListCommand.oldest(now: 0) == 0)
        #expect(ListCommand.oldest(now: 86_400_000_001) == 1)
        #expect(Amounts.instant("+1h", now: -1) == WallTime(microseconds: 3_600_000_000))
        #expect(Amounts.instant("+1h", now: .max) == WallTime(microseconds: .max))
    }
}
