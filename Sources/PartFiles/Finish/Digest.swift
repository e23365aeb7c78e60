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
    /// - Parameter range: the bytes of the file that count, as far as the file has them.
    static func compute(
        _ algorithms: [Checksum.Algorithm], of descriptor: Int32, in range: Range<ByteCount> = 0..<(.max)
    ) throws -> [[UInt8]] {
        if let text = todoku_crypto_load() { throw Unavailable(reason: String(cString: text)) }
        var contexts: [OpaquePointer] = []
        defer { for context in contexts { md_ctx_free(context) } }
        for algorithm in algorithms {
            guard let context = md_ctx_new() else { throw Unavailable(reason: "no memory") }
            contexts.append(context)
            guard let method = get_digestbyname(algorithm.rawValue.uppercased()),
                digest_init(context, method) == 1
            else { throw Unavailable(reason: "libcrypto does not offer \(algorithm.rawValue)") }
        }

        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: readSize, alignment: 4096)
        defer { buffer.deallocate() }
        var offset = range.lowerBound
        while offset < range.upperBound {
            let wanted = min(ByteCount(buffer.count), range.upperBound -| offset)
            let count = uninterrupted { pread(descriptor, buffer.baseAddress, Int(clamping: wanted), off_t(clamping: offset)) }
            guard count >= 0 else { throw DiskError("read the part file") }
            if count == 0 { break }
            offset +|= ByteCount(count)
            for context in contexts where digest_update(context, buffer.baseAddress, count) != 1 {
                throw Unavailable(reason: "libcrypto failed")
            }
        }
        return try zip(algorithms, contexts).map { algorithm, context in
            var digest = [UInt8](repeating: 0, count: algorithm.length)
            guard digest_final(context, &digest) == 1 else { throw Unavailable(reason: "libcrypto failed") }
            return digest
        }
    }
}

extension Digest {
    /// Compares pieces of an open file with their expected digests. Blocks.
    ///
    /// - Parameters:
    ///   - run: the numbers of the pieces. All their bytes are written.
    ///   - size: the size of the whole file.
    /// - Returns: the numbers of the pieces that differ.
    package static func wrongPieces(
        _ run: Range<Int>, of hashes: PieceHashes, size: ByteCount, in descriptor: Int32
    ) throws(DiskError) -> [Int] {
        var wrong: [Int] = []
        for index in run {
            do {
                let digest = try compute([hashes.algorithm], of: descriptor, in: hashes.range(of: index, size: size))[0]
                if Checksum(hashes.algorithm, digest: digest) != hashes.checksum(of: index) { wrong.append(index) }
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
