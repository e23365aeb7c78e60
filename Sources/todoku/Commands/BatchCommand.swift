internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

struct BatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "batch", abstract: "Queue the URLs in a file as one batch.",
        discussion: """
            The file has one URL per line and at most 10,000 URLs. Blank lines and lines that begin with # are skipped. If one URL is refused, \
            nothing is queued, and the message names the line. The command prints the batch's number and returns. With --wait it shows the \
            progress and waits for the end.

            The options apply to every download. --title, --body, --icon, --sound and --notify set the one toast at the end of the batch.

            Ctrl-C ends the command at once, and leaves the batch to the service. “todoku cancel” with the batch's number cancels it.

            EXAMPLES:
              todoku batch urls.txt
              todoku batch --wait --directory ~/Music/Album --title Album urls.txt
              grep -o 'https://[^"]*\\.pdf' page.html | todoku batch --request-interval 1s -
              todoku list --batch "$(todoku batch urls.txt)"
            """)

    @Argument(help: ArgumentHelp("The file with the URLs; - is standard input.", valueName: "file"), completion: .file())
    var file: String

    @Flag(name: .shortAndLong, help: "Show the progress and wait for the end.") var wait = false
    @OptionGroup(title: "Request") var request: RequestArguments
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false

    func validate() throws {
        try request.checkForList()
        if file == "-", request.login.passwordFile == "-" || request.loadCookies == "-" {
            throw ValidationError("Standard input gives the list, so it cannot give the password or cookies; use a file for one of them.")
        }
    }

    func run() throws {
        let json = output.json
        let list = Program.require(json: json) { () throws(CommandFailure) in try URLList(file: file) }
        let request = Program.require(json: json) { () throws(CommandFailure) in try self.request.request(for: list.lines.map(\.url)) }
        SignalSource.block([SIGINT])  // block before the first thread starts
        Program.run(json: json) { client in
            try await BatchFollower.run(client, json: json, isQuiet: quiet, waits: wait) {
                do throws(ClientError) {
                    return try await client.downloadBatch(list.lines.map { BatchItem($0.url) }, request)
                } catch { throw list.failure(error) }
            }
        }
    }
}

/// The URLs of a list, with their line numbers.
struct URLList: Equatable {
    struct Line: Equatable {
        let number: Int
        let url: String
    }

    /// Most bytes of a list: 10,000 URLs of the greatest length.
    private static let longest = (Limits.batchItems + 1) * (Limits.urlBytes + 2)

    let name: String
    private(set) var lines: [Line] = []

    /// - Parameter file: a path; `-` is standard input.
    init(file: String) throws(CommandFailure) {
        let name = file == "-" ? catalog.text("standard input") : file
        let descriptor = file == "-" ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC)
        defer { if descriptor > STDERR_FILENO { close(descriptor) } }
        guard descriptor >= 0, let bytes = Self.read(descriptor) else {
            throw CommandFailure(.usage, catalog.text("cannot read “%1$s”: %2$s", name, String(cString: strerror(errno))))
        }
        guard bytes.count <= Self.longest else {
            throw CommandFailure(
                .usage,
                catalog.text(
                    "“%1$s” is too long for a batch: at most %2$s URLs of %3$s bytes", name, catalog.count(Limits.batchItems),
                    catalog.count(Limits.urlBytes)))
        }
        try self.init(bytes, name: name)
    }

    /// - Throws: naming the first line without a valid URL.
    init(_ bytes: [UInt8], name: String) throws(CommandFailure) {
        self.name = name
        let mark: [UInt8] = [0xEF, 0xBB, 0xBF]  // a byte order mark, as Windows' Notepad writes
        let text = bytes.starts(with: mark) ? bytes[mark.count...] : bytes[...]
        for (index, line) in text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).enumerated() {
            var line = line.drop(while: Self.isBlank)
            while let last = line.last, Self.isBlank(last) { line.removeLast() }
            guard let first = line.first, first != UInt8(ascii: "#") else { continue }
            guard let url = String(validating: line, as: UTF8.self) else {
                throw CommandFailure(.refused, catalog.text("%1$s, line %2$s: it is not UTF-8", name, String(index + 1)))
            }
            do throws(Refusal) { _ = try DownloadURL(url) } catch {
                throw CommandFailure(
                    .refused, Self.text(name, line: index + 1, catalog.explanation(name: error.name.busName, error.message)),
                    name: error.name.busName)
            }
            lines.append(Line(number: index + 1, url: url))
        }
        guard !lines.isEmpty else { throw CommandFailure(.usage, catalog.text("“%1$s” contains no URL", name)) }
        guard lines.count <= Limits.batchItems else {
            throw CommandFailure(
                .refused,
                catalog.text(
                    "“%1$s” has %2$s URLs, but a batch takes at most %3$s", name, catalog.count(lines.count),
                    catalog.count(Limits.batchItems)),
                name: ErrorName.limitExceeded.busName)
        }
    }

    private static func text(_ name: String, line: Int, _ reason: String) -> String {
        catalog.text("%1$s, line %2$s: %3$s", name, String(line), reason)
    }

    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") || byte == UInt8(ascii: "\r")
    }

    private static func read(_ descriptor: Int32) -> [UInt8]? {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while bytes.count <= longest {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { return nil }
            if count == 0 { break }
            bytes += buffer[..<count]
        }
        return bytes
    }

    /// The service's refusal. If it names an item, the message names that item's line.
    func failure(_ error: ClientError) -> CommandFailure {
        guard error.cause == .refused, error.message.hasPrefix("Item "), let colon = error.message.firstIndex(of: ":"),
            let index = Int(error.message[..<colon].dropFirst(5)), lines.indices.contains(index)
        else { return CommandFailure(error) }
        let reason = catalog.explanation(name: error.name, String(error.message[colon...].dropFirst(2)))
        return CommandFailure(.refused, Self.text(name, line: lines[index].number, reason), name: error.name)
    }
}
