internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import TodokuClient

/// Prints what the arguments of a command may name, a line each, for the completions of a shell. The help hides the command, because
/// nobody types this command.
struct CompleteCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "complete", abstract: "Print the names of downloads, batches and assets, for the completions of a shell.",
        discussion: "Asks a service that runs, and starts none. Prints nothing if the service does not answer within two seconds.",
        shouldDisplay: false)

    /// The longest wait, in seconds. Meanwhile the prompt takes no key.
    private static let patience: UInt32 = 2

    @Flag(help: .private) var batches = false
    @Flag(help: .private) var assets = false

    func run() throws {
        // A signal also ends a wait for a bus that does not answer. Its default action would make the shell write “Alarm clock”.
        signal(SIGALRM) { _ in _exit(0) }
        alarm(Self.patience)
        let (batchesOnly, assetsOnly) = (batches, assets)
        BusActor.runMain {
            do throws(ClientError) {
                let client = try await DownloaderClient.connect()
                let names = try await assetsOnly ? Self.assetNames(client) : Self.names(client, batchesOnly: batchesOnly)
                Output.write(names.filter(Self.isPlain).map { "\($0)\n" }.joined())
            } catch {}  // a shell at its prompt has no place for errors
            Program.finish(.success)
        }
    }

    @BusActor private static func assetNames(_ client: DownloaderClient) async throws(ClientError) -> [String] {
        try await client.assetsIfRunning()?.map(\.description) ?? []
    }

    @BusActor private static func names(_ client: DownloaderClient, batchesOnly: Bool) async throws(ClientError) -> [String] {
        guard let names = try await client.namesIfRunning() else { return [] }
        var texts = batchesOnly ? [] : names.downloads.map(\.description)
        texts.append(contentsOf: names.batches.map(\.description))
        return texts
    }

    /// Whether `name` is a number, or APP/TOKEN without a sign that has a meaning for a shell. bash expands the words of a completion, and
    /// an app chooses its name.
    static func isPlain(_ name: String) -> Bool {
        let parts = name.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        let arePlain = parts.allSatisfy { part in
            !part.isEmpty && part.allSatisfy { $0.isLetter || $0.isDigit || "._-".utf8.contains($0) }
        }
        return parts.count <= 2 && arePlain && name.utf8.first != UInt8(ascii: "-")
    }
}
