internal import DBus
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import Desktop

@Suite struct `Toasts on servers other than dunst` {
    @Test func `carry the documented hints, but show no progress if the server draws it badly`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "gnome-shell")
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(ProgressToast.of(1000))
            await notifier.show(EndToast.finished(1, "100% & <b>.zip"))
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            var silent = EndToast.finished(2)
            silent.sound = ""
            silent.icon = "image-x-generic"
            await notifier.show(silent)
            expect(await reports.contains(.shown(DownloadNumber(2))), is: true)
            let received = await server.received
            expect(received.count, is: 2)
            expect(received[0].summary, is: "ダウンロードが完了しました")
            expect(received[0].body, is: "100% &amp; &lt;b&gt;.zip (29.0 MiB)")
            expect(received[0].icon, is: "folder-download")
            expect(received[0].actions, is: ["default", "開く", "open", "開く", "folder", "フォルダを表示"])
            expect(received[0].timeout, is: -1)
            var hints = received[0].hints
            hints["sender-pid"] = nil  // libnotify adds this
            expect(
                hints,
                is: [
                    "category": .string("transfer.complete"), "urgency": .byte(1), "desktop-entry": .string("org.todoku.Downloader1"),
                    "sound-name": .string("complete-download"), "x-kde-origin-name": .string("example.org"),
                    "x-kde-urls": .strings(["file:///tmp/100%25%20%26%20%3Cb%3E.zip"]),
                ])
            expect(received[1].icon, is: "image-x-generic")
            expect(received[1].hints["suppress-sound"], is: .bool(true))
            expect(received[1].hints["sound-name"], is: nil)
            await bus.stop()
        }
    }

    @Test func `count one click, however often the server reports it, and pass on its token`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "gnome-shell")
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.finished(5))
            expect(await reports.contains(.shown(DownloadNumber(5))), is: true)
            await server.click(1, "folder", times: 12, token: "token-1")
            await notifier.show(EndToast.finished(6))
            expect(await reports.contains(.shown(DownloadNumber(6))), is: true)
            await server.click(2, "open", times: 12)
            expect(await reports.contains(.closed(DownloadNumber(6))), is: true)
            expect(
                await reports.events.filter { $0 != .shown(DownloadNumber(6)) },
                is: [
                    .shown(DownloadNumber(5)), .action(DownloadNumber(5), .showFolder, activationToken: "token-1"),
                    .closed(DownloadNumber(5)),
                    .action(DownloadNumber(6), .open, activationToken: nil), .closed(DownloadNumber(6)),
                ])
            await bus.stop()
        }
    }

    @Test func `offer the action that helps, and report its click once`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "gnome-shell")
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.failed(1, .retry))
            await notifier.show(EndToast.failed(2, .freeSpace(folder: "/tmp")))
            await notifier.show(EndToast.failed(3))
            expect(await reports.contains(.shown(DownloadNumber(3), isClickable: false)), is: true)
            let received = await server.received
            expect(received.map(\.actions), is: [["retry", "再試行"], ["space", "空き容量を確認"], []])
            expect(received.map { $0.hints["category"] }, is: Array(repeating: .string("transfer.error"), count: 3))
            await server.click(1, "retry", times: 3)
            await server.click(2, "default")  // the toast has no such action
            await server.click(2, "space")
            expect(await reports.contains(.closed(DownloadNumber(2))), is: true)
            expect(
                await reports.events.suffix(4),
                is: [
                    .action(DownloadNumber(1), .retry, activationToken: nil), .closed(DownloadNumber(1)),
                    .action(DownloadNumber(2), .freeSpace, activationToken: nil), .closed(DownloadNumber(2)),
                ])
            await bus.stop()
        }
    }

    @Test func `replace the earlier toast of their download, and close when out of date`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "Plasma")
            let reports = Reports()
            // After a slow call, as on a busy machine, the toasts would close later, and in another order.
            let notifier = reports.make(pause: .zero)
            var waiting = EndToast.failed(1)
            waiting.kind = .waiting(.newLink(page: "https://example.org/"))
            await notifier.show(waiting)
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            await notifier.show(EndToast.finished(1))
            expect(await eventually { await reports.events.count == 3 }, is: true)
            await notifier.withdraw(DownloadNumber(2))
            await notifier.withdraw(DownloadNumber(1))
            expect(await eventually { await server.closed == [1, 2] }, is: true)
            expect(await server.received[0].actions, is: ["link", "リンクのページを開く"])
            expect(await server.received.map(\.replaces), is: [0, 0])
            expect(await eventually { await reports.events.count == 4 }, is: true)
            expect(
                await reports.events,
                is: [.shown(DownloadNumber(1)), .closed(DownloadNumber(1)), .shown(DownloadNumber(1)), .closed(DownloadNumber(1))])
            await bus.stop()
        }
    }

    @Test func `play one sound on a server that plays sounds, also for many at once`() async {
        await #expect(processExitsWith: .success) {
            let (heard, ours, most) = try await fiveSounds("gnome-shell")
            #expect((1...most).contains(heard) && ours.isEmpty, "\(heard) heard, \(ours)")
        }
    }

    @Test func `play one sound themselves if the server plays none, also for many at once`() async {
        await #expect(processExitsWith: .success) {
            let (heard, ours, most) = try await fiveSounds("Plasma")
            #expect((1...most).contains(ours.count) && Set(ours) == ["complete-download"] && heard == 0, "\(heard) heard, \(ours)")
        }
    }

    @Test func `have one button less if the server draws the default action as a button`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "Xfce Notify Daemon")
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.finished(1))
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            expect(await server.received.first?.actions, is: ["default", "開く", "folder", "フォルダを表示"])
            await bus.stop()
        }
    }

    @Test func `update and close one progress toast on our own terminal server`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "todoku-demo")
            let reports = Reports()
            let notifier = reports.make()
            expect(await notifier.show(ProgressToast.of(1000, total: nil), until: { await server.received.count == 1 }), is: true)
            expect(await notifier.show(ProgressToast.of(15_204_352), until: { await server.received.count == 2 }), is: true)
            await notifier.closeProgress()
            expect(await eventually { await server.closed == [1] }, is: true)
            let received = await server.received
            expect(received[0].body, is: "写真アーカイブ.zip — 1000 B")
            expect(received[0].hints["value"], is: nil)
            expect(received[1].replaces, is: 1)
            expect(received[1].body, is: "写真アーカイブ.zip — 50 %  14.5 MiB / 29.0 MiB")
            expect(received[1].hints["value"], is: .int32(50))
            expect(received[1].hints["category"], is: .string("transfer"))
            expect(received[1].hints["transient"], is: .bool(true))
            await bus.stop()
        }
    }

    @Test func `show progress only in the next round after the user closed the toast`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "mako")
            let reports = Reports()
            let notifier = reports.make()
            expect(await notifier.show(ProgressToast.of(1000), until: { await server.received.count == 1 }), is: true)
            await server.dismiss(1)
            expect(await reports.contains(.progressDismissed), is: true)
            await notifier.show(ProgressToast.of(2000))
            expect(await notifier.show(ProgressToast.of(3000, round: 1), until: { await server.received.count == 2 }), is: true)
            expect(await server.received[1].replaces, is: 0)
            expect(await server.received[1].body.contains("2.9 KiB"), is: true)
            await bus.stop()
        }
    }
}

@Suite struct `Toasts without a working server` {
    @Test func `are shown by the first server within a minute, once and in order`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let reports = Reports()
            let notifier = reports.make()
            for step in 0..<100 as Range<UInt64> { await notifier.show(ProgressToast.of(step)) }
            await notifier.show(EndToast.finished(1))
            await notifier.show(EndToast.finished(2, "2"))
            await notifier.show(EndToast.finished(3, "3"))
            await notifier.withdraw(DownloadNumber(3))
            let server = try await OddServer(name: "mako")
            expect(await reports.contains(.shown(DownloadNumber(2))), is: true)
            let isShown = await notifier.show(ProgressToast.of(1000), until: { await server.received.last?.summary == "ダウンロード中" })
            expect(isShown, is: true)
            let ends = await server.received.filter { $0.summary == "ダウンロードが完了しました" }
            expect(ends.map(\.replaces), is: [0, 0])
            expect(ends.last?.body.hasPrefix("2 ("), is: true)
            expect(await reports.contains(.failed(DownloadNumber(3))), is: true)
            expect(
                await reports.events.filter { $0 != .failed(DownloadNumber(3)) },
                is: [.shown(DownloadNumber(1)), .shown(DownloadNumber(2))])
            await bus.stop()
        }
    }

    @Test func `fail if no server appears in time`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let reports = Reports()
            let notifier = reports.make(patience: .seconds(20))
            for number in 1...40 as ClosedRange<UInt64> { await notifier.show(EndToast.finished(number)) }
            // On a busy machine the last toast may expire before the held ones, so compare without the order.
            expect(await eventually { await reports.events.count == 40 }, is: true)
            expect(
                await Set(reports.events.map { "\($0)" }),
                is: Set((1...40 as ClosedRange<UInt64>).map { "\(ToastEvent.failed(DownloadNumber($0)))" }))
            let server = try await OddServer(name: "mako")
            await notifier.show(EndToast.finished(41))
            expect(await reports.contains(.shown(DownloadNumber(41))), is: true)
            expect(await server.received.count, is: 1)
            await bus.stop()
        }
    }

    @Test func `are sent to the next server if the first left without an answer, and to none twice`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "mako", .hangsInNotify)
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.finished(1))
            expect(await eventually { await server.received.count == 1 }, is: true)
            await notifier.show(EndToast.finished(2))
            await server.vanish()
            expect(await bus.waitForOwner("org.freedesktop.Notifications", present: false), is: true)
            await server.forget()
            await server.behave(.answers)
            try await server.come()
            // On a busy machine the first may learn only after the second that its server is gone.
            for number in 1...2 as ClosedRange<UInt64> {
                expect(await reports.contains(.shown(DownloadNumber(number))), is: true)
            }
            expect(await server.received.map(\.replaces), is: [0, 0])
            expect(await reports.events.count, is: 2)
            // No toast is left for a server that appears now.
            await server.vanish()
            expect(await reports.contains(.closed(DownloadNumber(2))), is: true)
            try await server.come()
            await notifier.show(EndToast.finished(3))
            expect(await reports.contains(.shown(DownloadNumber(3))), is: true)
            expect(await server.received.count, is: 3)
            await bus.stop()
        }
    }

    @Test func `are sent to a server that replaces another, which leaves later without an answer`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let former = try await OddServer(name: "mako", .hangsInNotify)
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.finished(1))
            expect(await eventually { await former.received.count == 1 }, is: true)
            try await former.resign()
            let next = try await OddServer(name: "mako")
            await former.vanish()
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            expect(await reports.events.count, is: 1)
            expect(await next.received.count, is: 1)
            await bus.stop()
        }
    }

    /// A server that was slow once is spared for a while. Then what was withdrawn meanwhile is closed.
    @Test func `are closed after the pause that follows a slow call, if they are withdrawn meanwhile`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "mako")
            let reports = Reports()
            let pause: Duration = .seconds(4)
            let notifier = reports.make(pause: pause)
            await notifier.show(EndToast.finished(1))
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            await server.behave(.hangsInNotify)
            await notifier.show(EndToast.finished(2))
            expect(await eventually { await server.received.count == 2 }, is: true)
            let begun = ContinuousClock.now
            _ = await eventually(within: Notifier.slowCall + .seconds(1)) { .now - begun > Notifier.slowCall + .milliseconds(500) }
            await server.goOn()
            expect(await reports.contains(.shown(DownloadNumber(2))), is: true)
            await notifier.withdraw(DownloadNumber(1))
            await notifier.withdraw(DownloadNumber(2))
            expect(await eventually { await server.closed.sorted() == [1, 2] }, is: true)
            await bus.stop()
        }
    }

    @Test func `fail at once without a session bus`() async {
        await #expect(processExitsWith: .success) {
            setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus", 1)
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.finished(1))
            await notifier.show(EndToast.finished(2))
            expect(await reports.contains(.failed(DownloadNumber(2))), is: true)
            expect(await reports.events, is: [.failed(DownloadNumber(1)), .failed(DownloadNumber(2))])
        }
    }

    @Test func `fail at once without libnotify`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            // libnotify is loaded only if a server is running.
            let server = try await OddServer(name: "mako")
            // Load a library with libnotify's soname but without its functions first, so that the loader takes it for libnotify.
            let folder = TemporaryFolder()
            writeFile(folder("empty.c"), "int nothing;\n".utf8)
            let built = await Child.run(
                ["clang", "-shared", "-fPIC", "-Wl,-soname,libnotify.so.4", "-o", folder("libnotify.so.4"), folder("empty.c")])
            expect(built.errors, is: "")
            expect(dlopen(folder("libnotify.so.4"), RTLD_NOW) != nil, is: true)
            let reports = Reports()
            let notifier = reports.make()
            for number in 1...3 as ClosedRange<UInt64> { await notifier.show(EndToast.finished(number)) }
            expect(await reports.contains(.failed(DownloadNumber(3))), is: true)
            await notifier.show(ProgressToast.of(1))
            await notifier.show(EndToast.finished(5))
            expect(await reports.contains(.failed(DownloadNumber(5))), is: true)
            expect(await reports.events, is: [1, 2, 3, 5].map { .failed(DownloadNumber($0)) })
            await withCheckedContinuation { continuation in
                BusActor.spawn { notifier.shutDown { continuation.resume() } }
            }
            expect(await server.received.count, is: 0)
            await bus.stop()
        }
    }

    /// The server stalls as at login: no signal announces another server, and no toast was sent that may be on screen.
    @Test func `are shown as soon as a stalled server tells its name`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "Plasma", .isNameless)
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.finished(1))
            expect(await eventually { await server.asked >= 1 }, is: true)
            await server.behave(.answers)
            await notifier.show(EndToast.finished(2))
            for number in 1...2 as ClosedRange<UInt64> { expect(await reports.contains(.shown(DownloadNumber(number))), is: true) }
            expect(await server.received.count, is: 2)
            await bus.stop()
        }
    }

    @Test func `are retried before they expire if the server did not tell its name`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "Plasma", .isNameless)
            let reports = Reports()
            // The first retry, after half of that time, may come before a test on a busy machine goes on.
            let notifier = reports.make(patience: .seconds(40))
            await notifier.show(EndToast.finished(1))
            expect(await eventually { await server.asked >= 1 }, is: true)
            await server.behave(.answers)
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            expect(await server.received.count, is: 1)
            await bus.stop()
        }
    }

    @Test func `do not end the process when the bus dies`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession(activatable: ["org.todoku.Unused": "/bin/false"])
            let display = await Display()
            let dunst = await Dunst(on: bus, display)
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.finished(1))
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            await bus.stop()
            await notifier.show(EndToast.finished(2))
            // It fails at once, or at the end of its patience if GIO hears of the bus's end last.
            expect(await reports.contains(.failed(DownloadNumber(2)), within: Notifier.patience * 2), is: true)
            await dunst.stop()
            await display.stop()
        }
    }

    @Test func `wait for a hanging server in a bounded queue, and delay nobody`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let server = try await OddServer(name: "dunst", .hangsInNotify)
            let reports = Reports()
            let notifier = reports.make()
            let start = ContinuousClock.now
            await notifier.show(EndToast.finished(0))
            expect(await eventually { await server.received.count == 1 }, is: true)
            // In one turn of the bus loop: libnotify would give up meanwhile if each toast waited for a thread of a busy machine.
            await BusActor.run {
                for step in 0..<10_000 as Range<UInt64> { notifier.show(ProgressToast.of(step)) }
                for number in 1...100 as ClosedRange<UInt64> { notifier.show(EndToast.finished(number)) }
            }
            // The oldest toasts are dropped and reported.
            expect(await reports.contains(.failed(DownloadNumber(68))), is: true)
            expect(await reports.events, is: (1...68).map { .failed(DownloadNumber($0)) })
            // libnotify gives up after 25 s; then the next toast is sent.
            expect(await eventually(within: .seconds(50)) { await server.received.count == 2 }, is: true)
            let waited = start.duration(to: .now)
            expect(waited > .seconds(20), is: true)
            expect(await reports.events.count, is: 68)
            // The exit does not wait for the server.
            let ending = ContinuousClock.now
            await withCheckedContinuation { continuation in
                BusActor.spawn { notifier.shutDown { continuation.resume() } }
            }
            expect(ending.duration(to: .now) < .seconds(20), is: true)
            // The hanging server received no progress toast.
            expect(await server.received.allSatisfy { $0.summary == ToastTexts.japanese.finishedSummary }, is: true)
            await bus.stop()
        }
    }

    @Test func `are shown by a server that the bus starts for them`() async {
        await #expect(processExitsWith: .success) {
            let display = await Display()
            let bus = await beginSession(activatable: ["org.freedesktop.Notifications": "/usr/bin/env dunst"], display: display)
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.finished(1))
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            await bus.stop()
            await display.stop()
        }
    }

    @Test func `start no thread while there is no server`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let reports = Reports()
            let notifier = reports.make(patience: .seconds(20))
            for number in 1...3 as ClosedRange<UInt64> { await notifier.show(EndToast.finished(number)) }
            await notifier.show(ProgressToast.of(1))
            await notifier.withdraw(DownloadNumber(2))
            // The toasts fail when their time is over. Until then nothing has needed GLib.
            expect(await reports.contains(.failed(DownloadNumber(3))), is: true)
            expect(Set(threadNames()).intersection(["todoku-notify", "gmain", "gdbus", "pool-spawner"]), is: [])
            let server = try await OddServer(name: "mako")
            await notifier.show(EndToast.finished(4))
            expect(await reports.contains(.shown(DownloadNumber(4))), is: true)
            expect(await server.received.count, is: 1)
            expect(threadNames().contains("todoku-notify"), is: true)
            await bus.stop()
        }
    }

    @Test func `do not delay the exit for a started server that never appears`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession(activatable: ["org.freedesktop.Notifications": "/bin/sleep 40"])
            let reports = Reports()
            let notifier = reports.make()
            let start = ContinuousClock.now
            await notifier.show(EndToast.finished(1))
            await notifier.show(ProgressToast.of(1))
            await withCheckedContinuation { continuation in
                BusActor.spawn { notifier.shutDown { continuation.resume() } }
            }
            expect(start.duration(to: .now) < .seconds(30), is: true)
            expect(await reports.events, is: [])
            await bus.stop()
        }
    }
}

/// The names of this process's threads.
private func threadNames() -> [String] {
    listFolder("/proc/self/task").map { id in
        String(decoding: readFile("/proc/self/task/\(id)/comm") ?? [], as: UTF8.self).split(separator: "\n").first.map(String.init) ?? ""
    }
}

/// Shows five toasts at once. Returns how many the server must play, the sounds for us to play, and the most sounds that the elapsed time
/// allows.
private func fiveSounds(_ name: String) async throws -> (heard: Int, ours: [String], most: Int) {
    let bus = await beginSession()
    let server = try await OddServer(name: name)
    let reports = Reports()
    let notifier = reports.make()
    let start = ContinuousClock.now
    for number in 1...5 as ClosedRange<UInt64> { await notifier.show(EndToast.finished(number)) }
    expect(await reports.contains(.shown(DownloadNumber(5))), is: true)
    let most = 1 + Int(start.duration(to: .now) / .seconds(1))
    let received = await server.received
    #expect(received.allSatisfy { $0.hints["sound-name"] == .string("complete-download") })
    await bus.stop()
    return (received.count { $0.hints["suppress-sound"] == nil }, await reports.sounds, most)
}
