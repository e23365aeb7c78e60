internal import Desktop
internal import EventLoop
internal import Glibc
internal import Logging
internal import PushService

/// Fetches files that servers push to apps. See todoku-push(1).
@main struct Main {
    private static let help = """
        Usage: todoku-push [OPTION…]
        Fetches files that servers push to apps, and starts the apps for them. D-Bus starts it on demand.

          --if-registered       exit at once if no app has registered (for login)
          --idle-exit SECONDS   exit after this time with nothing to do (30; 1 to 86400)
          --log-level LEVEL     trace, debug, info, notice, warning, error, critical (notice)
          --version             print the version
          --help                print this help

        See todoku-push(1).

        """

    static func main() {
        openClosedStreams()
        keepHeapSmall()
        SignalSource.block(SignalSource.endSignals)
        signal(SIGPIPE, SIG_IGN)
        var options = PushOptions(folder: "\(Folders.state())/todoku/push")
        var level = Logger.Level.notice
        var rest = CommandLine.arguments.dropFirst()
        while let argument = rest.popFirst() {
            let parts = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            func value() -> String? { parts.count == 2 ? parts[1] : rest.popFirst() }
            switch parts[0] {
            case "--if-registered" where parts.count == 1: options.ifRegistered = true
            case "--idle-exit":
                guard let seconds = value().flatMap({ Int($0) }), (1...86_400).contains(seconds) else {
                    end(64, "todoku-push: --idle-exit needs a number of seconds from 1 to 86400\n")
                }
                options.idle = .seconds(seconds)
            case "--log-level":
                guard let named = value().flatMap({ Logger.Level(rawValue: $0) }) else {
                    let levels = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
                    end(64, "todoku-push: --log-level must be one of \(levels)\n")
                }
                level = named
            case "--version" where parts.count == 1: end(0, "todoku-push \(PushProgram.version)\n")
            case "--help" where parts.count == 1: end(0, help)
            default: end(64, "todoku-push: there is no option \(argument); see todoku-push --help\n")
            }
        }
        options.logger = Logger(label: "todoku-push") { StreamLogHandler.standardError(label: $0) }
        options.logger.logLevel = level
        let chosen = options
        BusActor.runMain { exit(await PushProgram.run(chosen)) }
    }

    /// Status 64 is EX_USAGE of sysexits.h.
    private static func end(_ status: Int32, _ text: String) -> Never {
        let bytes = Array(text.utf8)
        _ = write(status == 0 ? STDOUT_FILENO : STDERR_FILENO, bytes, bytes.count)
        exit(status)
    }
}
