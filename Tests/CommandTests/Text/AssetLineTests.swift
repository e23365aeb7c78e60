import DBus
import DownloadModel
import EventLoop
import Localization
import Testing

@testable import TodokuClient
@testable import todoku

@Suite struct `The display of an asset` {
    private func asset(_ stage: String, _ status: String = "downloading", progress: AssetDescription.Progress? = nil) -> AssetDescription {
        guard let reference = AssetReference("org.example.App/maps") else { preconditionFailure("it is a name") }
        var asset = AssetDescription(
            reference,
            [
                "App": .string("org.example.App"), "Name": .string("maps"), "LatestVersion": .string("2"), "InstalledVersion": .string("1"),
                "Stage": .string(stage), "Status": .string(status),
            ])
        asset.progress = progress
        return asset
    }

    private let half = AssetDescription.Progress(done: 5 << 20, total: 10 << 20)
    private let english = Catalog(.english)

    @Test func `has a word, a bar and the bytes`() {
        let line = AssetLine(utf8: true, catalog: english)
        #expect(
            line.text(asset("downloading", progress: half), columns: 100)
                == "org.example.App/maps  ████████████░░░░░░░░░░░░  downloading  50 %  5.0 MiB of 10.0 MiB")
        #expect(
            AssetLine(utf8: false, catalog: english).text(asset("extracting", progress: half), columns: 100)
                == "org.example.App/maps  ############------------  unpacking  50 %  5.0 MiB of 10.0 MiB")
        #expect(line.text(asset("checking"), columns: 100) == "org.example.App/maps  checking for a new version")
        #expect(line.text(asset("ready", "up-to-date"), columns: 100) == "org.example.App/maps  ready  1")
        for columns in 1..<100 {
            #expect(TerminalText.width(line.text(asset("downloading", progress: half), columns: columns)) <= columns)
        }
    }

    @Test(arguments: [
        ("idle", "not-installed", "not installed"), ("ready", "update-available", "update available: 2"),
        ("ready", "up-to-date", "up to date"),
        ("downloading", "paused", "paused"), ("downloading", "waiting-unmetered", "waiting for an unmetered connection"),
        ("verifying", "downloading", "verifying"), ("ready", "obsolete", "obsolete: the server has no manifest any more"),
    ])
    func `says how current it is`(stage: String, status: String, text: String) {
        #expect(english.status(asset(stage, status)) == text)
        #expect(Catalog(.japanese).status(asset(stage, status)) != text)
    }

    @Test func `shows all details, in Japanese too`() {
        let ready = asset("ready", "up-to-date")
        let plain = ready.text(english).split(separator: "\n")
        #expect(plain.contains("stage             ready") && plain.contains("status            up to date"), "\(plain)")
        let translated = ready.text(Catalog(.japanese)).split(separator: "\n")
        #expect(translated.count == plain.count && zip(plain, translated).allSatisfy { $0 != $1 }, "\(translated)")
        for word in ["stage", "status", "ready", "up to date", "version"] {
            #expect(!translated.contains { $0.contains(word) }, "\(translated)")
        }
    }

    @BusActor @Test func `has a line for each stage, and for each tenth`() {
        let lines = withoutTerminal { display in
            display.changed(asset("checking", "not-installed"), before: asset("idle", "not-installed"))
            display.changed(asset("downloading"), before: asset("checking"))
            for tenth in 0...10 {
                let progress = AssetDescription.Progress(done: UInt64(tenth) << 20, total: 10 << 20)
                display.changed(asset("downloading", progress: progress), before: asset("downloading"))
            }
            display.changed(asset("downloading", "waiting-unmetered"), before: asset("downloading"))
            display.changed(asset("extracting"), before: asset("downloading"))
            display.changed(asset("extracting", progress: half), before: asset("extracting"))
            display.changed(asset("ready", "up-to-date"), before: asset("extracting"))
            display.changed(asset("ready", "obsolete"), before: asset("ready", "up-to-date"))
        }
        let words = lines.map { String($0.dropFirst("org.example.App/maps ".count).dropLast()) }
        #expect(words.prefix(3) == ["checking", "downloading", "progress 10 % 1.0 MiB of 10.0 MiB"])
        #expect(words.suffix(4) == ["waiting-unmetered", "extracting", "progress 50 % 5.0 MiB of 10.0 MiB", "ready 1"])
        #expect(words.count == 2 + 10 + 4, "\(words)")
    }

    @BusActor private func withoutTerminal(_ body: @BusActor (PlainAssetDisplay) -> Void) -> [String] {
        var lines: [String] = []
        body(PlainAssetDisplay { lines.append($0) })
        return lines
    }
}
