internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

/// Checks before a download is queued whether the name of its file is taken. Then it asks the user (`--if-exists ask`), or says that the
/// same URL was downloaded before.
@BusActor final class TakenNames {
    /// What the help of a command says of `ask`.
    nonisolated static let discussion = """
        --if-exists ask asks before a download is queued, if its name is taken. The name is that of --output or --filename, else the URL's. If \
        only the server tells the name, nothing is asked, and the new file is renamed.
        """

    /// How long a disk may take for its answer: as long as in the call that queues a download.
    private static let patience: Duration = .seconds(5)

    private let client: DownloaderClient
    private let asks: Bool
    /// Whether to say that the same URL was downloaded before.
    private let tells: Bool
    private var defaultDirectory: String?
    /// The folders whose disk has not answered.
    private var silentFolders: Set<String> = []
    /// The finished downloads by the paths of their files; nil: not read yet.
    private var finished: [String: DownloadReference]?

    init(_ client: DownloaderClient, _ arguments: RequestArguments, isQuiet: Bool) {
        self.client = client
        asks = arguments.ifExists == .ask
        tells =
            arguments.ifExists == nil && !arguments.onlyIfChanged && !arguments.extract.isGiven && arguments.token == nil && !isQuiet
            && Terminal.errorsAreSeen
    }

    /// The request for `url`, with the user's answer if the name is taken.
    func withAnswer(_ request: DownloadRequest, for url: String) async throws(ClientError) -> DownloadRequest {
        guard asks || tells, let path = try await path(request, url), await isTaken(path) else { return request }
        guard asks else {
            if try await isDownload(of: url, path) {
                Output.complain(
                    catalog.text(
                        "already downloaded as “%1$s”; the new file gets another name, unless --if-exists is skip, replace or ask", path))
            }
            return request
        }
        var request = request
        request.ifExists = answer(about: path)
        return request
    }

    /// Where the file will go; nil: only the server's answer tells, or `url` is no URL.
    private func path(_ request: DownloadRequest, _ url: String) async throws(ClientError) -> String? {
        guard let name = request.fileName ?? (try? DownloadURL(url)).flatMap({ FileName.ofURL($0) }) else { return nil }
        if let directory = request.directory { return "\(directory)/\(name)" }
        if defaultDirectory == nil { defaultDirectory = try await client.status().settings.defaultDirectory }
        return defaultDirectory.map { "\($0)/\(name)" }
    }

    /// Whether the name at an absolute path is taken. Without an answer of the disk it counts as free, because the service refuses the
    /// download then.
    private func isTaken(_ path: String) async -> Bool {
        let folder = LocalPath.folder(of: path)
        guard !silentFolders.contains(folder) else { return false }
        let isTaken = await DiskPool.shared.value(at: .path(folder), within: Self.patience) { TakenNames.exists(path) }
        if isTaken == nil { silentFolders.insert(folder) }
        return isTaken ?? false
    }

    /// A link without a target takes its name, too.
    private nonisolated static func exists(_ path: String) -> Bool {
        var status = stat()
        return lstat(path, &status) == 0
    }

    /// Whether the file at `path` came from `url`, as far as the list of downloads tells.
    private func isDownload(of url: String, _ path: String) async throws(ClientError) -> Bool {
        if finished == nil { finished = try await client.finishedFiles() }
        guard let whole = (try? DownloadURL(url))?.text, let download = finished?[path] else { return false }
        do throws(ClientError) { return try await client.url(of: download) == whole } catch {
            return false  // it was removed meanwhile
        }
    }

    private func answer(about path: String) -> ExistingFilePolicy {
        let question = catalog.text("“%1$s” exists. [r]ename the new file, re[p]lace the old one, or [s]kip? [r]", TerminalText.plain(path))
        while true {
            // Without a terminal, no file may be lost.
            guard let line = Terminal.line(prompt: "\(question) ") else { return .rename }
            switch line.lowercased() {
            case "", "r", "rename": return .rename
            case "p", "replace": return .replace
            case "s", "skip": return .skip
            default: continue
            }
        }
    }
}
