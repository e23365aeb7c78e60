internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Localization
internal import TodokuClient

struct BatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "batch", abstract: "Queue the URLs in a file as one batch.",
        discussion: """
            The file has one URL per line and at most 10,000 URLs. Blank lines and lines that begin with # are skipped. If one URL is refused, \
            nothing is queued, and the message names the line. The command prints the batch's number and returns. With --wait it shows the \
            progress and waits for the end.

            An input file of aria2 works, too: further URLs of the same file follow after a tab, and indented lines below a URL are its options, \
            such as out=NAME, dir=FOLDER, checksum=sha-256=HEX, header=NAME: VALUE or split=4. An option without an effect here is named once.

            The options apply to every download that has no such option in the file. --title, --body, --icon, --sound and --notify set the one \
            toast at the end of the batch.

            Ctrl-C ends the command at once, and leaves the batch to the service. “todoku cancel” with the batch's number cancels it.

            EXAMPLES:
              todoku batch urls.txt
              todoku batch --wait --directory ~/Music/Album --title Album urls.txt
              printf 'https://example.org/a.iso\\thttps://mirror.example.net/a.iso\\n  out=b.iso\\n' | todoku batch -
              grep -o 'https://[^"]*\\.pdf' page.html | todoku batch --request-interval 1s -
              todoku list --batch "$(todoku batch urls.txt)"
            """)

    @Argument(help: ArgumentHelp("The file with the URLs; - is standard input.", valueName: "file"), completion: .file())
    var file: String

    @Flag(name: .shortAndLong, help: "Show the progress and wait for the end.") var wait = false
    @OptionGroup(title: "Request") var request: RequestArguments
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print errors only.") var quiet = false
    @OptionGroup var refusedExec: RefusedExecArguments

    func validate() throws {
        try refusedExec.refuse(for: "todoku batch")
        try request.checkForList(mayNameFolders: true)
        if file.contains("://") && !LocalPath.exists(file) || CommandFailure.suggestion(forFile: file) != nil {
            throw ValidationError(catalog.text("There is no such file. A list is a file with URLs; “todoku get URL” downloads one URL."))
        }
        if file == "-", request.login.passwordFile == "-" || request.loadCookies == "-" {
            throw ValidationError(
                catalog.text("Standard input gives the list, so it cannot give the password or cookies; use a file for one of them."))
        }
    }

    func run() throws {
        let json = output.json
        let (request, list) = Program.require(json: json) { () throws(CommandFailure) in
            let folder = try self.request.directory.map { text throws(CommandFailure) in try LocalPath.absolute(text) }
            let list = try URLList(file: file, directory: folder)
            let request = try self.request.request(for: list.lines.map(\.url))
            if self.request.parents { for folder in list.folders { try LocalPath.makeFolder(folder) } }
            return (request, list)
        }
        if !quiet { for warning in list.warnings { Output.complain(warning) } }
        Program.run(json: json, handlesInterrupt: true) { client in
            try await BatchFollower.run(client, json: json, isQuiet: quiet, waits: wait) {
                do throws(ClientError) {
                    return try await client.downloadBatch(list.lines.map { BatchItem($0.url, $0.request) }, request)
                } catch { throw list.failure(error) }
            }
        }
    }
}
