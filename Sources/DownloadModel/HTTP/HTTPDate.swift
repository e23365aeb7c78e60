/// The three forms of an HTTP date (RFC 9110 §5.6.7).
public enum HTTPDate {
    /// Reads `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or `Sun Nov 6 08:49:37 1994`.
    ///
    /// A two-digit year that would be more than 50 years after `now` is in the century before. Without `now`, 70 to 99 are in the 20th
    /// century. The day of the week is not compared with the date.
    ///
    /// - Returns: nil if malformed, impossible, before 1970 or after 9999.
    public static func parse(_ field: String, now: WallTime? = nil) -> WallTime? {
        let words = field.utf8.split(whereSeparator: \.isBlank).map { String(decoding: $0, as: UTF8.self) }
        switch words.count {
        case 6:  // IMF-fixdate
            guard words[5] == "GMT", words[0].hasSuffix(","), days.contains(String(words[0].dropLast())), words[3].utf8.count == 4,
                words[1].utf8.count == 2
            else { return nil }
            return instant(year: words[3], month: words[2], day: words[1], time: words[4])
        case 4:  // RFC 850
            let date = words[1].split(separator: "-", omittingEmptySubsequences: false).map(String.init)
            guard words[3] == "GMT", words[0].hasSuffix("day,"), days.contains(String(words[0].prefix(3))), date.count == 3,
                date[0].utf8.count == 2, date[2].utf8.count == 2, let short = decimal(date[2].utf8, as: UInt64.self)
            else { return nil }
            var year = short + (short < 70 ? 2000 : 1900)
            if let now {
                let current = self.year(of: now)
                year = short + current / 100 * 100
                if year > current + 50 { year -= 100 }
            }
            return instant(year: String(year), month: date[1], day: date[0], time: words[2])
        case 5:  // asctime
            guard days.contains(words[0]), words[4].utf8.count == 4, words[2].utf8.count <= 2 else { return nil }
            return instant(year: words[4], month: words[1], day: words[2], time: words[3])
        default: return nil
        }
    }

    private static let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    private static func instant(year: String, month: String, day: String, time: String) -> WallTime? {
        let clock = time.utf8.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
        guard let year = decimal(year.utf8, as: UInt64.self), let month = months.firstIndex(of: month),
            let day = decimal(day.utf8, as: UInt64.self), clock.count == 3, clock.allSatisfy({ $0.count == 2 }),
            let hour = decimal(clock[0], as: UInt64.self), let minute = decimal(clock[1], as: UInt64.self),
            let second = decimal(clock[2], as: UInt64.self)
        else { return nil }
        return instant(year: year, month: month + 1, day: day, hour: hour, minute: minute, second: second)
    }

    /// The instant of a date and a time of day in UTC; nil if there is none, before 1970 or after 9999. A leap second (60) counts as the
    /// second before it.
    package static func instant(year: UInt64, month: Int, day: UInt64, hour: UInt64, minute: UInt64, second: UInt64) -> WallTime? {
        guard (1970...9999).contains(year), (1...12).contains(month) else { return nil }
        let lengths: [UInt64] = [31, isLeap(year) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        guard (1...lengths[month - 1]).contains(day), hour < 24, minute < 60, second <= 60 else { return nil }
        let wholeDays = daysBefore(year) + lengths[..<(month - 1)].reduce(0, +) + day - 1
        let seconds = wholeDays * 86_400 + hour * 3600 + minute * 60 + min(second, 59)
        return WallTime(microseconds: seconds * 1_000_000)
    }

    private static func isLeap(_ year: UInt64) -> Bool { year.isMultiple(of: 4) && (!year.isMultiple(of: 100) || year.isMultiple(of: 400)) }

    /// Days from the epoch to the first of January of `year`, 1970 or later (proleptic Gregorian).
    private static func daysBefore(_ year: UInt64) -> UInt64 {
        func leaps(_ year: UInt64) -> UInt64 { year / 4 - year / 100 + year / 400 }
        return (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
    }

    private static func year(of time: WallTime) -> UInt64 {
        let wholeDays = time.microseconds / 86_400_000_000
        var year = 1970 + wholeDays / 366
        while daysBefore(year + 1) <= wholeDays { year += 1 }
        return year
    }
}
