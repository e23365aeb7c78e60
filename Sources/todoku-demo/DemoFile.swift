/// A file that is never stored: the byte at an offset follows from the offset alone.
struct DemoFile: Sendable {
    let size: UInt64
    /// What the file repeats; its length is no power of two, so that a part put at a wrong place shows.
    private let pattern: [UInt8]

    init(size: UInt64) {
        self.size = size
        var state: UInt64 = 0x746F_646F_6B75
        pattern = (0..<65_521).map { _ in
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return UInt8(truncatingIfNeeded: state >> 56)
        }
    }

    /// A strong validator (RFC 9110 §8.8.3): the same for the same bytes.
    var entityTag: String { "\"demo-\(size)\"" }

    /// The bytes from `offset` to the end of the pattern, at most `limit` and the file's end.
    func bytes(at offset: UInt64, limit: Int) -> ArraySlice<UInt8> {
        let start = Int(offset % UInt64(pattern.count))
        let count = min(UInt64(limit), UInt64(pattern.count - start), size - min(size, offset))
        return pattern[start..<start + Int(count)]
    }
}
