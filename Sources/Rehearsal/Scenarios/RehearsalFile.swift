internal import DownloadModel

/// A file of the scripted server. Its bytes look random, and are the same in each rehearsal.
struct RehearsalFile: Equatable {
    /// A second version has other bytes of the same number.
    enum Version: UInt64 { case first = 1, second }

    let name: String
    let size: UInt64
    /// SHA-256 of the first version, in hexadecimal digits. A test compares it with the bytes.
    let sha256: String
    /// The same digest in base64, for `Repr-Digest`.
    let base64: String

    static let small = RehearsalFile(
        name: "small", size: 64 << 10, sha256: "03894819dfb693b9149de158ef0b3ee5e58d248769f1bd0b1cf94cda595ed5d1",
        base64: "A4lIGd+2k7kUneFY7ws+5eWNJIdp8b0LHPlM2lle1dE=")
    static let file = RehearsalFile(
        name: "file", size: 4 << 20, sha256: "0119a6b8669a8319a0a9c7302ef35f80165370f97a8d0e9bd7c8293566744035",
        base64: "ARmmuGaagxmgqccwLvNfgBZTcPl6jQ6b18gpNWZ0QDU=")
    static let large = RehearsalFile(
        name: "large", size: 16 << 20, sha256: "a7a31875313490b8764e2247b39dbaa4f98cce904cfc0fcff4d4ab4ae7da3dd1",
        base64: "p6MYdTE0kLh2TiJHs526pPmMzpBM/A/P9NSrSufaPdE=")

    /// The file that `name` stands for at the server: `file`, and also `file-2` and `file.iso`, so that a test can use many names.
    static func named(_ name: String) -> RehearsalFile? {
        let stem = name.prefix { $0 != "-" && $0 != "." }
        return [small, file, large].first { $0.name == stem }
    }

    /// The eight bytes number `index` of the file: splitmix64 of their place, the file and the version.
    private func word(_ index: UInt64, _ version: Version) -> UInt64 {
        var z = (index &+ size << 20 &+ version.rawValue << 56) &* 0x9E37_79B9_7F4A_7C15
        z = (z ^ z >> 30) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
        return (z ^ z >> 31).littleEndian
    }

    /// Fills `buffer` with the bytes of the file from `place` on, as far as the file has them.
    ///
    /// - Returns: the number of bytes.
    func fill(_ buffer: UnsafeMutableRawBufferPointer, from place: UInt64, _ version: Version = .first) -> Int {
        let count = Int(clamping: min(size -| place, UInt64(clamping: buffer.count)))
        var (done, place) = (0, place)
        while done < count {
            withUnsafeBytes(of: word(place >> 3, version)) { bytes in
                for byte in bytes.dropFirst(Int(truncatingIfNeeded: place & 7)).prefix(count &- done) {
                    buffer[done] = byte
                    done &+= 1
                    place &+= 1
                }
            }
        }
        return count
    }
}
