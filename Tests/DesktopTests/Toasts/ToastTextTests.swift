internal import DownloadModel
internal import Testing

@testable internal import Desktop

@Suite struct `The texts of toasts` {
    @Test(
        arguments: [
            (0, nil, "a.zip — 0 B"), (1536, nil, "a.zip — 1.5 KiB"), (0, 1000, "a.zip — 0 %  0 B / 1000 B"),
            (999, 1000, "a.zip — 99 %  999 B / 1000 B"), (1000, 1000, "a.zip — 100 %  1000 B / 1000 B"), (5, 0, "a.zip — 5 B"),
            (2000, 1000, "a.zip — 2.0 KiB"), (1 << 60, 1 << 62, "a.zip — 25 %  1.0 EiB / 4.0 EiB"),
        ] as [(ByteCount, ByteCount?, String)])
    func `show the percentage only if it is known`(received: ByteCount, total: ByteCount?, text: String) {
        let toast = ProgressToast([ProgressToast.Part(name: "a.zip", received: received, total: total)])
        #expect(ToastTexts.japanese.progressSummary(toast) == "ダウンロード中")
        #expect(ToastTexts.japanese.progressBody(toast) == text)
    }

    @Test(
        arguments: [
            ([(1, 50, 100, nil), (1, 40, 100, nil), (1, 45, 100, nil)], "3 件ダウンロード中 · 45 %", "135 B / 300 B"),
            ([(1, 50, 100, nil), (1, 40, nil, nil)], "2 件ダウンロード中", "90 B"),
            // A single batch: percent of its bytes if all sizes are known, else of its downloads.
            ([(7, 300, 1000, (3, 10))], "7 件ダウンロード中 · 30 %", "300 B / 1000 B"),
            ([(5, 1536, nil, (5, 10))], "5 件ダウンロード中 · 50 %", "1.5 KiB"),
            ([(3, 10, nil, (1, 4)), (1, 75, 100, nil)], "4 件ダウンロード中 · 35 %", "85 B"),
            ([(1, 200, 100, nil), (1, 40, 100, nil)], "2 件ダウンロード中", "240 B"),
        ] as [([(UInt32, ByteCount, ByteCount?, (UInt32, UInt32)?)], String, String)])
    func `count running downloads, with the progress of all`(
        parts: [(UInt32, ByteCount, ByteCount?, (UInt32, UInt32)?)], summary: String, body: String
    ) {
        let toast = ProgressToast(
            parts.map { part in
                ProgressToast.Part(name: "a", count: part.0, received: part.1, total: part.2, ended: part.3.map { ($0.0, of: $0.1) })
            })
        #expect(ToastTexts.japanese.progressSummary(toast) == summary)
        #expect(ToastTexts.japanese.progressBody(toast) == body)
    }

    @Test func `say that an archive is being unpacked, and how far`() {
        var part = ProgressToast.Part(name: "a.zip", received: 1000, total: 1000)
        part.unpacked = 0.429
        let toast = ProgressToast([part])
        #expect(ToastTexts.japanese.progressSummary(toast) == "展開中" && ToastTexts(.english).progressSummary(toast) == "Unpacking")
        #expect(ToastTexts.japanese.progressBody(toast) == "a.zip — 42 %" && toast.percent == 42)
        // Beside another download, its bytes count.
        let two = ProgressToast([part, ProgressToast.Part(name: "b", received: 0, total: 1000)])
        #expect(ToastTexts.japanese.progressSummary(two) == "2 件ダウンロード中 · 50 %")
    }

    @Test func `say what a waiting download needs`() {
        let texts = ToastTexts.japanese
        #expect(texts.waitingSummary(.needsUrl) == "新しいリンクが必要です")
        #expect(texts.waitingBody(fileName: "a", .needsUrl, missing: nil) == "a\nリンクの有効期限が切れています。")
        #expect(texts.waitingSummary(.diskSpace) == "ディスクの空き容量が足りません")
        #expect(texts.waitingBody(fileName: "a", .diskSpace, missing: 1536) == "a\nあと1.5 KiB空くと、続きから再開します。")
        #expect(texts.waitingBody(fileName: "a", .diskSpace, missing: nil) == "a\n空きができると、続きから再開します。")
    }

    @Test(arguments: ErrorName.allCases)
    func `have one short Japanese sentence for each error`(name: ErrorName) {
        let reason = ToastTexts.japanese.reason(DownloadFailure(name, "English", httpStatus: nil))
        #expect(reason.hasSuffix("。") && reason.count { $0 == "。" } == 1 && reason.count <= 30)
        #expect(!reason.contains("English"))
    }

    @Test func `are in English, with plural forms, if that is the language`() {
        let texts = ToastTexts(.english)
        #expect(texts.finishedSummary == "Download complete")
        #expect(texts.failedSummary == "Download failed")
        #expect([texts.open, texts.showFolder] == ["Open", "Show in folder"])
        #expect([ToastTexts.japanese.open, ToastTexts.japanese.showFolder] == ["開く", "フォルダを表示"])
        let toast = ProgressToast([ProgressToast.Part(name: "a.zip", received: 512, total: 1024)])
        #expect(texts.progressBody(toast) == "a.zip — 50 %  512 B / 1.0 KiB")
        let two = ProgressToast([
            ProgressToast.Part(name: "a.zip", received: 512, total: 1024), ProgressToast.Part(name: "b", received: 0, total: 1024),
        ])
        #expect(texts.progressSummary(two) == "2 downloads running · 25 %")
        #expect(texts.batchSummary(OutcomeCounts(finished: 1, failed: 0, cancelled: 0)) == "1 download complete")
        #expect(texts.batchSummary(OutcomeCounts(finished: 8, failed: 2, cancelled: 0)) == "8 downloads complete (2 failed)")
        let counts = OutcomeCounts(finished: 1200, failed: 2, cancelled: 3)
        #expect(texts.batchBody(counts, size: 1024) == "1,200 finished, 2 failed, 3 cancelled (1.0 KiB)")
        let failure = DownloadFailure(.httpStatus, "for programs", httpStatus: 404)
        #expect(texts.failedBody(fileName: "a.zip", failure: failure) == "a.zip\nThe server answered with an error (HTTP 404).")
    }

    @Test func `are escaped only for a server that reads markup, and are cut and cleaned`() {
        let plain = ToastServer(owner: ":1.1", name: "x", vendor: "", capabilities: ["body"])
        let markup = ToastServer(owner: ":1.1", name: "x", vendor: "", capabilities: ["body", "body-markup"])
        #expect(plain.body("a<b>&\n\u{1B}c") == "a<b>&\n c")
        #expect(markup.body("a<b>&c") == "a&lt;b&gt;&amp;c")
        #expect(markup.summary("a<b>\nc\u{0}d") == "a<b> c d")
        #expect(plain.body("photo\u{202E}gpj.exe") == "photogpj.exe")
        #expect(plain.body(String(repeating: "長", count: 5000)).unicodeScalars.count == ToastServer.longestText)
    }

    @Test(arguments: [
        ("dunst", "knopwob", true, 3, ["default", "retry"]), ("mako", "emersion", true, 3, ["default", "retry"]),
        ("todoku-demo", "Todoku", true, 3, ["retry"]), ("gnome-shell", "GNOME", false, 3, ["retry"]),
        ("Plasma", "KDE", false, 3, ["retry"]), ("Notification Daemon", "GNOME", false, 3, ["retry"]),
        ("Notification Daemon", "MATE", false, 3, ["retry"]), ("Xfce Notify Daemon", "Xfce", false, 2, ["retry"]),
        ("lxqt-notificationd", "lxqt.org", false, 2, ["retry"]), ("another", "", false, 3, ["retry"]),
    ])
    func `match the traits of each server`(name: String, vendor: String, progress: Bool, actions: Int, failed: [String]) {
        let server = ToastServer(owner: ":1.1", name: name, vendor: vendor, capabilities: ["actions"])
        #expect(server.drawsProgress == progress)
        #expect(server.actions(for: .finished(path: "/a")).count == actions)
        #expect(server.actions(for: .failed(nil)).isEmpty)
        // A click that may only dismiss the toast does not retry, unless no other click is possible.
        let afterFailure = server.actions(for: .failed(.retry))
        #expect(afterFailure.map(\.key) == failed && afterFailure.allSatisfy { $0.action == .retry })
        #expect(server.actions(for: .waiting(.newLink(page: "https://example.org/"))).map(\.action).last == .newLink)
        let bare = ToastServer(owner: ":1.1", name: name, vendor: vendor, capabilities: [])
        #expect(bare.actions(for: .finished(path: "/a")).isEmpty)
        // A batch has a folder to show, but no file to open.
        let ofBatch = server.actions(for: .finishedBatch(folder: "/a"))
        #expect(ofBatch.count == actions - 1 && ofBatch.allSatisfy { $0.action == .showFolder } && ofBatch.first?.key == "default")
        #expect(bare.actions(for: .finishedBatch(folder: "/a")).isEmpty)
    }

    @Test func `match a server by name and vendor, else by its name`() {
        #expect(!ToastServers.traits(name: "Notification Daemon", vendor: "GNOME").takesAway)
        #expect(ToastServers.traits(name: "Notification Daemon", vendor: "MATE").takesAway)
        #expect(!ToastServers.traits(name: "Notification Daemon", vendor: "").takesAway)
        #expect(ToastServers.traits(name: "dunst", vendor: "another").progress == .drawn)
        #expect(ToastServers.traits(name: "dunstish", vendor: "knopwob") == ToastServers.unknown)
        #expect(ToastServers.traits(name: "gnome-shell", vendor: "GNOME").sounds == .server)
        #expect(ToastServers.unknown.sounds == .ours)
    }

    @Test(
        arguments: [
            ((10, 0, 0), "10件のダウンロードが完了しました", "完了10件 (1.0 KiB)"), ((1, 0, 3), "1件のダウンロードが完了しました", "完了1件、中止3件 (1.0 KiB)"),
            ((8, 2, 0), "8件のダウンロードが完了しました（2件は失敗）", "完了8件、失敗2件 (1.0 KiB)"), ((0, 2, 1), "0件のダウンロードが完了しました（2件は失敗）", "失敗2件、中止1件"),
        ] as [((UInt32, UInt32, UInt32), String, String)])
    func `count the outcomes of a batch`(counts: (UInt32, UInt32, UInt32), summary: String, body: String) {
        let outcomes = OutcomeCounts(finished: counts.0, failed: counts.1, cancelled: counts.2)
        #expect(ToastTexts.japanese.batchSummary(outcomes) == summary)
        #expect(ToastTexts.japanese.batchBody(outcomes, size: 1024) == body)
        let failure = DownloadFailure(.httpStatus, "English", httpStatus: 404)
        #expect(ToastTexts.japanese.batchBody(outcomes, size: 1024, failure: failure) == body + "\nサーバーがエラーを返しました（HTTP 404）。")
    }

    @Test(arguments: [
        ("/tmp/a.zip", "file:///tmp/a.zip"), ("/", "file:///"), ("/a b#c?d%e", "file:///a%20b%23c%3Fd%25e"),
        ("/ダウ", "file:///%E3%83%80%E3%82%A6"), ("/-._~", "file:///-._~"), ("/a\nb\"'&+,;=@:", "file:///a%0Ab%22%27%26%2B%2C%3B%3D%40%3A"),
    ])
    func `name a file by its URI`(path: String, uri: String) { #expect(fileURI(of: path) == uri) }
}
