internal import DownloadService
internal import EventLoop
internal import Glibc
internal import Logging

/// The download service. See todokud(8).
@main struct Main {
    static func main() {
        openClosedStreams()
        keepHeapSmall()
        if CommandLine.arguments.dropFirst().elementsEqual([UnpackingProgram.argument]) { UnpackingProgram.run() }
        raiseFileLimit()
        SignalSource.block(SignalSource.endSignals)
        signal(SIGPIPE, SIG_IGN)
        signal(SIGXFSZ, SIG_IGN)  // a write beyond RLIMIT_FSIZE fails (EFBIG), and its download with it
        signal(SIGCHLD, SIG_DFL)  // if our parent ignored SIGCHLD, we could not wait for the end of a program
        let options: ServiceOptions
        switch Arguments.parse(Array(CommandLine.arguments.dropFirst())) {
        case .run(let parsed): options = parsed
        case .say(let text):
            print(text)
            exit(0)
        case .refuse(let reason):
            let line = "todokud: \(reason)\n"
            _ = line.withCString { write(STDERR_FILENO, $0, strlen($0)) }
            exit(64)  // EX_USAGE of sysexits.h
        }
        BusActor.runMain {
            exit(await Service.run(options))
        }
    }
}
