/// One option of a download: its key, its type, its check, its text in the database, what an app in a sandbox may ask for, and its line of
/// help. `OptionRow.all` has a row for each.
public struct OptionRow: Sendable {
    /// As callers write it, and the database.
    public let key: String
    /// D-Bus signature of its value.
    public let signature: String
    /// A line for people at a terminal, who give the option as an argument of `todoku`.
    public let help: String
    public let sandbox: SandboxRule

    private let path: any PartialKeyPath<DownloadOptions> & Sendable
    private let takeValue: @Sendable (inout DownloadOptions, OptionValue) throws(Refusal) -> Void
    private let giveValue: @Sendable (DownloadOptions) -> OptionValue?
    private let takeText: @Sendable (inout DownloadOptions, String) -> Bool
    private let giveText: @Sendable (DownloadOptions) -> String?

    typealias Path<V> = any WritableKeyPath<DownloadOptions, V> & Sendable

    /// An option that always has a value. The default is that of `DownloadOptions`.
    init<V>(_ key: String, _ path: Path<V>, _ form: OptionForm<V>, sandbox: SandboxRule, help: String) {
        let standard = DownloadOptions()[keyPath: path]
        (self.key, signature, self.help, self.sandbox, self.path) = (key, form.signature, help, sandbox, path)
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

    /// An option that may be without a value.
    ///
    /// - Parameter none: what a call gives for "no value"; nil: it leaves the option out.
    init<V>(_ key: String, _ path: Path<V?>, _ form: OptionForm<V>, none: OptionValue? = nil, sandbox: SandboxRule, help: String) {
        (self.key, signature, self.help, self.sandbox, self.path) = (key, form.signature, help, sandbox, path)
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
    /// Reads the value of a call into `options`.
    ///
    /// - Throws: `InvalidOption` or `LimitExceeded`, naming the key.
    public func take(_ value: OptionValue, into options: inout DownloadOptions) throws(Refusal) { try takeValue(&options, value) }

    /// What a call has to give for the value in `options`; nil: it leaves the option out.
    public func value(in options: DownloadOptions) -> OptionValue? { giveValue(options) }

    /// The text for the database; nil: the default, which is not written.
    public func text(in options: DownloadOptions) -> String? { giveText(options) }

    /// Reads the text of the database into `options`.
    ///
    /// - Returns: false where `text(in:)` did not write it.
    public func take(text: String, into options: inout DownloadOptions) -> Bool { takeText(&options, text) }

    /// By key.
    public static let byKey = Dictionary(uniqueKeysWithValues: all.map { ($0.key, $0) })

    /// The row of a property of `DownloadOptions`; nil for one that is no option of callers.
    public static func of(_ property: PartialKeyPath<DownloadOptions>) -> OptionRow? { all.first { $0.path == property } }
}

/// What an app in a sandbox may ask for by an option.
public enum SandboxRule: Sendable {
    /// Whatever others may.
    case free
    /// What completes "An app in a sandbox may not …", for what was asked; nil: it may. The options may be put right instead.
    case rule(@Sendable (inout DownloadOptions, Sandbox) -> String?)
}

/// The sandbox that a call comes from, and what holds for all of them.
public struct Sandbox: Sendable {
    /// The application's id.
    public let app: String
    /// Absolute; where its downloads go.
    public let folder: String
    /// The user lets apps in a sandbox reach this machine and private networks.
    public let allowsPrivate: Bool

    public init(app: String, folder: String, allowsPrivate: Bool) {
        (self.app, self.folder, self.allowsPrivate) = (app, folder, allowsPrivate)
    }

    /// Whether `path` is the sandbox's folder, by its text alone.
    public func isFolder(_ path: String) -> Bool { path.tidyPath.isSameBytes(as: folder.tidyPath) }

    /// Whether a name is the application's id, or begins with it and a dot.
    func isOwn(_ name: String) -> Bool { name == app || name.hasPrefix(app + ".") }

    /// Whether a desktop entry is one that snapd makes for this snap: `NAME_ENTRY`, of an instance `NAME+KEY_ENTRY` (snapd, `DesktopPrefix`
    /// in snap/info.go). No other snap's entries begin so.
    func isEntryOfSnap(_ name: String) -> Bool {
        guard app.hasPrefix("snap.") else { return false }
        let instance = app.dropFirst(5).split(separator: "_")
        return name.hasPrefix(instance.joined(separator: "+") + "_")
    }
}
