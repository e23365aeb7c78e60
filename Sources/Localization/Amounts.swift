public import DownloadModel

/// Sizes, speeds and times for people.
extension Catalog {
    /// "512 B", "1.5 MiB": binary multiples, one decimal.
    public func size(_ bytes: ByteCount) -> String { HumanText.size(bytes, point: numbers.point) }

    /// "1.5 MiB of 30.0 MiB"; "1.5 MiB" if `whole` is nil.
    public func size(_ bytes: ByteCount, of whole: ByteCount?) -> String {
        whole.map { text("%1$s of %2$s", size(bytes), size($0)) } ?? size(bytes)
    }

    /// "3.2 MiB/s".
    public func speed(_ speed: Speed) -> String { text("%1$s/s", size(speed)) }

    /// "42 %".
    public func percent(_ percent: Int) -> String { text("%1$s %%", String(percent)) }

    /// "12,345".
    public func count(_ count: some BinaryInteger) -> String { numbers.grouped(UInt64(clamping: count)) }

    /// "45 s", "2 min 5 s", "1 h 3 min", "2 d 4 h": the two largest units, rounded up to whole seconds; "0 s" if not positive.
    public func duration(_ duration: Duration) -> String {
        let (whole, rest) = max(duration, .zero).components
        let seconds = rest > 0 && whole < .max ? whole + 1 : whole
        switch seconds {
        case ..<60: return text("%1$s s", String(seconds))
        case ..<3600:
            let (minutes, rest) = (String(seconds / 60), seconds % 60)
            return rest == 0 ? text("%1$s min", minutes) : text("%1$s min %2$s s", minutes, String(rest))
        case ..<86_400:
            let (hours, rest) = (String(seconds / 3600), seconds % 3600 / 60)
            return rest == 0 ? text("%1$s h", hours) : text("%1$s h %2$s min", hours, String(rest))
        default:
            let (days, rest) = (numbers.grouped(UInt64(seconds / 86_400)), seconds % 86_400 / 3600)
            return rest == 0 ? text("%1$s d", days) : text("%1$s d %2$s h", days, String(rest))
        }
    }

    /// "10 finished, 2 failed": the counts that are not 0.
    ///
    /// - Parameter always: whether to write the number of finished ones even if it is 0.
    public func outcomes(_ outcomes: OutcomeCounts, always: Bool = false) -> String {
        let (finished, failed, cancelled) = (UInt64(outcomes.finished), UInt64(outcomes.failed), UInt64(outcomes.cancelled))
        return list([
            finished > 0 || always ? text("%1$s finished", "%1$s finished", count: finished) : nil,
            failed > 0 ? text("%1$s failed", "%1$s failed", count: failed) : nil,
            cancelled > 0 ? text("%1$s cancelled", "%1$s cancelled", count: cancelled) : nil,
        ])
    }

    /// "one, two, three": the parts that are not nil.
    public func list(_ parts: [String?]) -> String {
        let parts = parts.compactMap(\.self)
        return parts.dropFirst().reduce(parts.first ?? "") { text("%1$s, %2$s", $0, $1) }
    }
}
