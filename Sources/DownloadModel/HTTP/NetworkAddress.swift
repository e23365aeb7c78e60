/// Whether `text` names this machine or a network other than the public one. `text` is an address (IPv4 of four decimal numbers, or IPv6
/// with an optional zone after "%"), or `localhost` or a name below it.
///
/// Private are loopback, "this network" (0/8), RFC 1918, carrier NAT (100.64/10, RFC 6598), link-local, unique local (fc00::/7), the old
/// site-local addresses, the unspecified address, and IPv6 forms that embed such an IPv4 address. Any other text is not private. No name is
/// looked up.
public func isPrivateAddress(_ text: String) -> Bool {
    let name = text.hasSuffix(".") ? text.dropLast().lowercased() : text.lowercased()
    if name == "localhost" || name.hasSuffix(".localhost") { return true }
    if let address = IPv4Address(name) { return address.isPrivate }
    return IPv6Address(String(name.prefix { $0 != "%" }))?.isPrivate ?? false
}

/// Whether `text` names this machine: `localhost` and the names below it, 127/8, `::1`, and IPv4-mapped 127/8. No name is looked up.
public func isLoopbackAddress(_ text: String) -> Bool {
    let name = text.hasSuffix(".") ? text.dropLast().lowercased() : text.lowercased()
    if name == "localhost" || name.hasSuffix(".localhost") { return true }
    if let address = IPv4Address(name) { return address.isLoopback }
    return IPv6Address(name)?.isLoopback ?? false
}

/// Four decimal numbers, without leading zeros.
struct IPv4Address: Equatable {
    let bits: UInt32

    init(bits: UInt32) { self.bits = bits }

    init?(_ text: String) {
        var bits: UInt32 = 0
        var rest = text.utf8[...]
        for index in 0..<4 {
            if index > 0, rest.popFirst() != UInt8(ascii: ".") { return nil }
            let part = rest.prefix { $0 != UInt8(ascii: ".") }
            guard part.count <= 3, part.count == 1 || part.first != UInt8(ascii: "0"), let number = decimal(part, as: UInt8.self) else {
                return nil
            }
            bits = bits << 8 | UInt32(number)
            rest = rest[part.endIndex...]
        }
        guard rest.isEmpty else { return nil }
        self.bits = bits
    }

    var isLoopback: Bool { bits >> 24 == 127 }

    var isPrivate: Bool {
        func lies(in network: UInt32, _ length: UInt32) -> Bool { bits >> (32 - length) == network >> (32 - length) }
        return lies(in: 0, 8) || lies(in: 0x0A00_0000, 8) || lies(in: 0x6440_0000, 10) || lies(in: 0x7F00_0000, 8)
            || lies(in: 0xA9FE_0000, 16) || lies(in: 0xAC10_0000, 12) || lies(in: 0xC0A8_0000, 16)
    }
}

/// Reads RFC 4291 §2.2, writes RFC 5952; no zone.
struct IPv6Address: Equatable, CustomStringConvertible {
    /// Eight groups, most significant first.
    let groups: [UInt16]

    init?(_ text: String) {
        guard text.utf8.count <= 45 else { return nil }
        // The first "::". A second one yields an empty group, which is refused.
        let colons = zip(text.indices, text.indices.dropFirst()).first { text[$0] == ":" && text[$1] == ":" }
        guard let colons else {
            guard let all = Self.groups(text[...], isEnd: true), all.count == 8 else { return nil }
            groups = all
            return
        }
        guard let head = Self.groups(text[..<colons.0], isEnd: false),
            let tail = Self.groups(text[text.index(after: colons.1)...], isEnd: true), head.count + tail.count <= 7
        else { return nil }
        groups = head + Array(repeating: 0, count: 8 - head.count - tail.count) + tail
    }

    /// The groups between colons. If `isEnd`, the last two may be an IPv4 address. nil if malformed.
    private static func groups(_ text: Substring, isEnd: Bool) -> [UInt16]? {
        guard !text.isEmpty else { return [] }
        var groups: [UInt16] = []
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        for (index, part) in parts.enumerated() {
            if part.contains(".") {
                guard isEnd, index == parts.count - 1, let embedded = IPv4Address(String(part)) else { return nil }
                groups += [UInt16(embedded.bits >> 16), UInt16(embedded.bits & 0xFFFF)]
            } else {
                guard (1...4).contains(part.utf8.count), part.utf8.allSatisfy({ PercentEncoding.hexadecimal($0) != nil }),
                    let group = UInt16(part, radix: 16)
                else { return nil }
                groups.append(group)
            }
        }
        return groups
    }

    var isPrivate: Bool {
        if groups[0] & 0xFE00 == 0xFC00 || groups[0] & 0xFFC0 == 0xFE80 || groups[0] & 0xFFC0 == 0xFEC0 { return true }
        if groups[0] == 0x64, groups[1] == 0xFF9B, groups[2] == 1 { return true }  // RFC 8215: the local network's NAT64 translator
        if groups[..<7].allSatisfy({ $0 == 0 }), groups[7] <= 1 { return true }
        return embedded?.isPrivate ?? false
    }

    var isLoopback: Bool { groups == [0, 0, 0, 0, 0, 0, 0, 1] || groups[..<6] == [0, 0, 0, 0, 0, 0xFFFF] && embedded?.isLoopback == true }

    /// The embedded IPv4 address to which packets are routed: mapped, translated (RFC 2765), compatible, NAT64 (RFC 6052) and 6to4 (RFC
    /// 3056) forms.
    private var embedded: IPv4Address? {
        func address(at index: Int) -> IPv4Address { IPv4Address(bits: UInt32(groups[index]) << 16 | UInt32(groups[index + 1])) }
        return switch groups[..<6] {
        case [0, 0, 0, 0, 0, 0xFFFF], [0, 0, 0, 0, 0, 0], [0x64, 0xFF9B, 0, 0, 0, 0],
            [0, 0, 0, 0, 0xFFFF, 0]:
            address(at: 6)
        default: groups[0] == 0x2002 ? address(at: 1) : nil
        }
    }

    var description: String {
        // The longest run of two or more zero groups becomes "::"; of equally long runs, the first.
        var longest = 0..<0
        var start: Int?
        for index in 0...8 {
            if index < 8, groups[index] == 0 {
                start = start ?? index
            } else if let first = start {
                if index - first > max(longest.count, 1) { longest = first..<index }
                start = nil
            }
        }
        func text(_ groups: ArraySlice<UInt16>) -> String { groups.map { String($0, radix: 16) }.joined(separator: ":") }
        return longest.isEmpty ? text(groups[...]) : text(groups[..<longest.lowerBound]) + "::" + text(groups[longest.upperBound...])
    }
}
