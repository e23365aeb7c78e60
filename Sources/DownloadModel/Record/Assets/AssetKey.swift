/// What names an asset: the application that owns it, and the application's own name for it.
///
/// Both texts are names of folders, and parts of an object path.
public struct AssetKey: Hashable, Comparable, Sendable, CustomStringConvertible {
    public static let longestApp = 150
    public static let longestName = 64

    public let app: String
    public let name: String

    /// - Throws: `InvalidOption`, naming the text that is no name.
    public init(app: String, name: String) throws(Refusal) {
        guard Self.isName(app, most: Self.longestApp) else {
            throw Refusal(
                .invalidOption,
                "An asset belongs to an application id such as org.example.App, of at most \(Self.longestApp) characters, not to “\(shown(app))”."
            )
        }
        guard Self.isName(name, most: Self.longestName) else {
            throw Refusal(
                .invalidOption,
                """
                An asset has a name of 1 to \(Self.longestName) characters of A–Z, a–z, 0–9, “.”, “-” and “_” that begins with a letter or a \
                digit, not “\(shown(name))”.
                """)
        }
        (self.app, self.name) = (app, name)
    }

    private static func isName(_ text: String, most: Int) -> Bool {
        guard let first = text.utf8.first, text.utf8.count <= most, first.isLetter || first.isDigit else { return false }
        return text.utf8.allSatisfy { $0.isLetter || $0.isDigit || ".-_".utf8.contains($0) }
    }

    public static func < (a: AssetKey, b: AssetKey) -> Bool { (a.app, a.name) < (b.app, b.name) }
    public var description: String { "\(app)/\(name)" }
}
