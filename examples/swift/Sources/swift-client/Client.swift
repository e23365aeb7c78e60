// SPDX-License-Identifier: CC0-1.0
// A client of Todoku with TodokuClient.
//
//   swift-client [--again | --cancel] URL [FOLDER]
//
// It queues a download, shows its progress, and waits for its end. If the client is killed, the download continues, and --again waits for
// it; --cancel cancels it. The exit status is 0 if the download finished or was cancelled by --cancel, 1 if it failed, and 69 if Todoku is
// missing. An existing file of the same name is replaced.
import Glibc
import TodokuClient

@main struct Client {
    static let app = "org.example.SwiftClient"
    static let notText = "swift-client: D-Bus carries only text in UTF-8"

    static func main() async {
        var arguments = Array(CommandLine.arguments.dropFirst())
        let what = ["--again", "--cancel"].contains(arguments.first) ? arguments.removeFirst() : ""
        guard (1...2).contains(arguments.count) else { refuse("usage: swift-client [--again | --cancel] URL [FOLDER]") }
        // Swift has replaced bytes that are not UTF-8.
        guard !arguments.joined().contains("\u{FFFD}") else { refuse(notText) }
        let folder = arguments.count == 2 ? absolute(arguments[1]) : nil
        do {
            if what == "--cancel" {
                try await cancel(arguments[0])
                exit(0)
            }
            let outcome = try await download(arguments[0], to: folder, again: what == "--again")
            exit(tell(outcome) ? 0 : 1)
        } catch let error as ClientError where error.cause == .serviceUnavailable {
            // Todoku is not installed, or cannot be started.
            failed(error.name, error.message)
            exit(69)
        } catch let error as ClientError {
            // A refused call; no such download; no session bus: `error.cause` tells them apart.
            failed(error.name, error.message)
        } catch {
            failed("", "\(error)")
        }
        exit(1)
    }

    static func download(_ url: String, to folder: String?, again: Bool) async throws -> DownloadOutcome? {
        let client = try await DownloaderClient.connect()
        // The app's own name for the download. So the app knows the download before the call, and after a restart.
        let token = token(for: url)
        let download = DownloadReference(app: app, token: token)
        if !again {
            try await removeEnded(download, client)
            var request = DownloadRequest()
            request.app = app
            request.token = token
            request.ifExists = .replace
            request.directory = folder
            // After the answer, the download is on disk. The token makes a repeated call return the same download.
            let queued = try await client.download(url, request)
            say("queued \(queued.path)")
        }
        // The sequence continues when the service exits or crashes, and ends with the outcome.
        var (outcome, received, reason): (DownloadOutcome?, ByteCount, String?) = (nil, 0, nil)
        for try await now in client.watch(download) {
            if now.received != received, now.received > 0 {
                say("progress \(now.received) of \(now.total.map { "\($0)" } ?? "?")")
            }
            // It waits for its turn at a host, the next attempt, space, a network …; docs/dbus.md has the reasons.
            if let wait = now.waitReason, !wait.isEmpty, wait != reason { say("waiting \(wait)") }
            (outcome, received, reason) = (now.outcome, now.received, now.waitReason)
        }
        return outcome
    }

    static func cancel(_ url: String) async throws {
        let download = DownloadReference(app: app, token: token(for: url))
        try await DownloaderClient.connect().cancel(download)
        say("cancelled \(download.path)")
    }

    /// An ended download of an earlier run still has the token: a new call would return it.
    static func removeEnded(_ download: DownloadReference, _ client: DownloaderClient) async throws {
        do throws(ClientError) {
            if try await client.describe(download).state.hasEnded { try await client.remove(download) }
        } catch {
            // Usually there is no earlier run.
            guard error.cause == .unknownDownload else { throw error }
        }
    }

    /// Whether the download finished.
    static func tell(_ outcome: DownloadOutcome?) -> Bool {
        switch outcome {
        case .finished(let path):
            say("finished \(path)")
            return true
        case .failed(let error):
            // `errorName`, `httpStatus` and `isRetryable` say what an app may do about it.
            failed(error.name, error.message)
        case .cancelled:
            failed("Cancelled", "somebody cancelled the download")
        case nil:
            failed("", "the watch was cancelled")
        }
        return false
    }

    static func failed(_ name: String, _ message: String) {
        say("failed \(name.split(separator: ".").last ?? ""): \(message)")
    }

    /// A token of letters and digits (FNV-1a), the same for each run. An app with its own names for its files takes those.
    static func token(for url: String) -> String {
        let hash = url.utf8.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        return "url" + String(hash, radix: 16)
    }

    static func absolute(_ folder: String) -> String {
        guard !folder.hasPrefix("/"), let current = getcwd(nil, 0) else { return folder }
        defer { free(current) }
        guard let text = String(validatingCString: current) else { refuse(notText) }
        return "\(text)/\(folder)"
    }

    static func refuse(_ message: String) -> Never {
        say(message, to: 2)
        exit(64)
    }

    /// Prints a line, at once.
    static func say(_ line: String, to descriptor: Int32 = 1) {
        let bytes = Array("\(line)\n".utf8)
        _ = write(descriptor, bytes, bytes.count)
    }
}
