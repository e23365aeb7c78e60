/// Writes the messages between this process and its child: numbers and texts, one after another.
struct WordWriter {
    private(set) var bytes: [UInt8] = []

    /// Eight bytes, little-endian.
    mutating func put(_ number: UInt64) { withUnsafeBytes(of: number.littleEndian) { bytes.append(contentsOf: $0) } }

    mutating func put(_ isTrue: Bool) { put(isTrue ? 1 : 0) }

    /// `nil` becomes a number that no file has.
    mutating func put(_ number: UInt64?) { put(number ?? .max) }

    /// At most `WordReader.longestText` bytes, after their number.
    mutating func put(_ text: String) { put(Array(text.utf8)) }

    mutating func put(_ text: [UInt8]) {
        let kept = text.prefix(WordReader.longestText)
        put(UInt64(clamping: kept.count))
        bytes.append(contentsOf: kept)
    }
}

/// Reads what `WordWriter` wrote, or what a hostile child wrote instead. No message makes it trap or grow.
struct WordReader {
    static let longestText = 1024

    private var rest: ArraySlice<UInt8>
    /// Whether every read so far has found its value, within its bounds.
    private(set) var isGood = true

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    /// Whether everything was there, and nothing else.
    var isWhole: Bool { isGood && rest.isEmpty }

    /// 0 if there is none.
    mutating func number() -> UInt64 {
        guard rest.count >= 8 else { return fail(0) }
        let taken = rest.prefix(8)
        rest = rest.dropFirst(8)
        return taken.reversed().reduce(0) { $0 << 8 | UInt64(truncatingIfNeeded: $1) }
    }

    mutating func flag() -> Bool { number() == 1 }

    mutating func optional() -> UInt64? {
        let found = number()
        return found == .max ? nil : found
    }

    /// A number that must not be greater than `most`.
    mutating func number(atMost most: UInt64) -> UInt64 {
        let found = number()
        return found <= most ? found : fail(0)
    }

    mutating func integer() -> Int { Int(truncatingIfNeeded: number(atMost: UInt64(Int32.max))) }

    mutating func bytes() -> [UInt8] {
        let count = number()
        guard count <= UInt64(clamping: Self.longestText), count <= UInt64(clamping: rest.count) else { return fail([]) }
        let taken = rest.prefix(Int(truncatingIfNeeded: count))
        rest = rest.dropFirst(taken.count)
        return Array(taken)
    }

    mutating func text() -> String { String(decoding: bytes(), as: UTF8.self) }

    private mutating func fail<R>(_ value: R) -> R {
        isGood = false
        return value
    }
}
