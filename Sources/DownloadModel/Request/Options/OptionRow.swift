/// One option of a download: its key, type and check, its text in the database, its sandbox rule and its line of help. `OptionRow.all` has
/// a row for each option.
public struct OptionRow: Sendable {
    /// The option's name, for callers and in the database.
    public let key: String
    /// The D-Bus signature of the option's value.
    public let signature: String
    /// The signature of another form of the value; nil: there is none.
    public let otherSignature: String?
    /// A line of help for the argument of `todoku` that sets the option.
    public let help: String
    public let sandbox: SandboxRule

    private let path: any PartialKeyPath<DownloadOptions> & Sendable
    private let takeValue: @Sendable (inout DownloadOptions, OptionValue) throws(Refusal) -> Void
    private let giveValue: @Sendable (DownloadOptions) -> OptionValue?
    private let takeText: @Sendable (inout DownloadOptions, String) -> Bool
    private let giveText: @Sendable (DownloadOptions) -> String?

    typealias Path<V> = any WritableKeyPath<DownloadOptions, V> & Sendable

    /// An option that always has a value. Its default is that of `DownloadOptions`.
    init<V>(_ key: String, _ path: Path<V>, _ form: OptionForm<V>, sandbox: SandboxRule, help: String) {
        let standard = DownloadOptions()[keyPath: path]
        (self.key, signature, self.help, self.sandbox, self.path) = (key, form.signature, help, sandbox, path)
        otherSignature = form.otherSignature
        takeValue = { options, value throws(Refusal) in options[keyPath: path] = try form.decode(key, value) }
        giveValue = { form.encode($0[keyPath: path]) }
        takeText = { options, text in
            guard let value = form.parse(text) else { return false }
            options[keyPath: path] = value
            return true
        }
        giveText = { options in
            let value = options[keyPath: path]
            return value == standard ? nil : form.text(value)
        }
    }

    /// An option without a default value.
    ///
    /// - Parameter none: the value that means "no value" in a call; nil: such a call leaves the option out.
    init<V>(_ key: String, _ path: Path<V?>, _ form: OptionForm<V>, none: OptionValue? = nil, sandbox: SandboxRule, help: String) {
        (self.key, signature, self.help, self.sandbox, self.path) = (key, form.signature, help, sandbox, path)
        otherSignature = form.otherSignature
        takeValue = { options, value throws(Refusal) in options[keyPath: path] = value == none ? nil : try form.decode(key, value) }
        giveValue = { $0[keyPath: path].map(form.encode) ?? none }
        takeText = { options, text in
            options[keyPath: path] = form.parse(text)
            return options[keyPath: path] != nil
        }
        giveText = { $0[keyPath: path].map(form.text) }
    }
}

extension OptionRow {
    /// The signatures of a value, for people: "s", or "b or s".
    public var types: String { [signature, otherSignature].compactMap(\.self).joined(separator: " or ") }

    /// Whether a value may have the D-Bus type `type`.
    public func takes(_ type: String) -> Bool { type == signature || type == otherSignature }

    /// Reads the value of a call into `options`.
    ///
    /// - Throws: `InvalidOption` or `LimitExceeded`, naming the key.
    public func take(_ value: OptionValue, into options: inout DownloadOptions) throws(Refusal) { try takeValue(&options, value) }

    /// The value in `options`, as a call gives it; nil: the call leaves the option out.
    public func value(in options: DownloadOptions) -> OptionValue? { giveValue(options) }

    /// The text for the database; nil for the default, which is not written.
    public func text(in options: DownloadOptions) -> String? { giveText(options) }

    /// Reads the database's text into `options`.
    ///
    /// - Returns: false if `text(in:)` did not write the text.
    public func take(text: String, into options: inout DownloadOptions) -> Bool { takeText(&options, text) }

    public static let byKey = Dictionary(uniqueKeysWithValues: all.map { ($0.key, $0) })

    /// The row of a property of `DownloadOptions`; nil if callers cannot set the property.
    public static func of(_ property: PartialKeyPath<DownloadOptions>) -> OptionRow? { all.first { $0.path == property } }
}

/// The values of an option that an app in a sandbox may give.
public enum SandboxRule: Sendable {
    /// Any value that other callers may give.
    case free
    /// Returns the forbidden request, which completes "An app in a sandbox may not …"; nil if the value is allowed. May also correct the
    /// options.
    case rule(@Sendable (inout DownloadOptions, Sandbox) -> String?)
}

/// The sandbox of a caller, and the user's rules for all sandboxes.
public struct Sandbox: Sendable {
    /// The application's id.
    public let app: String
    /// The folder of its downloads, an absolute path.
    public let folder: String
    /// The user lets apps in a sandbox reach this machine and private networks.
    public let allowsPrivate: Bool

    public init(app: String, folder: String, allowsPrivate: Bool) {
        (self.app, self.folder, self.allowsPrivate) = (app, folder, allowsPrivate)
    }

    /// Whether `path` is the sandbox's folder, by its text alone.
    public func isFolder(_ path: String) -> Bool { path.tidyPath.isSameBytes(as: folder.tidyPath) }

    /// Whether a name is the application's id, or the id followed by a dot and more.
    func isOwn(_ name: String) -> Bool { name == app || name.hasPrefix(app + ".") }

    /// Whether snapd makes the desktop entry for this snap: `NAME_ENTRY`, or `NAME+KEY_ENTRY` for an instance (snapd, `DesktopPrefix` in
    /// snap/info.go). No entry of another snap has this prefix.
    func isEntryOfSnap(_ name: String) -> Bool {
        guard app.hasPrefix("snap.") else { return false }
        let instance = app.dropFirst(5).split(separator: "_")
        return name.hasPrefix(instance.joined(separator: "+") + "_")
    }
}
