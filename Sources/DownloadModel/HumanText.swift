/// Numbers as people read them, in toasts and in the command. The same in every language.
public enum HumanText {
    private static let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]

    /// "512 B", "1.5 MiB": binary multiples, one decimal.
    public static func size(_ bytes: ByteCount) -> String {
        guard bytes >= 1024 else { return "\(bytes) B" }
        var (value, unit) = (Double(bytes) / 1024, 0)
        // What would be rounded to 1024.0 is 1.0 of the next unit.
        while (value * 10).rounded() >= 10_240, unit < units.count - 1 { (value, unit) = (value / 1024, unit + 1) }
        let tenths = Int((value * 10).rounded())
        return "\(tenths / 10).\(tenths % 10) \(units[unit])"
    }

    /// "3.2 MiB/s".
    public static func speed(_ speed: Speed) -> String { size(speed) + "/s" }

    /// "45 s", "2 min 5 s", "1 h 3 min", "2 d 4 h": the two largest units, rounded up to whole seconds; "0 s" for what is not positive.
    public static func duration(_ duration: Duration) -> String {
        let (whole, rest) = max(duration, .zero).components
        let seconds = rest > 0 && whole < .max ? whole + 1 : whole
        func text(_ large: Int64, _ largeUnit: String, _ small: Int64, _ smallUnit: String) -> String {
            small == 0 ? "\(large) \(largeUnit)" : "\(large) \(largeUnit) \(small) \(smallUnit)"
        }
        return switch seconds {
        case ..<60: "\(seconds) s"
        case ..<3600: text(seconds / 60, "min", seconds % 60, "s")
        case ..<86_400: text(seconds / 3600, "h", seconds % 3600 / 60, "min")
        default: text(seconds / 86_400, "d", seconds % 86_400 / 3600, "h")
        }
    }
}
