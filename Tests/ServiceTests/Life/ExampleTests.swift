internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// The app of `examples/background-download`: a window of GTK 4 with a label, a progress bar and a button.
private let example = ExampleApp("org.example.BackgroundDownload", "background-download")

/// One run of the app, which also prints its label. Without a window manager, its window is at the top left.
private struct Run: Sendable {
    /// Generous, because a busy machine is slow to start Python and to draw the window.
    private static let longest: Duration = .seconds(180)
    let display: Display
    let app: Child

    func says(_ text: String) async -> Bool {
        let isSaid = await eventually(within: Self.longest) { app.output.contains(text) || !app.isRunning } && app.output.contains(text)
        #expect(isSaid, "packages python3-gi, gir1.2-gtk-4.0: “\(app.output)” \(app.errors)")
        return isSaid
    }

    /// How many of the 1,000,000 bytes its label has told last; nil: none.
    private var told: Int? {
        app.output.split(separator: "\n").last { $0.hasSuffix(" of 1000000 bytes") }.flatMap { Int($0.prefix { $0.isNumber }) }
    }

    /// Whether its label tells of the first 400,000 bytes, or of more.
    func tellsFirstBytes() async -> Bool {
        let isTold = await eventually(within: Self.longest) { told ?? 0 >= 400_000 || !app.isRunning } && told ?? 0 >= 400_000
        #expect(isTold, "“\(app.output)” \(app.errors)")
        return isTold
    }

    /// Clicks until `isDone`, because a window that has just appeared ignores its first click.
    func click(_ x: Int, _ y: Int, until isDone: () -> Bool) async -> Bool {
        let environment = processEnvironment().merging(["DISPLAY": display.name]) { $1 }
        return await eventually(within: Self.longest) {
            if isDone() { return true }
            let exit = await Child.run(["xdotool", "mousemove", "\(x)", "\(y)", "click", "1"], environment: environment)
            #expect(exit.status == 0, "package xdotool: \(exit)")
            return isDone()
        }
    }

    func pressButton() async -> Bool { await click(210, 155) { app.output.contains(" bytes\n") } }

    /// Closes the window by the button in its title bar.
    func close() async {
        #expect(await click(393, 27) { !app.isRunning })
        #expect(await app.wait().status == 0)
    }
}

@Suite(.timeLimit(.minutes(10))) struct `A window that comes and goes` {
    /// The sequence of every article on background downloads: press, close, open again, done.
    @Test func `finds its download again: running, and finished while it was closed`() async throws {
        let display = await Display(width: 600, height: 400)
        // Draw without a graphics card, and without accessibility services.
        let extra = ["DISPLAY": display.name, "GSK_RENDERER": "cairo", "GDK_BACKEND": "x11", "GTK_A11Y": "none"]
        let world = await ServiceWorld(activation: "--idle-exit 30", names: [example.id: example.command], extra: extra)
        let client = try await world.client()
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: world.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        let gate = Gate()
        let server = ScriptedServer { _, reply in
            reply.head(200, length: 1_000_000)
            reply.send(String(repeating: "x", count: 400_000))
            // Windows may take long to come and go.
            reply.send(reply.trickle(repeatElement(UInt8(ascii: "x"), count: 600_000), by: 50, until: gate))
            reply.close()
        }
        let url = server.url("/picture.bin")
        func open() -> Run { Run(display: display, app: Child([ExampleApp.python, example.program, url], environment: world.environment)) }

        let first = open()
        try #require(await first.says("Not downloaded yet\n"))
        try #require(await first.pressButton())
        #expect(await first.tellsFirstBytes())
        await display.screenshot(productPath("example-background-download.png"))
        await first.close()

        // Opened in the middle of the download: nothing is pressed, and the download does not start over.
        let second = open()
        #expect(await second.tellsFirstBytes())
        #expect(!second.app.output.contains("Not downloaded"))
        await second.close()
        #expect(server.requests.count == 1)
        #expect(Trace(monitor.output).answers("Acknowledge") == 0)

        // The download ends while the window is closed: the app is started for the end, and quits.
        #expect(await world.bus.waitForOwner(example.id, present: false))
        gate.open()
        #expect(await eventually { Trace(monitor.output).answers("Acknowledge") == 1 })
        #expect(await world.bus.waitForOwner(example.id, present: false))
        let path = BusName.path(app: example.id, token: "the_one")
        let file = try await client.wait(path)
        let third = open()
        #expect(await third.says("Downloaded: \(file)\n"))
        #expect(try await client.list() == [path])
        await third.close()
        #expect(server.requests.count == 1)
        // The app was not in front at the end of the download, and was when it was opened.
        #expect(Trace(monitor.output).calls("SetForeground").count >= 2)
    }
}
