import Testing

@testable internal import Transport

@Suite struct `The receive buffer of an exchange` {
    @Test(arguments: [(0, 512), (3, 512), (7, 256), (15, 128), (31, 64), (63, 32), (1000, 32)])
    func `is smaller beside many others`(others: Int, kibibytes: Int) {
        #expect(Exchange.bufferSize(beside: others) == kibibytes << 10)
    }

    /// Each exchange keeps the buffer that it began with.
    @Test func `takes 7 MiB for 64 exchanges that begin one after another, and 32 KiB for each further one`() {
        let first = (0..<64).reduce(0) { $0 + Exchange.bufferSize(beside: $1) }
        #expect(first >> 20 == 7, "\(first) bytes")
        #expect((64..<128).allSatisfy { Exchange.bufferSize(beside: $0) == 32 << 10 })
    }
}
