/// Splits the browser's stream into messages. Before each message come 32 bits in the machine's byte order: the number of its bytes.
///
/// The reader holds at most `mostBytes` and one portion of the stream. It drops a longer message as its bytes arrive.
struct MessageReader {
    /// A message of the stream.
    enum Item: Equatable {
        case message([UInt8])
        /// A message of this many bytes, which is more than `mostBytes`. The reader has dropped them.
        case tooLong(UInt32)
    }

    /// The longest message: room for a URL, a form, and all cookies of a site. Chromium sends at most 64 MiB, Firefox at most 4 GiB.
    static let mostBytes: UInt32 = 4 << 20
    private static let headBytes = MemoryLayout<UInt32>.size

    private var held: [UInt8] = []
    /// The length of the message that has begun; nil: the 32 bits of its length are not complete.
    private var length: UInt32?
    /// How many bytes of a message that is too long are still to come.
    private var surplus: UInt32 = 0

    /// Whether the stream may end here: no message has begun.
    var isBetweenMessages: Bool { length == nil && held.isEmpty }

    /// Takes the next portion of the stream.
    mutating func append(_ bytes: ArraySlice<UInt8>) {
        held.append(contentsOf: bytes)
        if let length, length > Self.mostBytes { skip() }
    }

    /// The next complete message; nil: more bytes are needed.
    mutating func next() -> Item? {
        if length == nil {
            guard held.count >= Self.headBytes else { return nil }
            let announced = held.withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) }
            held.removeFirst(Self.headBytes)
            length = announced
            surplus = announced > Self.mostBytes ? announced : 0
        }
        guard let length else { return nil }
        guard length <= Self.mostBytes else {
            skip()
            guard surplus == 0 else { return nil }
            self.length = nil
            return .tooLong(length)
        }
        let count = Int(clamping: length)
        guard held.count >= count else { return nil }
        let message = Array(held.prefix(count))
        held.removeFirst(count)
        self.length = nil
        return .message(message)
    }

    /// Drops the bytes that have arrived of a message that is too long.
    private mutating func skip() {
        let count = min(held.count, Int(clamping: surplus))
        held.removeFirst(count)
        surplus &-= UInt32(clamping: count)
    }

    /// An answer in the form that browsers read: its length, then its bytes. A browser disconnects from a host that sends more than 1 MiB.
    static func framed(_ text: String) -> [UInt8] {
        let bytes = Array(text.utf8)
        return withUnsafeBytes(of: UInt32(clamping: bytes.count)) { Array($0) } + bytes
    }
}
