/// The field `Retry-After` (RFC 9110 §10.2.3).
public enum RetryAfter {
    /// The longest delay that a server can impose before the next attempt.
    public static let longest: Duration = .seconds(24 * 3600)

    /// The delay that the server requests, in seconds or by a date: from zero to `longest`. nil if malformed.
    public static func delay(_ field: String, now: WallTime) -> Duration? {
        let bytes = Array(field.utf8).trimmingBlanks
        if !bytes.isEmpty, bytes.allSatisfy(\.isDigit) {
            // A number too large for the type is more than a day, too.
            return decimal(bytes, as: Int64.self).map { min(.seconds($0), longest) } ?? longest
        }
        guard let time = HTTPDate.parse(field, now: now) else { return nil }
        guard time > now else { return .zero }
        return min(.microseconds(Int64(clamping: time.microseconds -| now.microseconds)), longest)
    }
}
