internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import Desktop

@Suite struct `Toasts in dunst` {
    @Test func `show progress in one toast with its percentage, and the end in a new one`() async {
        await #expect(processExitsWith: .success) {
            let display = await Display()
            let bus = await beginSession(display: display)
            let dunst = await Dunst(on: bus, display)
            let reports = Reports()
            let notifier = reports.make()
            for received in [1_000_000, 5_000_000] as [ByteCount] { await notifier.show(ProgressToast.of(received)) }
            expect(await notifier.show(ProgressToast.of(12_897_484), until: { await dunst.displayed() == 1 }), is: true)
            // The notifier may update the toast in place.
            await notifier.show(ProgressToast.of(12_897_485 + 1_000_000))
            await notifier.show(ProgressToast.of(12_897_485))
            expect(await eventually { await dunst.displayed() == 1 }, is: true)
            await display.screenshot(productPath("toast-progress-dunst.png"))
            await notifier.show(EndToast.finished(1))
            expect(await reports.contains(.shown(DownloadNumber(1))), is: true)
            expect(await eventually { await dunst.displayed() == 1 }, is: true)
            await display.screenshot(productPath("toast-finished-dunst.png"))

            let progress = await dunst.history()
            expect(progress.count, is: 1)
            expect(progress.first?["summary"]?.string, is: "ダウンロード中")
            expect(progress.first?["body"]?.string, is: "写真アーカイブ.zip — 42 %  12.3 MiB / 29.0 MiB")
            expect(progress.first?["category"]?.string, is: "transfer")
            expect(progress.first?["progress"]?.number, is: 42)
            expect(progress.first?["appname"]?.string, is: "Todoku")

            await dunst.control("close-all")
            expect(await reports.contains(.closed(DownloadNumber(1))), is: true)
            let end = await dunst.history().first { $0["summary"]?.string == "ダウンロードが完了しました" }
            expect(end?["body"]?.string, is: "写真アーカイブ.zip (29.0 MiB)")
            expect(end?["category"]?.string, is: "transfer.complete")
            expect(end?["appname"]?.string, is: "Todoku")
            expect(end?["progress"]?.number, is: -1)
            #expect(end?["id"] != progress.first?["id"])
            expect(await reports.events, is: [.shown(DownloadNumber(1)), .closed(DownloadNumber(1))])
            await dunst.stop()
            await bus.stop()
            await display.stop()
        }
    }

    @Test func `report a click once, and stay when the service exits`() async {
        await #expect(processExitsWith: .success) {
            let display = await Display()
            let bus = await beginSession(display: display)
            let dunst = await Dunst(on: bus, display)
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.finished(7))
            expect(await reports.contains(.shown(DownloadNumber(7))), is: true)
            await dunst.control("action", "0")
            expect(await reports.contains(.closed(DownloadNumber(7))), is: true)
            #expect(
                await reports.events == [
                    .shown(DownloadNumber(7)), .action(DownloadNumber(7), .open, activationToken: nil), .closed(DownloadNumber(7)),
                ])
            await dunst.control("close-all")
            await notifier.show(EndToast.finished(8))
            expect(await notifier.show(ProgressToast.of(1000), until: { await dunst.displayed() == 2 }), is: true)
            let ending = ContinuousClock.now
            await withCheckedContinuation { continuation in
                BusActor.spawn { notifier.shutDown { continuation.resume() } }
            }
            if ending.duration(to: .now) < Notifier.shutDownWait {
                expect(await dunst.displayed(), is: 1)
            } else {
                // On a busy machine the exit may not have waited for dunst.
                expect(await eventually { await dunst.displayed() == 1 }, is: true)
            }
            await dunst.stop()
            await bus.stop()
            await display.stop()
        }
    }

    @Test func `give the reason of a failure, and show markup in a file name as text`() async {
        await #expect(processExitsWith: .success) {
            let display = await Display()
            let bus = await beginSession(display: display)
            let dunst = await Dunst(on: bus, display)
            let reports = Reports()
            let notifier = reports.make()
            await notifier.show(EndToast.failed(3))
            expect(await eventually { await dunst.displayed() == 1 }, is: true)
            await display.screenshot(productPath("toast-failed-dunst.png"))
            await dunst.control("close-all")
            let toast = await dunst.history().first
            expect(toast?["summary"]?.string, is: "ダウンロードに失敗しました")
            expect(toast?["body"]?.string, is: "&lt;i&gt;写真&lt;/i&gt;.zip\nサーバーがエラーを返しました（HTTP 404）。")
            expect(toast?["category"]?.string, is: "transfer.error")
            expect(await reports.contains(.closed(DownloadNumber(3))), is: true)
            // Without actions the service need not stay for a click.
            expect(await reports.events, is: [.shown(DownloadNumber(3), isClickable: false), .closed(DownloadNumber(3))])
            await dunst.stop()
            await bus.stop()
            await display.stop()
        }
    }

    @Test func `do not bring back a progress toast that the user closed`() async {
        await #expect(processExitsWith: .success) {
            let display = await Display()
            let bus = await beginSession(display: display)
            let dunst = await Dunst(on: bus, display)
            let reports = Reports()
            let notifier = reports.make()
            expect(await notifier.show(ProgressToast.of(1_000_000), until: { await dunst.displayed() == 1 }), is: true)
            await dunst.control("close-all")
            expect(await reports.contains(.progressDismissed), is: true)
            await notifier.show(ProgressToast.of(2_000_000))
            await notifier.show(EndToast.finished(3))
            expect(await reports.contains(.shown(DownloadNumber(3))), is: true)
            expect(await eventually { await dunst.displayed() == 1 }, is: true)
            // A download that starts later gets a progress toast.
            expect(await notifier.show(ProgressToast.of(3_000_000, round: 1), until: { await dunst.displayed() == 2 }), is: true)
            await dunst.stop()
            await bus.stop()
            await display.stop()
        }
    }

    @Test func `go to a restarted server without the old server's numbers`() async {
        await #expect(processExitsWith: .success) {
            let display = await Display()
            let bus = await beginSession(display: display)
            let first = await Dunst(on: bus, display)
            let reports = Reports()
            let notifier = reports.make()
            // The toast must be there for the old server to have a number for it.
            expect(await notifier.show(ProgressToast.of(1_000_000), until: { await first.displayed() == 1 }), is: true)
            await notifier.show(EndToast.finished(2))
            expect(await reports.contains(.shown(DownloadNumber(2))), is: true)
            await first.kill()
            expect(await reports.contains(.closed(DownloadNumber(2))), is: true)
            expect(await bus.waitForOwner("org.freedesktop.Notifications", present: false), is: true)
            let second = await Dunst(on: bus, display)
            // Another program's toast gets the number that our progress toast had.
            let other = await Child.run(
                [
                    "busctl", "--user", "call", "--", "org.freedesktop.Notifications", "/org/freedesktop/Notifications",
                    "org.freedesktop.Notifications", "Notify", "susssasa{sv}i", "other", "0", "", "other", "", "0", "0", "-1",
                ], environment: bus.environment)
            expect(other.errors, is: "")
            expect(await notifier.show(ProgressToast.of(2_000_000), until: { await second.displayed() == 2 }), is: true)
            await notifier.show(EndToast.finished(3))
            expect(await reports.contains(.shown(DownloadNumber(3))), is: true)
            expect(await eventually { await second.displayed() == 3 }, is: true)
            await second.stop()
            await bus.stop()
            await display.stop()
        }
    }
}
