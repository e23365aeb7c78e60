internal import CCrypto
package import DownloadModel
internal import EventLoop
internal import Glibc

/// Computes digests with libcrypto, which is loaded on first use.
package enum Digest {
    static let readSize = 256 << 10

    package struct Unavailable: Error { package let reason: String }

    /// The digest of a whole open file. Blocks.
    package static func compute(_ algorithm: Checksum.Algorithm, of descriptor: Int32) throws -> [UInt8] {
        try compute([algorithm], of: descriptor)[0]
    }

    /// The digests of an open file, in the order of `algorithms`. Blocks; reads the file once, 256 KiB at a time.
    ///
    /// - Parameters:
    ///   - range: the bytes of the file that count, as far as the file has them.
    ///   - goesOn: asked before each read. If it returns false, ECANCELED is thrown.
    static func compute(
        _ algorithms: [Checksum.Algorithm], of descriptor: Int32, in range: Range<ByteCount> = 0..<(.max), goesOn: () -> Bool = { true }
    ) throws -> [[UInt8]] {
        let digests = try algorithms.map { try RunningDigest($0) }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: readSize, alignment: 4096)
        defer { buffer.deallocate() }
        var offset = range.lowerBound
        while offset < range.upperBound {
            guard goesOn() else { throw DiskError("read the part file", ECANCELED) }
            let wanted = min(ByteCount(buffer.count), range.upperBound -| offset)
            let count = uninterrupted { pread(descriptor, buffer.baseAddress, Int(clamping: wanted), off_t(clamping: offset)) }
            guard count >= 0 else { throw DiskError("read the part file") }
            if count == 0 { break }
            offset +|= ByteCount(count)
            for digest in digests { digest.add(UnsafeRawBufferPointer(rebasing: buffer[..<count])) }
        }
        return try digests.map { try $0.finish() }
    }
}

/// The digest of bytes that come one after another. A class, because `Digest.compute` keeps several in an array, which takes no noncopyable
/// values.
package final class RunningDigest {
    private let algorithm: Checksum.Algorithm
    private let context: OpaquePointer
    private var hasFailed = false

    /// Loads libcrypto on first use.
    package init(_ algorithm: Checksum.Algorithm) throws(Digest.Unavailable) {
        if let text = todoku_crypto_load() { throw Digest.Unavailable(reason: String(cString: text)) }
        guard let context = md_ctx_new() else { throw Digest.Unavailable(reason: "no memory") }
        (self.algorithm, self.context) = (algorithm, context)
        guard let method = get_digestbyname(algorithm.rawValue.uppercased()), digest_init(context, method) == 1 else {
            throw Digest.Unavailable(reason: "libcrypto does not offer \(algorithm.rawValue)")
        }
    }

    deinit { md_ctx_free(context) }

    /// Hashes `bytes`, which follow the bytes before. Keeps none of them. `finish` reports a failure.
    package func add(_ bytes: UnsafeRawBufferPointer) {
        if digest_update(context, bytes.baseAddress, bytes.count) != 1 { hasFailed = true }
    }

    /// The digest of all bytes. Call once, at the end.
    package func finish() throws(Digest.Unavailable) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: algorithm.length)
        guard !hasFailed, digest_final(context, &digest) == 1 else { throw Digest.Unavailable(reason: "libcrypto failed") }
        return digest
    }
}

extension Digest {
    /// Compares pieces of an open file with their expected digests. Blocks.
    ///
    /// - Parameters:
    ///   - run: the numbers of the pieces. All their bytes are written.
    ///   - size: the size of the whole file.
    ///   - goesOn: asked before each read of 256 KiB. If it returns false, ECANCELED is thrown.
    /// - Returns: the digests of the pieces that differ, by the numbers of the pieces.
    package static func wrongPieces(
        _ run: Range<Int>, of hashes: PieceHashes, size: ByteCount, in descriptor: Int32, goesOn: () -> Bool
    ) throws(DiskError) -> [Int: [UInt8]] {
        var wrong: [Int: [UInt8]] = [:]
        for index in run {
            do {
                let range = hashes.range(of: index, size: size)
                let digest = try compute([hashes.algorithm], of: descriptor, in: range, goesOn: goesOn)[0]
                if Checksum(hashes.algorithm, digest: digest) != hashes.checksum(of: index) { wrong[index] = digest }
            } catch let error as DiskError {
                throw error
            } catch {
                let reason = (error as? Unavailable)?.reason ?? "\(error)"
                let text = "The \(hashes.algorithm.rawValue) digests of the pieces cannot be computed: \(reason)."
                throw DiskError("check the pieces", ENOSYS, refusal: text)
            }
        }
        return wrong
    }
}
