/// A tar archive written byte by byte, good or hostile.
struct TarBytes {
    var bytes: [UInt8] = []

    init() {}

    /// - Parameter size: the size in the header; nil: the size of `data`.
    func adding(
        _ name: String, type: Character = "0", _ data: [UInt8] = [], link: String = "", mode: Int = 0o644, size: Int? = nil,
        nameBytes: [UInt8]? = nil
    ) -> TarBytes {
        var header = [UInt8](repeating: 0, count: 512)
        func put(_ text: [UInt8], _ place: Int, _ room: Int) {
            header.replaceSubrange(place..<place + min(room, text.count), with: text.prefix(room))
        }
        func octal(_ number: Int, _ digits: Int) -> [UInt8] {
            let text = String(number, radix: 8)
            return Array((String(repeating: "0", count: max(0, digits - text.count)) + text).utf8)
        }
        put(nameBytes ?? Array(name.utf8), 0, 100)
        put(octal(mode, 7), 100, 7)
        put(octal(0, 7), 108, 7)
        put(octal(0, 7), 116, 7)
        let count = size ?? data.count
        if count < 1 << 33 {
            put(octal(count, 11), 124, 11)
        } else {  // GNU's binary numbers
            put([0x80, 0, 0, 0] + (0..<8).map { UInt8(truncatingIfNeeded: count >> (56 - 8 * $0)) }, 124, 12)
        }
        put(octal(1_700_000_000, 11), 136, 11)
        put([UInt8](repeating: 0x20, count: 8), 148, 8)
        put([type.asciiValue ?? 0], 156, 1)
        put(Array(link.utf8), 157, 100)
        put(Array("ustar\u{0}00".utf8), 257, 8)
        if "34".contains(type) {
            put(octal(1, 7), 329, 7)
            put(octal(3, 7), 337, 7)
        }
        let sum = header.reduce(0) { $0 + Int($1) }
        put(octal(sum, 6) + [0, 0x20], 148, 8)
        var next = self
        next.bytes += header + data + [UInt8](repeating: 0, count: (512 - data.count % 512) % 512)
        return next
    }

    /// An extended header (pax) in front of the next entry.
    func addingPax(_ records: [(String, String)]) -> TarBytes {
        let text = records.map { key, value in
            let rest = " \(key)=\(value)\n"
            var length = rest.utf8.count + 1
            while "\(length)".utf8.count + rest.utf8.count != length { length += 1 }
            return "\(length)\(rest)"
        }
        return adding("pax", type: "x", Array(text.joined().utf8))
    }

    /// The archive with its end mark.
    var whole: [UInt8] { bytes + [UInt8](repeating: 0, count: 1024) }
}

/// A zip archive of stored entries, good or hostile.
struct ZipBytes {
    struct Entry {
        var name: [UInt8]
        var data: [UInt8] = []
        var mode = 0o100644
        var flags = 0
        var method = 0
        var localName: [UInt8]?
    }
    var entries: [Entry] = []

    func adding(_ name: String, _ data: [UInt8] = [], mode: Int = 0o100644, flags: Int = 0, method: Int = 0) -> ZipBytes {
        adding(Entry(name: Array(name.utf8), data: data, mode: mode, flags: flags, method: method))
    }

    func adding(_ entry: Entry) -> ZipBytes {
        var next = self
        next.entries.append(entry)
        return next
    }

    var whole: [UInt8] {
        var (body, directory): ([UInt8], [UInt8]) = ([], [])
        for entry in entries {
            let place = body.count
            let numbers =
                two(entry.flags) + two(entry.method) + two(0) + two(0x5865) + four(Int(crc32(entry.data))) + four(entry.data.count)
                + four(entry.data.count)
            let name = entry.localName ?? entry.name
            body += [0x50, 0x4B, 3, 4] + two(20) + numbers + two(name.count) + two(0) + name + entry.data
            directory += [0x50, 0x4B, 1, 2] + two(3 << 8 | 20) + two(20) + numbers + two(entry.name.count) + two(0) + two(0) + two(0)
            directory += two(0) + four(entry.mode << 16) + four(place) + entry.name
        }
        let end = [0x50, 0x4B, 5, 6] + two(0) + two(0) + two(entries.count & 0xFFFF) + two(entries.count & 0xFFFF)
        return body + directory + end + four(directory.count) + four(body.count) + two(0)
    }

    private func two(_ number: Int) -> [UInt8] { (0..<2).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) } }
    private func four(_ number: Int) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) } }

    private func crc32(_ bytes: [UInt8]) -> UInt32 {
        var sum: UInt32 = .max
        for byte in bytes {
            sum ^= UInt32(byte)
            for _ in 0..<8 { sum = sum & 1 == 1 ? (sum >> 1) ^ 0xEDB8_8320 : sum >> 1 }
        }
        return ~sum
    }
}
