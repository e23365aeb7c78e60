/// Sizes for people. Texts for people use those of their `Catalog`; messages on the bus are English and use these.
public enum HumanText {
    private static let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]

    /// "512 B", "1.5 MiB": binary multiples, one decimal.
    public static func size(_ bytes: ByteCount, point: String = ".") -> String {
        guard bytes >= 1024 else { return "\(bytes) B" }
        var (value, unit) = (Double(bytes) / 1024, 0)
        // A value that rounds to 1024.0 is shown as 1.0 of the next unit.
        while (value * 10).rounded() >= 10_240, unit < units.count - 1 { (value, unit) = (value / 1024, unit + 1) }
        let tenths = Int((value * 10).rounded())
        return "\(tenths / 10)\(point)\(tenths % 10) \(units[unit])"
    }
}

/// A caller's text for an error message: on one line, at most 64 scalars (a character may hold any number of scalars).
public func shown(_ text: String) -> String {
    String(
        String.UnicodeScalarView(
            text.unicodeScalars.prefix(64).map {
                $0.properties.generalCategory == .control || $0.properties.isBidiControl ? "\u{FFFD}" : $0
            }))
}
