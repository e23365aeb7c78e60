public import ArgumentParser
public import DownloadModel
internal import Localization
public import TodokuClient

// Parses the contract's values on the command line.

// A name is read by a transform, because its error says what to write. Without one, ArgumentParser says only that the value is invalid.

extension AssetReference {
    static let completion = CompletionKind.shellCommand("todoku complete --assets 2>/dev/null")

    @Sendable static func parse(_ text: String) throws -> AssetReference {
        if let asset = AssetReference(text) { return asset }
        throw ValidationError(
            catalog.text("“%1$s” is not the name of an asset; write APP/NAME. “todoku asset list” shows all assets.", text))
    }
}

extension AssetUpdatePolicy: ExpressibleByArgument {}

extension BatchReference {
    static let completion = CompletionKind.shellCommand("todoku complete --batches 2>/dev/null")

    @Sendable static func parse(_ text: String) throws -> BatchReference {
        if let batch = BatchReference(text) { return batch }
        throw ValidationError(
            catalog.text("“%1$s” is not the name of a batch; write its number, such as 7. “todoku list --all” shows all batches.", text))
    }
}

/// The object of a command: a download or a batch. Both are numbered in one sequence, so a number may be either's.
struct Target {
    /// Numbers of downloads and batches, and APP/TOKEN.
    static let completion = CompletionKind.shellCommand("todoku complete 2>/dev/null")

    /// nil for the object path of a batch.
    let download: DownloadReference?
    /// nil for APP/TOKEN, and for the object path of a download.
    let batch: BatchReference?

    @Sendable static func parse(_ text: String) throws -> Target {
        if let target = Target(text) { return target }
        throw ValidationError(
            catalog.text(
                "“%1$s” is not the name of a download or batch; write a number such as 7, or APP/TOKEN. “todoku list --all” shows all.",
                text))
    }

    private init?(_ text: String) {
        (download, batch) = (DownloadReference(text), BatchReference(text))
        if download == nil, batch == nil { return nil }
    }

    init(_ download: DownloadReference) { (self.download, batch) = (download, nil) }
}

/// One argument that names one or more targets, a line each: `todoku add` prints a number a line, and `"$(todoku add URL URL)"` is one
/// argument.
struct TargetList {
    let targets: [Target]

    @Sendable static func parse(_ text: String) throws -> TargetList {
        let lines = text.split(separator: "\n").map(String.init)
        // An empty argument is no list: it is refused as a name.
        return TargetList(targets: try (lines.isEmpty ? [text] : lines).map(Target.parse))
    }
}

extension ArgumentHelp {
    /// The help of the arguments that are read as `Target` or `TargetList`.
    static let targets = ArgumentHelp("Number or object path of a download or batch, or APP/TOKEN.", valueName: "download")
}

extension [TargetList] {
    var targets: [Target] { flatMap(\.targets) }
}

/// A position in the queue, counted from 1: `first`, 1 (the same), 2 …, `last`.
struct Place {
    /// Counted from 0, the next download to start.
    let position: UInt32

    @Sendable static func parse(_ text: String) throws -> Place {
        switch text {
        case "first": return Place(position: 0)
        case "last": return Place(position: .max)
        default:
            if let number = UInt32(text), number > 0 { return Place(position: number - 1) }
            throw ValidationError(
                catalog.text("“%1$s” is not a place; write a number from 1 to %2$s, “first” or “last”.", text, String(UInt32.max)))
        }
    }
}

/// A number below 0 in the place of an argument. ArgumentParser takes it for an option that it does not know. Behind “--” it is read as the
/// argument, whose error tells what to write.
enum NegativeNumber {
    /// The commands whose arguments are numbers and never begin with a hyphen.
    private static let commands: Set = [
        "cancel", "change", "limit", "move", "open", "pause", "remove", "resume", "retry", "settings", "show", "wait", "watch", "why",
    ]

    /// A flag of all these commands. It may stand behind the number.
    private static let json = "--json"

    /// The arguments of the program, with the first such number and the arguments after it behind “--”.
    static func separated(_ arguments: [String]) -> [String] {
        guard let command = arguments.first, commands.contains(command) else { return arguments }
        let place = arguments.indices.dropFirst().first { index in
            // The number behind an option is the option's.
            let before = arguments[index &- 1]
            return isNegative(arguments[index]) && (before == json || !before.hasPrefix("-"))
        }
        guard let place, !arguments[..<place].contains("--") else { return arguments }
        let flags = arguments[place...].filter { $0 == json }
        let others = arguments[place...].filter { $0 != json }
        guard others.allSatisfy({ isNegative($0) || !$0.hasPrefix("-") }) else { return arguments }
        return [Array(arguments[..<place]), flags, ["--"], others].flatMap(\.self)
    }

    private static func isNegative(_ text: String) -> Bool {
        text.hasPrefix("-") && text.dropFirst().first.map { $0.isASCII && $0.isNumber } ?? false
    }
}

extension DownloadDescription.State: ExpressibleByArgument {
    public init?(argument: String) {
        guard Self.allValueStrings.contains(argument) else { return nil }
        self.init(argument)
    }
    public static var defaultCompletionKind: CompletionKind { .list(allValueStrings) }
    public static var allValueStrings: [String] {
        ["queued", "waiting", "active", "paused", "verifying", "extracting", "finished", "failed", "cancelled"]
    }
}

/// The argument of `--if-exists`: the contract's policies, and `ask`, which the command turns into one of them.
enum ExistingFileChoice: String, CaseIterable, ExpressibleByArgument {
    case rename, replace, skip, fail, ask

    /// nil: the user is asked.
    var policy: ExistingFilePolicy? { ExistingFilePolicy(rawValue: rawValue) }
}

extension NotifyPolicy: ExpressibleByArgument {}
