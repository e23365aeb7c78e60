import TestSupport
import Testing

@Suite(.serialized) struct `todoku move of a batch` {
    @Test func `to the front moves each download once, and none to the end meanwhile`() async throws {
        let desk = await Desk()
        writeFile(desk.bus.folder("list"), "http://127.0.0.1:1/a\nhttp://127.0.0.1:1/b\nhttp://127.0.0.1:1/c\n".utf8)
        #expect(await desk.run("add", "--paused", "http://127.0.0.1:1/single").output == "1\n")
        #expect(await desk.run("batch", "--paused", "list").succeeded(saying: "2\n"))
        let monitor = Child(["dbus-monitor", "--session", "--profile"], environment: desk.environment)
        #expect(await eventually { monitor.output.contains("NameLost") })
        /// The numbers of the downloads that were moved, in order.
        func moved() -> [String] {
            let calls = monitor.output.split(separator: "\n").filter { $0.hasPrefix("mc\t") && $0.hasSuffix("\tMoveTo") }
            let paths = calls.compactMap { call in call.split(separator: "\t").first { $0.contains("/download/") } }
            return paths.compactMap { $0.split(separator: "/").last.map(String.init) }
        }
        // A number is tried as that of a download first, and the monitor would see the call.
        #expect(await desk.run("move", "/org/todoku/Downloader1/batch/2", "first").succeeded(saying: ""))
        let list = JSON(await desk.run("list", "--json").output)?.array ?? []
        #expect(list.compactMap { $0["download"]?.string } == ["3", "4", "5", "1"])
        // The last call that the monitor has to see.
        #expect(await desk.run("move", "1", "first").succeeded(saying: ""))
        #expect(await eventually { moved().last == "1" })
        #expect(moved() == ["5", "4", "3", "1"])
        await desk.close()
    }
}
