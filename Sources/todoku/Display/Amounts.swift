internal import ArgumentParser
internal import DownloadModel
internal import Glibc
internal import Localization

/// Numbers, durations and times as users write them.
enum Amounts {
    /// "10M", "10 MiB", "1.5G": powers of 1024; "10MB": powers of 1000; bytes without a unit. nil: malformed or too large.
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
        return product < 9e18 ? UInt64(clamping: product) : nil
    }

    /// Exactly this number, as `bytes` and `parseSpeedWithUnit` read it: "2MiB", "1000B"; "none" for 0.
    static func exactText(_ bytes: ByteCount) -> String {
        guard bytes > 0 else { return "none" }
        let units = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] as [(String, ByteCount)]
        let (unit, size) = units.first { bytes.isMultiple(of: $0.1) } ?? ("B", 1)
        return "\(bytes / size)\(unit)"
    }

    /// "30s", "500ms", "2m", "1h"; seconds without a unit. nil: malformed, or longer than 49 days (the bus's u32 of milliseconds).
    static func duration(_ text: String) -> Duration? {
        guard let milliseconds = milliseconds(text), milliseconds <= UInt64(longestTime) else { return nil }
        return .milliseconds(Int64(milliseconds))
    }

    /// In milliseconds.
    private static let longestTime = UInt32.max

    /// nil: malformed.
    private static func milliseconds(_ text: String) -> UInt64? {
        let number = text.prefix { $0.isASCII && $0.isNumber }
        let units: [String: UInt64] = ["": 1000, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000]
        guard let count = UInt64(number), let unit = units[text[number.endIndex...].drop { $0 == " " }.lowercased()] else { return nil }
        return count *| unit
    }

    /// "23:30" (the next one), "2026-12-24T03:00", "2026-12-24 03:00:30" in local time; "+2h" from now; "@1800000000" in seconds since the
    /// Unix epoch. nil: malformed, or a day that no calendar has.
    static func instant(_ text: String, now: time_t = time(nil)) -> WallTime? {
        if text.hasPrefix("+") {
            return duration(String(text.dropFirst())).map { WallTime(microseconds: UInt64(clamping: now) *| 1_000_000) + $0 }
        }
        if text.hasPrefix("@") {
            return UInt64(text.dropFirst()).flatMap { $0 < 1 << 43 ? WallTime(microseconds: $0 *| 1_000_000) : nil }
        }
        var moment = now
        var parts = tm()
        localtime_r(&moment, &parts)
        let halves = text.split(separator: text.contains("T") ? "T" : " ", maxSplits: 1, omittingEmptySubsequences: false)
        guard let clock = halves.last.flatMap({ numbers($0, separator: ":") }), clock.count == 2 || clock.count == 3, clock[0] < 24,
            clock[1] < 60, clock.count == 2 || clock[2] < 60
        else { return nil }
        (parts.tm_hour, parts.tm_min, parts.tm_sec) = (clock[0], clock[1], clock.count == 3 ? clock[2] : 0)
        if halves.count == 2 {
            // mktime(3) would make the third of March out of the 31st of February.
            guard let date = numbers(halves[0], separator: "-"), date.count == 3,
                HTTPDate.instant(
                    year: UInt64(clamping: date[0]), month: Int(clamping: date[1]), day: UInt64(clamping: date[2]), hour: 0, minute: 0,
                    second: 0) != nil
            else { return nil }
            (parts.tm_year, parts.tm_mon, parts.tm_mday) = (date[0] - 1900, date[1] - 1, date[2])
        }
        parts.tm_isdst = -1
        var seconds = mktime(&parts)
        if halves.count == 1, seconds <= now {
            (parts.tm_mday, parts.tm_isdst) = (parts.tm_mday + 1, -1)
            seconds = mktime(&parts)
        }
        return seconds >= 0 ? WallTime(microseconds: UInt64(clamping: seconds) *| 1_000_000) : nil
    }

    /// Decimal numbers between separators; nil if there is anything else.
    private static func numbers(_ text: Substring, separator: Character) -> [Int32]? {
        let parts = text.split(separator: separator, omittingEmptySubsequences: false)
        let numbers = parts.compactMap { part in part.allSatisfy { $0.isASCII && $0.isNumber } ? Int32(part) : nil }
        return numbers.count == parts.count ? numbers : nil
    }

    @Sendable static func parseInstant(_ text: String) throws -> WallTime {
        if let instant = instant(text) { return instant }
        if text.hasPrefix("+") { try refuseTooLong(String(text.dropFirst())) }
        throw ValidationError(catalog.text("“%1$s” is not a time; write it like 23:30, 2026-12-24T03:00 or +2h.", text))
    }

    @Sendable static func parseBytes(_ text: String) throws -> ByteCount {
        if let bytes = bytes(text) { return bytes }
        throw ValidationError(catalog.text("“%1$s” is not a size; write a number from 0 on, like 500K, 10MiB or 1.5G.", text))
    }

    /// As `parseBytes`, with an optional "/s"; "none" is 0.
    @Sendable static func parseSpeed(_ text: String) throws -> Speed {
        if text == "none" { return 0 }
        if let bytes = bytes(text.hasSuffix("/s") ? String(text.dropLast(2)) : text) { return bytes }
        throw ValidationError(catalog.text("“%1$s” is not a speed; write a number from 0 on, like 500K, 2MiB or none.", text))
    }

    /// As `parseSpeed`. A small number needs a unit: it is more likely a mistake than a speed.
    static func parseSpeedWithUnit(_ text: String) throws -> Speed {
        guard let number = UInt64(text), (1..<1024).contains(number) else { return try parseSpeed(text) }
        throw ValidationError(
            catalog.text("“%1$s” would be %1$s bytes per second. A speed has a unit: %1$sK, %1$sM or, if you mean bytes, %1$sB.", text))
    }

    @Sendable static func parseDuration(_ text: String) throws -> Duration {
        if let duration = duration(text) { return duration }
        try refuseTooLong(text)
        throw ValidationError(catalog.text("“%1$s” is not a time; write it like 500ms, 30s, 2m or 1h, from 0 to 49 days.", text))
    }

    /// Refuses a time that is well-formed, and that `duration` does not read.
    private static func refuseTooLong(_ text: String) throws {
        guard milliseconds(text) != nil else { return }
        let most = catalog.duration(.milliseconds(Int64(longestTime)))
        throw ValidationError(catalog.text("“%1$s” is too long; write a time of at most %2$s, such as 30s.", text, most))
    }
}
