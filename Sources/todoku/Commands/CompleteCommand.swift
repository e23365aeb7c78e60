internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import TodokuClient

/// Prints what the arguments of a command may name, a line each, for the completions of a shell. The help hides the command, because
/// nobody types this command.
struct CompleteCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "complete", abstract: "Print the names of downloads and batches, for the completions of a shell.",
        discussion: "Asks a service that runs, and starts none. Prints nothing if the service does not answer within two seconds.",
        shouldDisplay: false)

    /// The longest wait, in seconds. Meanwhile the prompt takes no key.
    private static let patience: UInt32 = 2

    func run() throws {
        // A signal also ends a wait for a bus that does not answer. Its default action would make the shell write “Alarm clock”.
        signal(SIGALRM) { _ in _exit(0) }
        alarm(Self.patience)
        BusActor.runMain {
            do throws(ClientError) {
                let names = try await DownloaderClient.connect().namesIfRunning()
                var texts = names?.downloads.map(\.description) ?? []
                texts.append(contentsOf: names?.batches.map(\.description) ?? [])
                Output.write(texts.filter(Self.isPlain).map { "\($0)\n" }.joined())
            } catch {}  // a shell at its prompt has no place for errors
            Program.finish(.success)
        }
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
