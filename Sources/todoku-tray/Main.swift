internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import TodokuClient

/// The downloads in the panel's tray. See todoku-tray(1).
@main struct Main {
    static let version = "0.1.0"
    /// The owner of this name is the session's tray.
    static let busName = "org.todoku.Tray"

    private static let help = """
        Usage: todoku-tray [OPTION]
        Shows the downloads of this session in the panel's tray, with a menu to steer them.

          --language LANGUAGE   ja, en, or auto (the session's); default: the language of the service's toasts
          --version             print the version
          --help                print this help

        See todoku-tray(1).

        """

    @BusActor private static var parts: (tray: Tray, signals: SignalSource, name: Connection)?

    static func main() {
        openClosedStreams()
        keepHeapSmall()
        SignalSource.block(SignalSource.endSignals)
        signal(SIGPIPE, SIG_IGN)
        let arguments = Array(CommandLine.arguments.dropFirst())
        let language = arguments.count == 2 && arguments[0] == "--language" ? Language(rawValue: arguments[1]) : nil
        switch arguments {
        case []: break
        case _ where language != nil: break
        case let others where others.first == "--language": end(64, complaining: "--language must be ja, en or auto")
        case ["--version"]: end(0, saying: "todoku-tray \(version)\n")
        case ["--help"]: end(0, saying: help)
        case let others: end(64, complaining: "there is no option \(others.joined(separator: " ")); see todoku-tray --help")  // EX_USAGE
        }
        BusActor.runMain {
            do {
                let connection = try Connection.session()
                guard try connection.requestName(busName) else { end(0, saying: "todoku-tray: already running in this session\n") }
                connection.onDisconnect = { exit(0) }  // the session is over
                let client = try await DownloaderClient.connect()
                let tray = Tray(client, on: connection, language: language) { exit($0) }
                parts = (tray, SignalSource(SignalSource.endSignals) { _ in exit(0) }, connection)
            } catch {
                if SignalSource.isEndPending { exit(0) }
                end(1, complaining: (error as? DBusError)?.message ?? "\(error)")
            }
        }
    }

    private static func end(_ status: Int32, saying text: String) -> Never {
        say(text, to: STDOUT_FILENO)
        exit(status)
    }

    private static func end(_ status: Int32, complaining text: String) -> Never {
        say("todoku-tray: \(text)\n", to: STDERR_FILENO)
        exit(status)
    }

    static func say(_ text: String, to descriptor: Int32) {
        let bytes = Array(text.utf8)
        _ = write(descriptor, bytes, bytes.count)
    }
}
