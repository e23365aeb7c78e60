/// A file that is not stored: each byte is computed from its offset.
struct DemoFile: Sendable {
    let size: UInt64
    /// The repeated content. Its length is no power of two, so that a part at a wrong offset is noticed.
    private let pattern: [UInt8]

    init(size: UInt64) {
        self.size = size
        var state: UInt64 = 0x746F_646F_6B75
        pattern = (0..<65_521).map { _ in
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return UInt8(truncatingIfNeeded: state >> 56)
        }
    }

    /// A strong validator (RFC 9110 §8.8.3), equal for equal bytes.
    var entityTag: String { "\"demo-\(size)\"" }

    /// The bytes from `offset` to the end of the pattern, at most `limit` and the file's end.
    func bytes(at offset: UInt64, limit: Int) -> ArraySlice<UInt8> {
        let start = Int(offset % UInt64(pattern.count))
        let count = min(UInt64(limit), UInt64(pattern.count - start), size - min(size, offset))
        return pattern[start..<start + Int(count)]
    }
}
