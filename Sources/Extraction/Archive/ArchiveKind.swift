internal import CCoding
internal import DownloadModel

/// The kinds of archives that are unpacked. Only the first bytes of a file decide; its name and media type are ignored.
enum ArchiveKind: Equatable {
    case zip
    case sevenZip
    case tar(Compression?)

    enum Compression: String, CaseIterable {
        case gzip, bzip2, xz, zstd

        var coding: todoku_coding {
            switch self {
            case .gzip: TODOKU_CODING_GZIP
            case .bzip2: TODOKU_CODING_BZIP2
            case .xz: TODOKU_CODING_XZ
            case .zstd: TODOKU_CODING_ZSTD
            }
        }
    }

    var isTar: Bool { if case .tar = self { true } else { false } }

    /// The number of first bytes that are examined.
    static let headSize = 512

    /// - Parameter head: the first `headSize` bytes of a file, or fewer if it has fewer.
    init(head: [UInt8]) throws(ExtractionFailure) {
        func begins(_ bytes: [UInt8]) -> Bool { head.starts(with: bytes) }
        if begins([0x50, 0x4B, 3, 4]) || begins([0x50, 0x4B, 5, 6]) {
            self = .zip
        } else if begins([0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C]) {
            self = .sevenZip
        } else if Self.isTar(head) {
            self = .tar(nil)
        } else if begins([0x1F, 0x8B]) {
            self = .tar(.gzip)
        } else if begins([0x42, 0x5A, 0x68]) {
            self = .tar(.bzip2)
        } else if begins([0xFD, 0x37, 0x7A, 0x58, 0x5A, 0]) {
            self = .tar(.xz)
        } else if begins([0x28, 0xB5, 0x2F, 0xFD]) || head.count >= 4 && head[0] & 0xF0 == 0x50 && head[1...3] == [0x2A, 0x4D, 0x18] {
            self = .tar(.zstd)  // the second begins a frame to be skipped
        } else {
            throw .unsupported(found: Self.name(of: head))
        }
    }

    /// Whether a block has the checksum of a tar header (pax(1), "ustar Interchange Format"), counted by signed or unsigned bytes. A block
    /// of zeros counts, too, because it begins a tar without entries.
    static func isTar(_ block: [UInt8]) -> Bool {
        guard block.count >= 512 else { return false }
        if block[..<512].allSatisfy({ $0 == 0 }) { return true }
        let field = block[148..<156].drop { $0 == 0x20 }.prefix { (0x30...0x37).contains($0) }
        guard !field.isEmpty, let wanted = Int(String(decoding: field, as: UTF8.self), radix: 8) else { return false }
        var (unsigned, signed) = (0x100, 0x100)  // the checksum itself counts as blanks
        for index in 0..<512 where !(148..<156).contains(index) {
            unsigned +|= Int(truncatingIfNeeded: block[index])
            signed +|= Int(truncatingIfNeeded: Int8(bitPattern: block[index]))
        }
        return wanted == unsigned || wanted == signed
    }

    /// The kind of a file with the first bytes `head` that is not unpacked; completes "this is".
    static func name(of head: [UInt8]) -> String {
        if head.isEmpty { return "an empty file" }
        for (bytes, name) in known where head.starts(with: bytes) { return name }
        if head.count > 262, head[257..<262].elementsEqual("ustar".utf8) { return "a damaged tar archive" }
        let text = head.prefix(256).drop { $0 <= 0x20 }.prefix(14).map { (0x41...0x5A).contains($0) ? $0 | 0x20 : $0 }
        if text.starts(with: "<!doctype html".utf8) || text.starts(with: "<html".utf8) { return "a web page" }
        return "no archive that Todoku knows"
    }

    private static let known: [([UInt8], String)] = [
        ([0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C], "a 7z archive"), (Array("Rar!\u{1A}\u{7}".utf8), "a RAR archive"),
        (Array("MSCF".utf8), "a CAB archive"), (Array("07070".utf8), "a cpio archive"), ([0xC7, 0x71], "a cpio archive"),
        (Array("!<arch>\ndebian".utf8), "a Debian package"), (Array("!<arch>\n".utf8), "an ar archive"),
        (Array("xar!".utf8), "a xar archive"),
        ([0xED, 0xAB, 0xEE, 0xDB], "an RPM package"), (Array("LZIP".utf8), "a file of lzip"), ([4, 0x22, 0x4D, 0x18], "a file of lz4"),
        ([0x1F, 0x9D], "a file of compress"), ([0x5D, 0, 0], "a file of lzma"), ([0x89, 0x4C, 0x5A, 0x4F], "a file of lzop"),
        ([0x50, 0x4B, 7, 8], "a zip archive in parts"), ([0x7F, 0x45, 0x4C, 0x46], "a program"),
        (Array("MZ".utf8), "a program for Windows"),
        (Array("#!".utf8), "a script"), (Array("hsqs".utf8), "a squashfs image"), (Array("%PDF-".utf8), "a PDF document"),
        ([0x89, 0x50, 0x4E, 0x47], "a PNG image"), ([0xFF, 0xD8, 0xFF], "a JPEG image"),
    ]
}
