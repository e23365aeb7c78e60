/// The plural form for a count, by the expression in a catalogue's header, as in `nplurals=2; plural=(n != 1);`.
///
/// Only the expressions of `rules` are known. A language with another one needs a row there.
struct PluralRule: Sendable {
    /// The index of the form for a count.
    let form: @Sendable (UInt64) -> Int

    /// The expressions of gettext's manual (“Additional functions for plural forms”) for languages with one form or two.
    private static let rules: [(expression: String, rule: PluralRule)] = [
        ("0", PluralRule { _ in 0 }),
        ("n!=1", PluralRule { $0 != 1 ? 1 : 0 }),
        ("n>1", PluralRule { $0 > 1 ? 1 : 0 }),
    ]

    private init(form: @escaping @Sendable (UInt64) -> Int) { self.form = form }

    /// nil if the header has no expression, or one that is not known.
    init?(_ header: some StringProtocol) {
        let fields = header.split(separator: ";").map { String($0).filter { !" ()".contains($0) } }
        guard let field = fields.first(where: { $0.hasPrefix("plural=") }),
            let known = Self.rules.first(where: { $0.expression == field.dropFirst("plural=".count) })
        else { return nil }
        self = known.rule
    }
}
