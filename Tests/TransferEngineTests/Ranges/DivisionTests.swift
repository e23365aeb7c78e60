import DownloadModel
import Testing

@testable internal import TransferEngine

@Suite struct `The division of a stretch` {
    private static let mebibyte: ByteCount = 1 << 20

    struct Case: CustomTestStringConvertible {
        let testDescription: String
        let rests: [Division.Rest]
        /// The speeds of connections whose stretches are not to be divided.
        var others: [Double] = []
        var waiting = 1
        var lastSpeed: Double?
        let part: Range<ByteCount>?

        /// One stretch.
        init(
            _ text: String, _ bytes: Range<ByteCount>, at speed: Double? = nil, others: [Double] = [], waiting: Int = 1,
            lastSpeed: Double? = nil, _ part: Range<ByteCount>?
        ) {
            (testDescription, rests) = (text, [Division.Rest(bytes: bytes, speed: speed)])
            (self.others, self.waiting, self.lastSpeed, self.part) = (others, waiting, lastSpeed, part)
        }

        init(_ text: String, _ rests: [Division.Rest], _ part: Range<ByteCount>?) {
            (testDescription, self.rests, self.part) = (text, rests, part)
        }
    }

    static let cases = [
        Case("half while no speed is known", 0..<8 * mebibyte, 4 * mebibyte..<8 * mebibyte),
        Case("a quarter for each of three that wait", 0..<8 * mebibyte, waiting: 3, 6 * mebibyte..<8 * mebibyte),
        Case("at least 1 MiB", 0..<2 * mebibyte, mebibyte..<2 * mebibyte),
        Case("nothing below 1 MiB", 0..<2 * mebibyte - 2, nil),
        Case("half at equal speeds", 7..<40_000_007, at: 1e6, 20_000_007..<40_000_007),
        Case("more of a slow one", 0..<30_000_000, at: 1e6, others: [3e6], 10_000_000..<30_000_000),
        Case("as much for each of two that wait", 0..<30_000_000, at: 1e6, others: [3e6], waiting: 2, 18_000_000..<30_000_000),
        Case("nothing of what ends within two seconds", 0..<1_900_000, at: 1e6, nil),
        Case("1 MiB of what ends within four seconds", 0..<3_000_000, at: 1e6, 1_500_000..<3_000_000),
        Case("nothing below 1 MiB of what ends within four seconds", 0..<2_050_000, at: 1e6, nil),
        Case("64 KiB of what takes longer", 0..<200_000, at: 1e4, 100_000..<200_000),
        Case("nothing below 64 KiB of what takes longer", 0..<120_000, at: 1e4, nil),
        Case("a small rest of 9 seconds, if a response was over eight times as fast", 0..<9_000, at: 1e3, lastSpeed: 8.1e3, 2_000..<9_000),
        Case("no small rest of 9 seconds, if none was", 0..<9_000, at: 1e3, lastSpeed: 8e3, nil),
        Case("a small rest of a minute, if a response was over twice as fast", 0..<60_000, at: 1e3, lastSpeed: 2.1e3, 2_000..<60_000),
        Case("a small rest of a minute, if the usual speed is over twice as high", 0..<60_000, at: 1e3, others: [4e3], 2_000..<60_000),
        Case("no small rest of a minute, if neither is so", 0..<60_000, at: 1e3, others: [3e3], lastSpeed: 2e3, nil),
        Case("all of a silent one", [.init(bytes: 5..<10, speed: 0, isSilent: true)], 5..<10),
        Case("nothing of one whose response has not come", [.init(bytes: 0..<8 * mebibyte, isReceiving: false)], nil),
        Case(
            "of the one that ends last", [.init(bytes: 0..<20_000_000, speed: 5e6), .init(bytes: 20_000_000..<30_000_000, speed: 1e6)],
            22_500_000..<30_000_000),
        Case(
            "of the longest while no speed is known", [.init(bytes: 0..<3 * mebibyte), .init(bytes: 3 * mebibyte..<7 * mebibyte)],
            5 * mebibyte..<7 * mebibyte),
        Case("of none", [], nil),
    ]

    @Test(arguments: cases) func `gives away`(one: Case) {
        let division = Division(waiting: one.waiting, speeds: one.rests.compactMap(\.speed) + one.others, lastSpeed: one.lastSpeed)
        #expect(division.part(of: one.rests) == one.part)
    }
}
