internal import CCoding
package import DownloadModel

/// The content coding of a body (RFC 9110 §8.4).
package enum ContentCoding: Equatable {
    case gzip, deflate, brotli, zstd
    /// An unknown coding: the body is stored as it came.
    case unknown
    /// Several codings, all of them known.
    case several

    /// - Parameter codings: the tokens of `Content-Encoding`, in lower case and in order.
    /// - Returns: nil if there is no coding.
    init?(_ codings: [String]) {
        let known = codings.filter { $0 != "identity" && !$0.isEmpty }.map(Self.one)
        guard let first = known.first else { return nil }
        self = known.contains(.unknown) ? .unknown : known.count > 1 ? .several : first
    }

    private static func one(_ token: String) -> ContentCoding {
        switch token {
        case "gzip", "x-gzip": .gzip
        case "deflate": .deflate
        case "br": .brotli
        case "zstd": .zstd
        default: .unknown
        }
    }

    /// Whether a file of this media type or name is compressed itself, so that its bytes must not be decoded. Servers often send
    /// `Content-Encoding` for archives. Browsers store such archives as they came (docs/durability.md), and so do we.
    package func isOfFileItself(mediaType: String?, names: [String]) -> Bool {
        let (types, endings): (Set<String>, [String]) =
            switch self {
            case .gzip:
                (["application/gzip", "application/x-gzip", "application/x-gunzip", "application/x-tgz"], [".gz", ".tgz", ".svgz"])
            case .brotli: ([], [".br"])
            case .zstd: (["application/zstd"], [".zst", ".tzst"])
            case .deflate, .unknown, .several: ([], [])
            }
        if let mediaType, types.contains(mediaType) { return true }
        return names.contains { name in
            let name = name.lowercased()
            return endings.contains { name.utf8.count > $0.utf8.count && name.hasSuffix($0) }
        }
    }
}

/// Decodes the content coding of one body: one layer of it, and a bounded number of bytes.
package final class ContentDecoder {
    /// If the caller set no limit, a body that decodes to more than this must stay within `mostRatio` times its coded size.
    static let unsuspicious: ByteCount = 64 << 20
    static let mostRatio: ByteCount = 100
    /// Decoded bytes of one body after which `decode` stops until the next tick. 16 KiB of brotli may unpack to gigabytes, and other
    /// transfers wait for `decode`.
    static let mostInTick: ByteCount = 32 << 20
    private static let roomSize = 64 * 1024

    private let decoder: OpaquePointer
    private let isBounded: Bool
    private let room = UnsafeMutablePointer<UInt8>.allocate(capacity: ContentDecoder.roomSize)
    private var taken: ByteCount = 0
    private var made: ByteCount = 0
    private var madeInTick: ByteCount = 0
    private var isAtEnd = false
    /// Whether the decoder may hold decoded bytes that did not fit into `room`.
    private var isFull = false
    /// Whether `decode` has stopped for this tick. In the next tick, call it again with the unread bytes, even if there are none.
    package private(set) var isPaused = false
    /// How many bytes at the end of the last input `decode` has not read, because it is paused.
    package private(set) var unread = 0

    /// - Parameter isBounded: whether the caller limits the file's size.
    /// - Returns: nil if the coding's library cannot be loaded, or the coding cannot be decoded.
    package init?(_ coding: ContentCoding, isBounded: Bool) {
        let kind: todoku_coding
        switch coding {
        case .gzip: kind = TODOKU_CODING_GZIP
        case .deflate: kind = TODOKU_CODING_DEFLATE
        case .brotli: kind = TODOKU_CODING_BROTLI
        case .zstd: kind = TODOKU_CODING_ZSTD
        case .unknown, .several: return nil
        }
        guard let decoder = todoku_decoder_make(kind) else { return nil }
        (self.decoder, self.isBounded) = (decoder, isBounded)
    }

    deinit {
        todoku_decoder_free(decoder)
        room.deallocate()
    }

    /// Call ten times a second. From now on `decode` may deliver `mostInTick` more bytes.
    package func beginTick() { madeInTick = 0 }

    /// Decodes `bytes` and delivers the result in parts, up to `mostInTick` (`isPaused`). Returns a failure if the transfer must end.
    package func decode(
        _ bytes: UnsafeRawBufferPointer, host: String, _ deliver: (UnsafeRawBufferPointer) -> DownloadFailure?
    ) -> DownloadFailure? {
        taken += ByteCount(bytes.count)
        var rest = bytes[...]
        (isPaused, unread) = (false, 0)
        while !rest.isEmpty || isFull {
            guard madeInTick < Self.mostInTick else {
                (isPaused, unread) = (true, rest.count)
                taken -= ByteCount(rest.count)
                return nil
            }
            var (used, count) = (0, 0)
            let input = UnsafeRawBufferPointer(rebasing: rest).bindMemory(to: UInt8.self)
            let answer = todoku_decoder_run(decoder, input.baseAddress, input.count, &used, room, Self.roomSize, &count)
            rest = rest.dropFirst(used)
            made += ByteCount(count)
            madeInTick += ByteCount(count)
            isFull = count == Self.roomSize
            if count > 0, let failure = deliver(UnsafeRawBufferPointer(start: room, count: count)) { return failure }
            if !isBounded, made > Self.unsuspicious, made / Self.mostRatio > taken { return Self.bomb(host) }
            switch answer {
            case TODOKU_DECODED_MORE:
                // A step that reads and writes nothing would loop for ever.
                if used == 0, count == 0, !rest.isEmpty { return Self.broken(host, isAfterEnd: isAtEnd) }
                if used > 0 || count > 0 { isAtEnd = false }
            case TODOKU_DECODED_END: (isAtEnd, isFull) = (true, false)
            case TODOKU_DECODED_NO_MEMORY:
                return DownloadFailure(.network, "There is not enough memory to unpack what \(host) sends.", host: host, isRetryable: true)
            default: return Self.broken(host, isAfterEnd: isAtEnd)
            }
        }
        return nil
    }

    /// Call at the end of the body. Returns a failure if the coded stream has not ended.
    package func finish(host: String, isEmptyAnnounced: Bool) -> DownloadFailure? {
        if isAtEnd || taken == 0 && isEmptyAnnounced { return nil }
        return DownloadFailure(
            .truncated, "\(host) sent a compressed body that ends before the file does.", host: host, isRetryable: true)
    }

    private static func broken(_ host: String, isAfterEnd: Bool) -> DownloadFailure {
        let what = isAfterEnd ? "is followed by something else" : "cannot be unpacked"
        return DownloadFailure(.network, "\(host) sent a compressed body that \(what).", host: host)
    }

    private static func bomb(_ host: String) -> DownloadFailure {
        DownloadFailure(
            .tooLarge,
            "\(host) sent a compressed body that unpacks to more than \(mostRatio) times its size; set max-size to accept it.",
            host: host)
    }
}
