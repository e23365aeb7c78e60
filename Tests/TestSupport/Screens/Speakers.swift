internal import EventLoop
internal import Glibc

/// A real PulseAudio with an inaudible sink, and a recorder on this sink. It ends with its last reference.
public final class Speakers: Sendable {
    /// The environment for programs that play sounds here.
    public let environment: [String: String]
    private let server: Child
    private let recorder: Child
    private let watcher: Child
    private let folder = TemporaryFolder("todoku-sound")

    /// Debian: pulseaudio, pulseaudio-utils, libcanberra-pulse, sound-theme-freedesktop.
    public init() async {
        let socket = folder("native")
        let own = [
            "PULSE_RUNTIME_PATH": folder.path, "PULSE_STATE_PATH": folder.makeFolder("state"), "PULSE_SERVER": "unix:\(socket)",
            "CANBERRA_DRIVER": "pulse", "HOME": folder.makeFolder("home"),
        ]
        chmod(folder.path, 0o700)
        environment = own.filter { $0.key != "HOME" }
        let all = processEnvironment().merging(own) { $1 }
        let server = Child(
            [
                "pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--disallow-exit",
                "--load=module-null-sink sink_name=test", "--load=module-native-protocol-unix socket=\(socket) auth-anonymous=1",
            ], environment: all)
        self.server = server
        let listens = await eventually { await Child.run(["pactl", "info"], environment: all).status == 0 || !server.isRunning }
        precondition(listens && server.isRunning, "pulseaudio (packages pulseaudio, pulseaudio-utils) did not start: \(server.errors)")
        recorder = Child(
            ["sh", "-c", "exec parec --latency-msec=50 -d test.monitor --format=s16le --rate=8000 --channels=1 > \(folder("heard"))"],
            environment: all)
        let watcher = Child(["pactl", "subscribe"], environment: all)
        self.watcher = watcher
        // The recorder is running once its file contains silence.
        let file = folder("heard")
        let records = await eventually { readFile(file)?.isEmpty == false }
        precondition(records, "parec (package pulseaudio-utils): \(recorder.errors)")
        // The watcher is subscribed once it reports something, here the client that asks. Otherwise it would miss the first sound.
        let watches = await eventually {
            _ = await Child.run(["pactl", "info"], environment: all)
            return watcher.output.contains("Event ")
        }
        precondition(watches, "pactl subscribe (package pulseaudio-utils): \(watcher.errors)")
    }

    /// The greatest recorded amplitude so far, of 32,767.
    public var loudest: Int {
        let bytes = readFile(folder("heard")) ?? []
        return stride(from: 0, to: bytes.count - 1, by: 2).reduce(0) { loudest, index in
            max(loudest, Int(Int16(truncatingIfNeeded: Int(bytes[index]) | Int(bytes[index + 1]) << 8).magnitude))
        }
    }

    /// The numbers of sounds that have begun, and that have ended.
    public var begun: Int { watcher.output.split(separator: "\n").count { $0.hasPrefix("Event 'new' on sink-input") } }
    public var ended: Int { watcher.output.split(separator: "\n").count { $0.hasPrefix("Event 'remove' on sink-input") } }

    public func stop() async {
        for child in [watcher, recorder, server] { await child.stop() }
    }
}
