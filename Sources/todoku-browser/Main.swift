internal import EventLoop
internal import Glibc

/// The native-messaging host of the browser extension in data/browser. See todoku-browser(1).
@main struct Main {
    private static let version = "0.1.0"

    private static let help = """
        Usage: todoku-browser chrome-extension://EXTENSION/
               todoku-browser MANIFEST EXTENSION
        Passes downloads from the browser extension “Todoku” to the download service. Browsers start this program.

          --version   print the version
          --help      print this help

        See todoku-browser(1).

        """

    static func main() {
        openClosedStreams()
        keepHeapSmall()
        signal(SIGPIPE, SIG_IGN)
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch arguments {
        case ["--version"]: end(saying: "todoku-browser \(version)\n")
        case ["--help"]: end(saying: help)
        case []:
            complain("browsers start this program; see todoku-browser --help")
            exit(64)  // EX_USAGE of sysexits.h
        default: break
        }
        guard let caller = Caller(arguments: arguments) else {
            complain("only the browser extension of Todoku may start this program; see todoku-browser --help")
            exit(77)  // EX_NOPERM
        }
        BusActor.runMain { exit(await Host(caller).run()) }
    }

    /// Writes one sentence to standard error, which browsers copy to their log. Standard output is for answers only.
    static func complain(_ sentence: String) { write("todoku-browser: \(sentence)\n", to: STDERR_FILENO) }

    private static func end(saying text: String) -> Never {
        write(text, to: STDOUT_FILENO)
        exit(0)
    }

    private static func write(_ text: String, to descriptor: Int32) {
        let bytes = Array(text.utf8)
        _ = Glibc.write(descriptor, bytes, bytes.count)
    }
}
