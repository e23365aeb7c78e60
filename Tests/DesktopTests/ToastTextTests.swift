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
    func `say the percentage where there is one, and invent nothing`(received: ByteCount, total: ByteCount?, text: String) {
        let toast = ProgressToast(number: DownloadNumber(1), fileName: "a.zip", received: received, total: total)
        #expect(ToastTexts.japanese.progressBody(toast) == text)
    }

    @Test(arguments: ErrorName.allCases)
    func `have one short Japanese sentence for each error`(name: ErrorName) {
        let reason = ToastTexts.japanese.reason(DownloadFailure(name, "English", httpStatus: nil))
        #expect(reason.hasSuffix("。") && reason.count { $0 == "。" } == 1 && reason.count <= 30)
        #expect(!reason.contains("English"))
    }

    @Test func `are in English where that is the language, with its plural forms`() {
        let texts = ToastTexts(.english)
        #expect(texts.finishedSummary == "Download complete")
        #expect(texts.failedSummary == "Download failed")
        #expect([texts.open, texts.showFolder] == ["Open", "Show in folder"])
        #expect([ToastTexts.japanese.open, ToastTexts.japanese.showFolder] == ["開く", "フォルダを表示"])
        let toast = ProgressToast(number: DownloadNumber(1), fileName: "a.zip", received: 512, total: 1024)
        #expect(texts.progressBody(toast) == "a.zip — 50 %  512 B / 1.0 KiB")
        #expect(texts.batchSummary(OutcomeCounts(finished: 1, failed: 0, cancelled: 0)) == "1 download complete")
        #expect(texts.batchSummary(OutcomeCounts(finished: 8, failed: 2, cancelled: 0)) == "8 downloads complete (2 failed)")
        let counts = OutcomeCounts(finished: 1200, failed: 2, cancelled: 3)
        #expect(texts.batchBody(counts, size: 1024) == "1,200 finished, 2 failed, 3 cancelled (1.0 KiB)")
        let failure = DownloadFailure(.httpStatus, "for programs", httpStatus: 404)
        #expect(texts.failedBody(fileName: "a.zip", failure: failure) == "a.zip\nThe server answered with an error (HTTP 404).")
    }

    @Test func `are given as markup only where it is read, cut, and on one line`() {
        let plain = ToastServer(owner: ":1.1", name: "x", vendor: "", capabilities: ["body"])
        let markup = ToastServer(owner: ":1.1", name: "x", vendor: "", capabilities: ["body", "body-markup"])
        #expect(plain.body("a<b>&\n\u{1B}c") == "a<b>&\n c")
        #expect(markup.body("a<b>&c") == "a&lt;b&gt;&amp;c")
        #expect(markup.summary("a<b>\nc\u{0}d") == "a<b> c d")
        #expect(plain.body("photo\u{202E}gpj.exe") == "photogpj.exe")
        #expect(plain.body(String(repeating: "長", count: 5000)).unicodeScalars.count == ToastServer.longestText)
    }

    @Test(arguments: [
        ("dunst", true, 3), ("mako", true, 3), ("todoku-demo", true, 3), ("gnome-shell", false, 3), ("Plasma", false, 3),
        ("Notification Daemon", false, 3), ("Xfce Notify Daemon", false, 2), ("lxqt-notificationd", false, 2),
    ])
    func `follow what each server draws`(name: String, progress: Bool, actions: Int) {
        let server = ToastServer(owner: ":1.1", name: name, vendor: "", capabilities: ["actions"])
        #expect(server.drawsProgress == progress)
        #expect(server.actions(for: .finished(path: "/a")).count == actions)
        #expect(server.actions(for: .failed).isEmpty)
        let bare = ToastServer(owner: ":1.1", name: name, vendor: "", capabilities: [])
        #expect(bare.actions(for: .finished(path: "/a")).isEmpty)
        // Of a batch there is the folder to be shown, and nothing to be opened.
        let ofBatch = server.actions(for: .finishedBatch(folder: "/a"))
        #expect(ofBatch.count == actions - 1 && ofBatch.allSatisfy { $0.action == .showFolder } && ofBatch.first?.key == "default")
        #expect(bare.actions(for: .finishedBatch(folder: "/a")).isEmpty)
    }

    @Test(
        arguments: [
            ((10, 0, 0), "10件のダウンロードが完了しました", "完了10件 (1.0 KiB)"), ((1, 0, 3), "1件のダウンロードが完了しました", "完了1件、中止3件 (1.0 KiB)"),
            ((8, 2, 0), "8件のダウンロードが完了しました（2件は失敗）", "完了8件、失敗2件 (1.0 KiB)"), ((0, 2, 1), "0件のダウンロードが完了しました（2件は失敗）", "失敗2件、中止1件"),
        ] as [((UInt32, UInt32, UInt32), String, String)])
    func `count what a batch came to`(counts: (UInt32, UInt32, UInt32), summary: String, body: String) {
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
    func `name a file by its URI`(path: String, uri: String) { #expect(fileUri(path) == uri) }
}
