internal import ArgumentParser
internal import DownloadModel
internal import Localization

/// `--extract`, `--extract=NAME` or `--extract=PATH`.
///
/// ArgumentParser knows no option whose value may be missing: it would take the next argument, a URL, for the folder. So a flag has the
/// option's name, which also tells the shells to complete no folder there. A second option, which no help shows, has the folder.
struct ExtractArguments: ParsableArguments {
    private static let folderOption = "extract-folder"
    private static let commands: Set = ["get", "add", "batch", "metalink", "fetch"]

    @Flag(name: .customLong("extract"), help: .option(\.extract)) private var hasNoFolder = false
    /// nil: the folder is named after the archive.
    @Option(name: .customLong(ExtractArguments.folderOption), help: .private) var text: String?

    var isGiven: Bool { hasNoFolder || text != nil }

    /// Whether the text is more than a name. By bytes: for Swift, a slash and a combining mark behind it are one character.
    var isPath: Bool { text?.utf8.contains(UInt8(ascii: "/")) ?? false }

    /// nil: the archive is not unpacked.
    func folder() throws(CommandFailure) -> ExtractionFolder? {
        guard let text else { return isGiven ? .namedAfterArchive : nil }
        return .named(isPath ? try LocalPath.absolute(text) : text)
    }

    /// The arguments of the program, with `--extract=FOLDER` in the form that ArgumentParser knows. A command without this option refuses
    /// it in the form that the user wrote.
    static func separated(_ arguments: [String]) -> [String] {
        guard let command = arguments.first, commands.contains(command) else { return arguments }
        let (end, start) = (arguments.firstIndex(of: "--") ?? arguments.endIndex, "--extract=")
        return arguments[..<end].map { $0.hasPrefix(start) ? "--\(folderOption)=\($0.dropFirst(start.count))" : $0 } + arguments[end...]
    }

    /// Refuses a folder that was written without the equals sign, so that it stands among the URLs.
    func check(urls: [String]) throws {
        guard isGiven, text == nil, let first = urls.first, Self.mayBeFolder(first) else { return }
        // A single URL that lacks its scheme is left to the service: the command then suggests the scheme.
        guard urls.count > 1 || CommandFailure.suggestion(for: first) == nil else { return }
        throw ValidationError(catalog.text("“%1$s” is no URL. Write the folder of --extract after “=”: --extract=%1$s", first))
    }

    /// A URL may have secrets, so a text with a sign of URLs is not repeated.
    private static func mayBeFolder(_ text: String) -> Bool { !text.contains { ":?#@".contains($0) } }
}
