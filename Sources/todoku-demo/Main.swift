internal import DBus
internal import EventLoop
internal import Glibc

/// Helpers for `meson-helpers/run` on a bare machine: a file to download, and a notification server that prints toasts. Not installed.
@main struct Demo {
    static let usage = """
        usage: todoku-demo serve [--size BYTES] [--rate BYTES_PER_SECOND]
               todoku-demo toasts

        serve   serves one file by HTTP/1.1 on 127.0.0.1, as slowly as BYTES_PER_SECOND, and prints its URL as the first line
        toasts  is a notification server (org.freedesktop.Notifications) on the session bus that prints what it is given; prints READY

        Both end when their standard input ends.
        """

    static func main() {
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch arguments.first {
        case "serve":
            guard let (size, rate) = numbers(arguments.dropFirst()) else { refuse() }
            BusActor.runMain { serve(size: size, rate: rate) }
        case "toasts":
            guard arguments.count == 1 else { refuse() }
            BusActor.runMain { toasts() }
        case "--help": say(usage)
        default: refuse()
        }
    }

    /// The values of `--size` and `--rate`; nil if one is not a number, 0 or too large.
    private static func numbers(_ arguments: ArraySlice<String>) -> (size: UInt64, rate: UInt64)? {
        var (size, rate): (UInt64, UInt64) = (24 << 20, 5 << 20)
        var rest = arguments
        while let option = rest.popFirst() {
            guard let value = rest.popFirst().flatMap({ UInt64($0) }), value > 0, value < 1 << 50 else { return nil }
            switch option {
            case "--size": size = value
            case "--rate": rate = value
            default: return nil
            }
        }
        return (size, rate)
    }

    @BusActor private static func serve(size: UInt64, rate: UInt64) {
        let server: DemoServer
        do {
            server = try DemoServer(file: DemoFile(size: size), rate: rate)
        } catch {
            fail("cannot listen on 127.0.0.1: \(error.message)")
        }
        server.start()
        say(server.url)
        endWithStandardInput()
    }

    @BusActor private static func toasts() {
        let screen: ToastScreen
        do {
            screen = try ToastScreen()
        } catch {
            fail("cannot show toasts: \(error.message)")
        }
        screen.start()
        say("READY")
        endWithStandardInput()
    }

    /// Ends the program with its parent: the parent holds the other end of standard input, which closes however the parent dies.
    @BusActor private static func endWithStandardInput() {
        _ = Poller.shared.watch(0, for: [.readable, .hangUp]) { _ in
            var buffer = [UInt8](repeating: 0, count: 256)
            let count = read(0, &buffer, buffer.count)
            if count == 0 || count < 0 && errno != EINTR && errno != EAGAIN { BusActor.stop() }
        }
    }

    private static func refuse() -> Never {
        complain(usage)
        exit(64)
    }

    private static func fail(_ message: String) -> Never {
        complain("todoku-demo: \(message)")
        exit(1)
    }
}
