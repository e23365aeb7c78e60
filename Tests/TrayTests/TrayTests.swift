import DBus
import DownloadModel
import EventLoop
import Glibc
import StatusNotifier
import TestSupport
import Testing

@testable import TodokuClient

/// A server that sends half of each body, and the rest once the gate opens.
private func halfServer(_ gate: Gate) -> ScriptedServer {
    let body = patternBytes(200_000)
    return ScriptedServer { request, reply in
        if request.path.hasPrefix("/gone") { return reply.respond(404) }
        guard request.range == nil else {
            gate.wait()
            return reply.serve(body, for: request)
        }
        reply.head(200, ["ETag": "\"v\""], length: body.count)
        reply.send(body[..<(body.count / 2)])
        gate.wait()
        reply.send(body[(body.count / 2)...])
    }
}

/// The text of a file; empty if there is none.
private func text(_ path: String) -> String { readFile(path).map { String(decoding: $0, as: UTF8.self) } ?? "" }

@Suite(.serialized) struct `The tray` {
    @Test func `registers its item, which panels can read whole and by parts`() async throws {
        let world = try await TrayWorld(startsService: false)
        let panel = try await world.panel()
        let (program, item) = try await world.start(on: panel)
        #expect(item.name.hasPrefix(":") && program.isRunning)
        let all = try await item.call(Standard.getAll, ItemInterface.name)
        #expect(
            all.mapValues(\.type) == [
                "Category": "s", "Id": "s", "Title": "s", "Status": "s", "WindowId": "i", "IconThemePath": "s", "IconName": "s",
                "IconPixmap": "a(iiay)", "OverlayIconName": "s", "OverlayIconPixmap": "a(iiay)", "AttentionIconName": "s",
                "AttentionIconPixmap": "a(iiay)", "AttentionMovieName": "s",
                "IconAccessibleDesc": "s", "AttentionAccessibleDesc": "s", "ToolTip": "(sa(iiay)ss)", "ItemIsMenu": "b", "Menu": "o",
            ])
        for (name, value) in all { #expect(try await item.call(Standard.get, (ItemInterface.name, name)) == value, "\(name)") }
        #expect(all["Status"] == .string("Passive") && all["ItemIsMenu"] == .bool(false) && all["Id"] == .string("todoku-tray"))
        #expect(all["Menu"] == .objectPath(ObjectPath("/MenuBar")) && all["OverlayIconName"] == .string(""))
        #expect(try await item.get(ItemInterface.iconPixmap).pixmaps.map(\.width) == [22, 44])
        #expect(
            try await item.call(Standard.getAll, at: DBusMenu.path, MenuInterface.name) == [
                "Version": .uint32(3), "TextDirection": .string("ltr"), "Status": .string("normal"), "IconThemePath": .strings([]),
            ])
        // The introspection data is valid and complete, according to other programs.
        for path in ["/", "/StatusNotifierItem", "/MenuBar"] {
            let document = try await item.call(Standard.introspect, at: ObjectPath(path), ())
            let file = world.bus.folder("node.xml")
            writeFile(file, document.utf8)
            let lint = await Child.run(["xmllint", "--nonet", "--noout", "--dtdvalid", "/usr/share/xml/dbus-1/introspect.dtd", file])
            #expect(lint.status == 0, "\(path): \(lint.errors)")
        }
        for (path, interface) in [("/StatusNotifierItem", ItemInterface.name), ("/MenuBar", MenuInterface.name)] {
            let told = await Child.run(
                ["busctl", "--user", "introspect", item.name, path, interface],
                environment: world.environment.merging(["SYSTEMD_BUS_TIMEOUT": "120"]) { $1 })
            #expect(told.status == 0, "\(told.errors)")
            let document = try await item.call(Standard.introspect, at: ObjectPath(path), ())
            for member in path == "/MenuBar" ? menuMembers : itemMembers {
                #expect(told.output.contains(".\(member) ") && document.contains("name=\"\(member)\""), "\(member)")
            }
        }
        #expect(!(await world.isServiceThere()), "looking at the tray has started the service")
    }
    private let itemMembers = [
        "Activate", "SecondaryActivate", "ContextMenu", "Scroll", "ProvideXdgActivationToken", "NewIcon", "NewStatus",
    ]
    private let menuMembers = [
        "GetLayout", "GetGroupProperties", "GetProperty", "Event", "EventGroup", "AboutToShow", "AboutToShowGroup", "LayoutUpdated",
        "ItemsPropertiesUpdated",
    ]

    /// It runs as long as the session does.
    @Test func `gives the memory of its code back while the service is absent`() async throws {
        #expect(try await inTime { try await givesMemoryBack() }, "each time, the test read the memory after more than five seconds")
    }

    /// - Returns: whether the test read the memory before the tray gave it back, five seconds after its last step.
    private func givesMemoryBack() async throws -> Bool {
        let world = try await TrayWorld(startsService: false)
        let panel = try await world.panel()
        let begin = ContinuousClock.now
        let (program, item) = try await world.start(on: panel)
        _ = try await item.call(Standard.getAll, ItemInterface.name)
        func code() throws -> UInt64 { try #require(memory(program.pid, "RssFile")) }
        let used = try code()
        let isLate = ContinuousClock.now - begin >= .seconds(5)
        let isGiven = await eventually { (try? code()).map { $0 < used / 2 } ?? false }
        if isLate, !isGiven { return false }
        #expect(isGiven, "\(used) bytes")
        #expect(try await item.call(Standard.getAll, ItemInterface.name)["Status"] == .string("Passive"))
        return true
    }

    @Test func `refuses unknown menu items by name`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        func refused(_ body: () async throws -> Void) async -> Bool {
            do {
                try await body()
                return false
            } catch { return (error as? DBusError)?.name == "org.freedesktop.DBus.Error.InvalidArgs" }
        }
        #expect(await refused { _ = try await item.menu(MenuInterface.getLayout, (999, -1, [])) })
        #expect(await refused { _ = try await item.menu(MenuInterface.getProperty, (999, "label")) })
        #expect(await refused { _ = try await item.menu(MenuInterface.getProperty, (1, "colour")) })
        #expect(await refused { try await item.menu(MenuInterface.event, (999, "clicked", .int32(0), 0)) })
        #expect(await refused { _ = try await item.menu(MenuInterface.aboutToShow, 999) })
        let unknown: [MenuInterface.ItemEvent] = [Structure(999, "clicked", .int32(0), 0)]
        #expect(await refused { _ = try await item.menu(MenuInterface.eventGroup, unknown) })
        #expect(await refused { _ = try await item.menu(MenuInterface.aboutToShowGroup, [998, 999]) })
        // Calls with more than 1,000 entries are refused.
        func isTooMuch(_ body: () async throws -> Void) async -> Bool {
            do {
                try await body()
                return false
            } catch { return (error as? DBusError)?.name == "org.freedesktop.DBus.Error.LimitsExceeded" }
        }
        let (numbers, names) = ([Int32](repeating: 0, count: 1001), [String](repeating: "label", count: 1001))
        let many = [MenuInterface.ItemEvent](repeating: Structure(0, "hovered", .int32(0), 0), count: 1001)
        #expect(await isTooMuch { _ = try await item.menu(MenuInterface.getGroupProperties, (numbers, [])) })
        #expect(await isTooMuch { _ = try await item.menu(MenuInterface.getGroupProperties, ([], names)) })
        #expect(await isTooMuch { _ = try await item.menu(MenuInterface.getLayout, (0, -1, names)) })
        #expect(await isTooMuch { _ = try await item.menu(MenuInterface.eventGroup, many) })
        #expect(await isTooMuch { _ = try await item.menu(MenuInterface.aboutToShowGroup, numbers) })
        // Unknown entries do not stop the others.
        let events: [MenuInterface.ItemEvent] = [Structure(999, "hovered", .int32(0), 0), Structure(1, "x-ours", .string(""), 0)]
        #expect(try await item.menu(MenuInterface.eventGroup, events) == [999])
        let (updates, missing) = try await item.menu(MenuInterface.aboutToShowGroup, [1, 999])
        #expect(updates == [] && missing == [999])
        #expect(try await item.menu(MenuInterface.getProperty, (1, "enabled")) == .bool(false))
        #expect(try await item.menu(MenuInterface.getProperty, (0, "children-display")) == .string("submenu"))
        #expect(try await item.menu(MenuInterface.getProperty, (0, "visible")) == .bool(true))
        #expect(try await item.menu(MenuInterface.getGroupProperties, ([1, 999], ["enabled"])).map(\.fields.0) == [1])
        #expect(try await item.menu(MenuInterface.aboutToShow, 1) == false)
    }

    @Test func `shows and steers downloads, and is passive again when all have ended`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let gate = Gate()
        let server = halfServer(gate)
        let one = try await world.download(server.url("/a_b.zip"))
        let two = try await world.download(server.url("/c.zip"))
        #expect(await item.shows("2 downloading · 50 %"))
        #expect(await item.shows("a__b.zip — 50 % · "))
        #expect(await eventually { await panel.signals.contains { $0.name == "NewStatus Active" } })
        #expect(try await item.get(ItemInterface.status) == "Active")
        #expect(try await item.get(ItemInterface.iconName) == "")
        #expect(try await item.get(ItemInterface.toolTip).title == "2 downloading · 50 %")
        // The item holds a further change back for half a second, though its properties have it already.
        #expect(await eventually { await panel.count("NewIcon") > 0 })
        #expect(await eventually { await panel.count("NewToolTip") > 0 })
        #expect(await panel.menuSignals.contains("LayoutUpdated"))

        // Click by Event with a number, as GNOME and Xfce do; with a text, as LXQt does; and by EventGroup.
        try await item.click(try await item.entry("Pause all"))
        #expect(await item.shows("Everything is paused · 2 downloads left"))
        #expect(try await world.client.status().isPaused)
        try await item.click(try await item.entry("Resume all"), data: .string(""))
        #expect(await item.shows("2 downloading"))
        let menu = try await item.menu()
        let row = try #require(menu.children.first { $0.label.hasPrefix("a__b.zip") })
        #expect(row.children.map(\.label) == ["Pause", "Cancel"])
        let events: [MenuInterface.ItemEvent] = [
            Structure(0, "opened", .int32(0), 0), Structure(row.children[0].number, "clicked", .int32(0), 0),
        ]
        #expect(try await item.menu(MenuInterface.eventGroup, events) == [])
        #expect(await item.shows("a__b.zip — paused · "))
        #expect(try await world.client.describe(one).state == .paused)
        let same = try #require(try await item.menu().children.first { $0.label.hasPrefix("a__b.zip") })
        #expect(same.number == row.number && same.children.map(\.label) == ["Resume", "Cancel"])
        try await item.click(same.children[0])
        #expect(await eventually { (try? await world.client.describe(one).state) == .active })

        let before = ContinuousClock.now
        gate.open()
        _ = try await world.client.wait(for: one)
        _ = try await world.client.wait(for: two)
        #expect(await item.shows("No downloads"))
        let recent = try await item.entry("Recent downloads")
        #expect(Set(recent.children.map(\.label)) == ["a__b.zip — 195.3 KiB", "c.zip — 195.3 KiB"])
        #expect(await eventually { await panel.signals.contains { $0.name == "NewStatus Passive" && $0.at >= before } })
        let passive = try #require(await panel.signals.first { $0.name == "NewStatus Passive" && $0.at >= before }?.at)
        #expect(passive - before >= .milliseconds(9900), "it went before anybody could see that all is there")
        #expect(try await item.get(ItemInterface.status) == "Passive")
    }

    @Test func `reports at most two changes of its icon a second`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let gate = Gate()
        let part = patternBytes(10_000)
        // Without a length the ring moves at each look, and the body lasts until enough signals were counted.
        let server = ScriptedServer { _, reply in
            reply.head(200)
            while !gate.isOpen, reply.send(part) {
                usleep(40_000)  // the slow server, on its own thread
            }
            reply.close()
        }
        defer { gate.open() }
        let download = try await world.download(server.url("/slow.bin"))
        #expect(await item.shows("slow.bin"))
        // A late signal is closer to the next one, so check the mean. One of before may have been late. If the test stops for seconds, more
        // are late. So measure again: a tray that signals too often does so in each round.
        var measured: [String] = []
        var isSeldom = false
        while !isSeldom, measured.count < 3 {
            let begun = ContinuousClock.now
            // Each call changes what the tray shows.
            for limit: Speed in 1...20 { try await world.client.set(.speedLimit(limit << 20)) }
            func times() async -> [ContinuousClock.Instant] {
                await panel.signals.filter { $0.name == "NewIcon" && $0.at >= begun }.map(\.at)
            }
            #expect(await eventually { await times().count >= 6 })
            let all = await times()
            let span = (try #require(all.last) - begun) / .seconds(1)
            measured.append("\(all.count) in \(span) s")
            isSeldom = Double(all.count) <= 2 * span + 2
        }
        #expect(isSeldom, "\(measured)")
        gate.open()
        try? await world.client.cancel(download)  // unless the download has ended
    }

    @Test func `asks for attention after a failure, until the user opens the menu`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let server = ScriptedServer { _, reply in reply.respond(404) }
        _ = try? await world.client.wait(for: try await world.download(server.url("/gone.zip")))
        #expect(await eventually { await panel.signals.contains { $0.name == "NewStatus NeedsAttention" } })
        #expect(await item.shows("1 failed"))
        #expect(try await item.get(ItemInterface.attentionIconPixmap).pixmaps.map(\.width) == [22, 44])
        #expect(await panel.count("NewAttentionIcon") == 1)
        // The signal may come before a list that has the failure, and the user sees only what is in the list.
        #expect(await item.shows("gone.zip — failed"))
        try await item.open()
        #expect(try await item.get(ItemInterface.status) != "NeedsAttention")
        // A failed download can be retried.
        let requests = server.requests.count
        try await item.click(try await item.entry("gone.zip — failed · try again"))
        #expect(await server.waitForRequests(requests + 1))
        #expect(await eventually { (try? await item.get(ItemInterface.status)) == "NeedsAttention" })
    }

    @Test func `ignores a panel that reads the menu by itself, as GNOME's does`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let server = ScriptedServer { _, reply in reply.respond(404) }
        let attention = "NewStatus NeedsAttention"
        // A real panel reads the menu at once. A test on a busy machine may be late, so repeat it.
        var lasted = Duration.seconds(3)
        var round = 0
        while lasted >= .seconds(3) {
            round += 1
            try await item.open()
            #expect(await eventually { await panel.signals.last { $0.name.hasPrefix("NewStatus") }?.name != attention })
            let count = await panel.count(attention)
            let begun = ContinuousClock.now
            _ = try? await world.client.wait(for: try await world.download(server.url("/gone\(round).zip")))
            #expect(await eventually { await panel.count(attention) > count })
            #expect(try await item.menu(MenuInterface.aboutToShow, 0) == false)
            _ = try await item.menu(MenuInterface.aboutToShowGroup, [0])
            let status = try await item.get(ItemInterface.status)
            lasted = .now - begun
            if lasted < .seconds(3) { #expect(status == "NeedsAttention") }
            // An opened menu marks only failures in the list as seen, so the next opening must not come before it has this one.
            #expect(await item.shows("gone\(round).zip — failed"))
        }
        // Some panels report an opened menu only by AboutToShow.
        #expect(
            await eventually {
                _ = try? await item.menu(MenuInterface.aboutToShow, 0)
                return (try? await item.get(ItemInterface.status)) != "NeedsAttention"
            })
    }

    @Test func `keeps asking for attention, however many downloads end after a failure`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let server = ScriptedServer { request, reply in
            if request.path == "/gone" { reply.respond(404) } else { reply.respond(200, text: "x") }
        }
        _ = try? await world.client.wait(for: try await world.download(server.url("/gone")))
        // Else a slow tray may begin to watch only after the others have pushed the failure out of the list.
        #expect(await item.shows("1 failed"))
        for number in 1...12 { _ = try await world.client.wait(for: try await world.download(server.url("/small\(number)"))) }
        #expect(await item.shows("small12 — "))
        let recent = try await item.entry("Recent downloads").children
        #expect(recent.count == 10 && recent.allSatisfy { $0.label.hasPrefix("small") })
        #expect(try await item.get(ItemInterface.status) == "NeedsAttention")
        // The menu may still show the last download as active.
        #expect(await eventually { (try? await item.labels.first) == "1 failed" })
        try await item.open()
        #expect(await eventually { (try? await item.labels.first) == "No downloads" })
    }

    @Test func `notices each failure, also of a download that it never saw in a list`() async throws {
        let world = try await TrayWorld(startsService: false)
        let service = try await StandInService(on: world.bus.address)
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let (one, two) = (DownloadReference(number: 1), DownloadReference(number: 2))
        #expect(await item.shows("No downloads"))
        #expect(await eventually { await service.asked > 0 })
        await service.tellEnd(one.path, "failed")
        await service.tellEnd(two.path, "failed")
        #expect(await item.shows("2 failed"))
        await service.tellRemoval(one.path)
        #expect(await item.shows("1 failed"))
        await service.tellEnd(two.path, "finished")
        #expect(await item.shows("No downloads"))
    }

    @Test func `continues with a service that once did not answer`() async throws {
        let world = try await TrayWorld(startsService: false)
        let service = try await StandInService(on: world.bus.address)
        await BusActor.run { service.downloads = [(DownloadReference(number: 1).path, "active")] }
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        #expect(await item.shows("1 downloading"))
        await BusActor.run { service.hangs = service.asked + 1 }
        #expect(await eventually { await service.asked > service.hangs })
        // No signal comes: the tray reads the state again by itself.
        await BusActor.run { service.downloads.append((DownloadReference(number: 2).path, "active")) }
        #expect(await item.shows("2 downloading"))
    }

    @Test func `notices a service that stops during one query`() async throws {
        let world = try await TrayWorld(startsService: false)
        let service = try await StandInService(on: world.bus.address)
        let (one, two) = (DownloadReference(number: 1), DownloadReference(number: 2))
        await BusActor.run {
            service.downloads = [(one.path, "active"), (two.path, "queued")]
            service.answered = { [unowned service] states in if states == ["active"] { service.downloads[0].state = "paused" } }
        }
        let overview = try #require(try await world.client.overview())
        #expect(overview.current.map(\.reference) == [one])
    }

    @Test func `keeps showing paused downloads after the service has exited, and resumes them`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let gate = Gate()
        let server = halfServer(gate)
        let one = try await world.download(server.url("/a.zip"))
        #expect(await item.shows("1 downloading"))
        let row = try await item.entry("a.zip")
        try await item.click(try #require(row.children.first { $0.label == "Pause" }))
        #expect(await item.shows("1 paused"))
        // By itself this service might exit before the tray has read the pause. So it is ended, and only the next one exits when idle.
        // The test itself asks the bus for the service, because another program might start too late. No later opening of the menu would
        // start the service again, so the service outlasts a pause of the test.
        await world.bus.makeActivatable("org.todoku.Downloader1", "\(TrayWorld.todokud) --idle-exit 30")
        #expect(await world.bus.end("org.todoku.Downloader1", by: SIGTERM))
        // An opened menu starts the service, to show the current state. The tray may learn of the exit a little later, so repeat.
        #expect(
            await eventually {
                try? await item.open()
                let isThere = try? await item.connection.call(
                    BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, "org.todoku.Downloader1")
                return isThere == true
            })
        #expect(await world.bus.waitForOwner("org.todoku.Downloader1", present: false, within: .seconds(120)))
        // The last one stays until the tray has read the end.
        await world.bus.makeActivatable("org.todoku.Downloader1", "\(TrayWorld.todokud) --idle-exit 86400")
        gate.open()
        try await item.click(try await item.entry("Resume"))
        #expect(await item.shows("a.zip — 195.3 KiB"))
        _ = try await world.client.wait(for: one)
    }

    @Test func `opens the folder, pauses all and changes the limit by clicks and wheel`() async throws {
        let opened = TemporaryFolder("todoku-opened")
        writeFile(opened("xdg-open"), "#!/bin/sh\necho \"$1 $XDG_ACTIVATION_TOKEN\" >>\(opened("log"))\n".utf8, mode: 0o755)
        let world = try await TrayWorld(extra: ["PATH": "\(opened.path):\(processEnvironment()["PATH"] ?? "/usr/bin:/bin")"])
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let folder = world.bus.folder("home/Downloads")
        mkdir(folder, 0o755)
        try await item.call(ItemInterface.provideXdgActivationToken, "token-1")
        try await item.call(ItemInterface.activate, (1, 2))
        #expect(await eventually { readFile(opened("log")) == Array("\(folder) token-1\n".utf8) })
        // With no downloads these gestures do nothing, because their effect would be invisible.
        try await item.call(ItemInterface.secondaryActivate, (1, 2))
        try await item.call(ItemInterface.scroll, (-120, "vertical"))
        try await item.call(ItemInterface.contextMenu, (1, 2))

        let gate = Gate()
        let server = halfServer(gate)
        let one = try await world.download(server.url("/a.zip"))
        #expect(await item.shows("1 downloading"))
        let untouched = try await world.client.status()
        #expect(!untouched.isPaused && untouched.settings.speedLimit == 0)
        try await item.call(ItemInterface.scroll, (-120, "vertical"))
        try await item.call(ItemInterface.scroll, (-120, "horizontal"))
        #expect(await eventually { (try? await world.client.status().settings.speedLimit) == 50 << 20 })
        let limit = try await item.entry("Speed limit")
        #expect(await item.marks("50.0 MiB/s"))
        try await item.click(try #require(limit.children.first { $0.label == "1.0 MiB/s" }))
        #expect(await eventually { (try? await world.client.status().settings.speedLimit) == 1 << 20 })
        try await item.call(ItemInterface.secondaryActivate, (1, 2))
        #expect(await eventually { (try? await world.client.status().isPaused) == true })
        #expect(await item.shows("Everything is paused"))
        try await item.call(ItemInterface.secondaryActivate, (1, 2))
        #expect(await eventually { (try? await world.client.status().isPaused) == false })

        gate.open()
        let path = try await world.client.wait(for: one)
        #expect(await item.shows("Recent downloads"))
        try await item.click(try await item.entry("a.zip — 195.3 KiB"))
        #expect(await eventually { text(opened("log")).contains("\n\(path) ") })
    }

    @Test func `starts the service only for a click and for the first opening of its menu`() async throws {
        let world = try await TrayWorld()
        // The service saves the setting, so a tray that shows it has asked the service.
        try await world.client.set(.speedLimit(50 << 20))
        await world.killService()
        let panel = try await world.panel()
        let (program, item) = try await world.start(on: panel)
        #expect(await item.marks("No limit"))
        _ = try await item.menu(MenuInterface.aboutToShow, 1)
        try await item.call(ItemInterface.secondaryActivate, (1, 2))
        #expect(!(await world.isServiceThere()) && program.isRunning)
        try await item.open()
        #expect(await world.bus.waitForOwner("org.todoku.Downloader1"))
        #expect(await item.marks("50.0 MiB/s"))
        // Once the tray knows the state, opening the menu does not start the service.
        await world.killService()
        try await item.open()
        _ = try await item.menu(MenuInterface.aboutToShow, 0)
        _ = try await item.labels
        #expect(!(await world.isServiceThere()))
        try await item.click(try await item.entry("Pause all"))
        #expect(await item.shows("Resume all"))
        #expect(await world.isServiceThere())
    }

    @Test func `outlives panels and services, and registers with each new panel`() async throws {
        let world = try await TrayWorld()
        // There is no panel yet.
        let program = await world.start()
        #expect(await world.bus.waitForOwner("org.todoku.Tray"))
        let panel = try await world.panel()
        #expect(await eventually { await panel.items.count == 1 })
        let item = Item(connection: panel.connection, name: await panel.items[0])
        let gate = Gate()
        let server = halfServer(gate)
        _ = try await world.download(server.url("/a.zip"))
        #expect(await item.shows("1 downloading"))

        try await panel.vanish()
        try await panel.appear()
        #expect(await eventually { await panel.items == [item.name, item.name] })
        #expect(await item.shows("1 downloading"))

        await world.killService()
        #expect(await item.shows("No downloads"))
        _ = try await world.client.status()  // starts the service
        #expect(await item.shows("1 downloading"))
        gate.open()
        #expect(await item.shows("a.zip — 195.3 KiB"))

        // The tray retries with a watcher that refuses at first.
        try await panel.vanish()
        let attempts = await panel.attempts
        await refuseOnce(panel)
        try await panel.appear()
        #expect(await eventually { await panel.items.count == 3 })
        #expect(await panel.attempts > attempts + 1)
        #expect(program.isRunning && program.errors == "")
    }
    @BusActor private func refuseOnce(_ panel: TrayPanel) { panel.refusals = 1 }

    @Test func `does not wake up without a panel, nor with nothing to do`() async throws {
        if let sanitizer = underSanitizer() { return print("tray: the \(sanitizer) sanitizer has a thread that wakes up: not checked") }
        let world = try await TrayWorld()
        let program = await world.start()
        #expect(await world.bus.waitForOwner("org.todoku.Tray"))
        let gate = Gate()
        let server = halfServer(gate)
        _ = try await world.download(server.url("/a.zip"))
        #expect(await server.waitForRequests(1))
        // Bytes arrive, but without a panel the tray sleeps. The pool's thread ends after five seconds.
        #expect(await staysAsleep(program.pid), "without a panel")
        let panel = try await world.panel()
        #expect(await eventually { await panel.items.count == 1 })
        let item = Item(connection: panel.connection, name: await panel.items[0])
        #expect(await item.shows("1 downloading"))
        gate.open()
        #expect(await eventually { await panel.signals.contains { $0.name == "NewStatus Passive" } })
        #expect(await staysAsleep(program.pid), "with nothing to do")
    }

    /// Whether no thread of the process runs for three seconds, at some time.
    private func staysAsleep(_ pid: Int32) async -> Bool {
        await eventually {
            let before = switches(pid)
            await withCheckedContinuation { done in
                BusActor.spawn { Poller.shared.schedule(after: .seconds(3)) { done.resume() } }
            }
            return switches(pid) == before
        }
    }
    private func switches(_ pid: Int32) -> [String: String] {
        var result: [String: String] = [:]
        for thread in listFolder("/proc/\(pid)/task") {
            let status = readFile("/proc/\(pid)/task/\(thread)/status").map { String(decoding: $0, as: UTF8.self) } ?? ""
            result[thread] = status.split(separator: "\n").filter { $0.contains("ctxt_switches") }.joined()
        }
        return result
    }

    @Test func `runs once in a session, and ends with it`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (program, _) = try await world.start(on: panel)
        let second = await world.start().wait()
        #expect(second.status == 0 && second.output == "todoku-tray: already running in this session\n" && second.errors == "")
        await world.bus.stop()
        let exit = await program.wait()
        #expect(exit.status == 0 && exit.errors == "")
        let none = await world.start().wait()
        #expect(none.status == 1 && none.errors.hasPrefix("todoku-tray: "))
    }

    /// The stopped bus keeps the program waiting for its answer, so nothing receives the signal before the bus ends.
    @Test func `ends by a signal without an error, although its bus ends before it has connected`() async throws {
        let world = try await TrayWorld(startsService: false)
        world.bus.signal(SIGSTOP)
        let program = await world.start()
        #expect(await eventually { isBlocked(SIGTERM, in: program.pid) })
        program.signal(SIGTERM)
        world.bus.signal(SIGKILL)
        let exit = await program.wait()
        #expect(exit.status == 0 && exit.errors == "", "\(exit)")
    }

    /// The first file or socket that a program opens gets the number of a stream that is closed.
    @Test func `writes no message into its own files and sockets if standard error is closed`() async throws {
        let world = try await TrayWorld(startsService: false)
        let program = Child(["sh", "-c", #"exec "$@" 2>&-"#, "sh", TrayWorld.program], environment: world.environment)
        #expect(await world.bus.waitForOwner("org.todoku.Tray"))
        #expect(openFile(STDERR_FILENO, of: program.pid) == "/dev/null")
        #expect(await program.stop().status == 0)
    }

    @Test func `ends by its menu or a signal, and leaves the downloads alone`() async throws {
        let world = try await TrayWorld()
        let panel = try await world.panel()
        let (program, item) = try await world.start(on: panel)
        let gate = Gate()
        let server = halfServer(gate)
        let one = try await world.download(server.url("/a.zip"))
        #expect(await item.shows("1 downloading"))
        try await item.click(try await item.entry("Quit"))
        #expect(await program.wait().status == 0)
        let next = await world.start()
        #expect(await eventually { await panel.items.count == 2 })
        #expect(await next.stop().status == 0)
        gate.open()
        _ = try await world.client.wait(for: one)
    }

    @Test func `saves whether it starts at login`() async throws {
        let world = try await TrayWorld(extra: ["XDG_CONFIG_DIRS": "/nonexistent"])
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        let own = world.bus.folder("config/autostart/todoku-tray.desktop")
        #expect(try await !item.entry("Start at login").isOn)
        try await item.click(try await item.entry("Start at login"))
        #expect(await item.marks("Start at login"))
        #expect(text(own).contains("\nExec=\"/") && text(own).contains("/todoku-tray\"\n"))
        try await item.click(try await item.entry("Start at login"))
        #expect(await item.marks("Start at login", false))
        #expect(text(own).contains("Hidden=true"))
    }

    @Test(arguments: [
        (["--version"], Int32(0), "todoku-tray \(projectVersion)\n"), (["--help"], 0, "Usage: todoku-tray"), (["--colour"], 64, ""),
        (["a", "b"], 64, ""),
    ])
    func `accepts its few options, and names a wrong one`(arguments: [String], status: Int32, output: String) async {
        let exit = await Child.run([TrayWorld.program] + arguments)
        #expect(exit.status == status && exit.output.hasPrefix(output))
        #expect(status == 0 ? exit.errors == "" : exit.errors.contains("todoku-tray --help"))
    }
}
