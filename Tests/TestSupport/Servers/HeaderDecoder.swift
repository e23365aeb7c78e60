/// Decodes the header blocks of the requests on one HTTP/2 connection (HPACK, RFC 7541), as far as libcurl's requests need.
///
/// No entry of the dynamic table is evicted: entries count from the newest one, and an encoder names no evicted entry.
struct HeaderDecoder {
    typealias Field = (name: String, value: String)

    /// The fields that were added to the dynamic table, the newest first.
    private var added: [Field] = []

    /// The fields of a whole block. Traps if the block is malformed, or has a byte that URLs and header fields of tests do not have.
    mutating func fields(of block: [UInt8]) -> [Field] {
        var rest = block[...]
        var fields: [Field] = []
        while let first = rest.first {
            switch first {
            case 0x80...: fields.append(entry(Self.integer(&rest, bits: 7)))
            case 0x40...:
                let field = literal(&rest, bits: 6)
                added.insert(field, at: 0)
                fields.append(field)
            case 0x20...: _ = Self.integer(&rest, bits: 5)  // a new size of the dynamic table
            default: fields.append(literal(&rest, bits: 4))
            }
        }
        return fields
    }

    private func entry(_ index: Int) -> Field {
        index <= Self.fixed.count ? Self.fixed[index - 1] : added[index - Self.fixed.count - 1]
    }

    /// A field whose value is in the block, and whose name is if its index is 0.
    private func literal(_ rest: inout ArraySlice<UInt8>, bits: Int) -> Field {
        let index = Self.integer(&rest, bits: bits)
        let name = index == 0 ? Self.text(&rest) : entry(index).name
        return (name, Self.text(&rest))
    }

    /// An integer that begins in the last `bits` bits of the first byte (section 5.1).
    private static func integer(_ rest: inout ArraySlice<UInt8>, bits: Int) -> Int {
        let most = (1 << bits) - 1
        var value = Int(rest.removeFirst()) & most
        guard value == most else { return value }
        var shift = 0
        while true {
            let byte = Int(rest.removeFirst())
            value += (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 { return value }
        }
    }

    /// A string, in the Huffman code or plain (section 5.2).
    private static func text(_ rest: inout ArraySlice<UInt8>) -> String {
        let isCoded = rest[rest.startIndex] >= 0x80
        let count = integer(&rest, bits: 7)
        let bytes = rest.prefix(count)
        rest = rest.dropFirst(count)
        return isCoded ? decoded(bytes) : String(decoding: bytes, as: UTF8.self)
    }

    private static func decoded(_ bytes: ArraySlice<UInt8>) -> String {
        var text = ""
        var (code, length) = (0, 0)
        for byte in bytes {
            for shift in (0..<8).reversed() {
                (code, length) = (code << 1 | Int(byte) >> shift & 1, length + 1)
                precondition(length <= 15, "a character that this decoder does not know")
                guard let character = codes[length << 16 | code] else { continue }
                text.append(character)
                (code, length) = (0, 0)
            }
        }
        return text  // up to seven bits are left, all of them 1
    }

    /// The characters with codes of at most 15 bits (appendix B), by length and code. The code is canonical: within a length, the codes
    /// follow each other, and so do those of the next length.
    private static let codes: [Int: Character] = {
        let lengths: [(Int, String)] = [
            (5, "012aceiost"), (6, " %-./3456789=A_bdfghlmnpru"), (7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"), (8, "&*,;XZ"), (10, "!\"()?"),
            (11, "'+|"), (12, "#>"), (13, "\0$@[]~"), (14, "^}"), (15, "<`{"),
        ]
        var codes: [Int: Character] = [:]
        var (code, last) = (0, 0)
        for (length, characters) in lengths {
            code <<= length - last
            last = length
            for character in characters {
                codes[length << 16 | code] = character
                code += 1
            }
        }
        return codes
    }()

    /// The static table (appendix A): names, and after a space the values that are not empty.
    private static let fixed: [Field] = """
        :authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|:status 204|:status 206|\
        :status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate|accept-language|accept-ranges|accept|\
        access-control-allow-origin|age|allow|authorization|cache-control|content-disposition|content-encoding|content-language|\
        content-length|content-location|content-range|content-type|cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|\
        if-none-match|if-range|if-unmodified-since|last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|\
        referer|refresh|retry-after|server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate
        """.split(separator: "|").map { entry in
            let pair = entry.split(separator: " ", maxSplits: 1)
            return (String(pair[0]), pair.count == 2 ? String(pair[1]) : "")
        }
}
