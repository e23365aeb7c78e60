/// Reads the fuzzer's bytes as decisions. After the last byte it returns zeros, so that every input is complete.
struct Tape {
    private var rest: ArraySlice<UInt8>
    /// How many variants enclose the value being read.
    var variants = 0

    init(_ bytes: [UInt8]) { rest = bytes[...] }

    var isAtEnd: Bool { rest.isEmpty }

    mutating func byte() -> UInt8 { rest.popFirst() ?? 0 }

    /// 0 ..< count
    mutating func choice(_ count: Int) -> Int { Int(byte()) % count }

    mutating func flag() -> Bool { byte() & 1 != 0 }

    /// Little endian.
    mutating func number<Number: FixedWidthInteger>(_: Number.Type = Number.self) -> Number {
        var value: UInt64 = 0
        for index in 0..<(Number.bitWidth / 8) { value |= UInt64(byte()) << (8 * index) }
        return Number(truncatingIfNeeded: value)
    }

    /// Mostly short: only a first byte of 255 is followed by a length of two bytes.
    mutating func bytes() -> [UInt8] {
        let short = byte()
        let count = short == 255 ? Int(number(UInt16.self)) : Int(short)
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }

    mutating func remaining() -> [UInt8] {
        defer { rest = [] }
        return Array(rest)
    }

    /// A D-Bus string: UTF-8 without NUL.
    mutating func text() -> String { String(decoding: bytes().filter { $0 != 0 }, as: UTF8.self) }

    /// Now and then, repeats a text until it is long.
    mutating func longText() -> String {
        let text = text()
        let times = byte()
        return times < 250 ? text : String(repeating: text, count: 1 << Int(times - 248))
    }
}
