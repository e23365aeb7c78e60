internal import ArgumentParser
internal import DownloadModel

/// Numbers as people write them.
enum Amounts {
    /// "10M", "10 MiB", "1.5G": powers of 1024; "10MB": powers of 1000; bytes without a unit. nil: it is none, or too large.
    static func bytes(_ text: String) -> ByteCount? {
        let lower = text.lowercased()
        let number = lower.prefix { $0.isASCII && ($0.isNumber || $0 == ".") }
        let unit = lower[number.endIndex...].drop { $0 == " " }
        let factor: UInt64
        if unit.isEmpty || unit == "b" {
            factor = 1
        } else {
            guard let place = ["k", "m", "g", "t", "p"].firstIndex(of: String(unit.prefix(1))) else { return nil }
            let base: UInt64
            switch unit.dropFirst() {
            case "", "i", "ib": base = 1024
            case "b": base = 1000
            default: return nil
            }
            factor = (0...place).reduce(1) { product, _ in product * base }
        }
        if let whole = UInt64(number) {
            let (product, overflow) = whole.multipliedReportingOverflow(by: factor)
            return overflow ? nil : product
        }
        guard factor > 1, number.first != ".", number.last != ".", let value = Double(number) else { return nil }
        let product = (value * Double(factor)).rounded()
        return product < 9e18 ? UInt64(product) : nil
    }

    /// "30s", "500ms", "2m", "1h"; seconds without a unit. nil: it is none, or longer than 49 days (the bus's u32 of milliseconds).
    static func duration(_ text: String) -> Duration? {
        let number = text.prefix { $0.isASCII && $0.isNumber }
        let units: [String: UInt64] = ["": 1000, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000]
        guard let count = UInt64(number), let unit = units[text[number.endIndex...].drop { $0 == " " }.lowercased()] else { return nil }
        let (milliseconds, overflow) = count.multipliedReportingOverflow(by: unit)
        guard !overflow, milliseconds <= UInt64(UInt32.max) else { return nil }
        return .milliseconds(Int64(milliseconds))
    }

    @Sendable static func parseBytes(_ text: String) throws -> ByteCount {
        if let bytes = bytes(text) { return bytes }
        throw ValidationError("“\(text)” is no size; write it as in 500K, 10MiB or 1.5G.")
    }

    /// As `parseBytes`; "none" is 0.
    @Sendable static func parseSpeed(_ text: String) throws -> Speed {
        if text == "none" { return 0 }
        if let bytes = bytes(text.hasSuffix("/s") ? String(text.dropLast(2)) : text) { return bytes }
        throw ValidationError("“\(text)” is no speed; write it as in 500K, 2MiB or none.")
    }

    @Sendable static func parseDuration(_ text: String) throws -> Duration {
        if let duration = duration(text) { return duration }
        throw ValidationError("“\(text)” is no time; write it as in 500ms, 30s or 2m.")
    }
}
