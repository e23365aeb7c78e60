import DBus
import DownloadModel
import EventLoop
import Glibc
import StatusNotifier
import TestSupport
import Testing

@testable import TodokuClient
@testable import todoku_tray

@Suite(.serialized) struct `An asset in the tray` {
    /// A publisher whose archive comes by half, and the rest once the gate opens.
    private func publisher(_ folder: TemporaryFolder, _ gate: Gate) async -> ScriptedServer {
        writeFile(folder("data"), patternBytes(200_000))
        let made = await Child.run(["tar", "-C", folder.path, "-cf", folder("1.tar"), "data"])
        #expect(made.status == 0, "\(made.errors)")
        let digest = (await Child.run(["sha256sum", folder("1.tar")])).output.prefix(64)
        writeFile(folder("m.json"), #"{"version": "2026.1", "url": "1.tar", "sha256": "\#(digest)"}"#.utf8)
        return ScriptedServer { request, reply in
            guard let file = readFile(folder(String(request.path.dropFirst()))) else { return reply.respond(404) }
            guard request.path == "/1.tar" else { return reply.respond(200, body: file) }
            reply.head(200, ["ETag": "\"v\""], length: file.count)
            reply.send(file[..<(file.count / 2)])
            gate.wait()
            reply.send(file[(file.count / 2)...])
        }
    }

    @Test func `is shown with its stage in place of its download, and can be cancelled there`() async throws {
        let world = try await TrayWorld()
        let (folder, gate) = (TemporaryFolder(), Gate())
        let server = await publisher(folder, gate)
        let panel = try await world.panel()
        let (_, item) = try await world.start(on: panel)
        var request = DownloadRequest()
        request.notify = .never
        request.stallTimeout = .seconds(3600)  // the server is silent for as long as the test takes
        let asset = try await world.client.registerAsset(
            AssetKey(app: "org.example.App", name: "maps"), manifest: server.url("/m.json"), request)
        let client = world.client
        BusActor.spawn { _ = try? await client.update(asset) }
        #expect(await item.shows("maps 2026.1 — downloading"))
        #expect(await item.shows("maps 2026.1 — downloading · 50 %"))
        let labels = try await item.menu().all.map(\.label)
        #expect(!labels.contains { $0.contains("archive") || $0.contains(".json") }, "\(labels)")
        // Its submenu pauses the download, and ends the update.
        let entry = try await item.entry("maps")
        #expect(entry.children.map(\.label) == ["Pause", "Cancel"])
        try await item.click(entry.children[0])
        #expect(await item.shows("maps 2026.1 — paused"))
        try await item.click(try #require(try await item.entry("maps").children.last))
        #expect(try await eventually { try await client.describe(asset).stage == .cancelled })
        #expect(try await eventually { try await !item.menu().all.contains { $0.label.hasPrefix("maps") } })
        gate.open()
    }

    private func asset(_ stage: String, _ more: [String: Variant] = [:]) -> AssetDescription {
        let reference = AssetReference("org.example.App/maps")
        var values: [String: Variant] = [
            "App": .string("org.example.App"), "Name": .string("maps"), "LatestVersion": .string("2026.1"), "Stage": .string(stage),
        ]
        values.merge(more) { $1 }
        guard let reference else { preconditionFailure("it is a name") }
        return AssetDescription(reference, values)
    }

    private func overview(_ status: [String: Variant], _ current: [DownloadDescription], _ recent: [DownloadDescription] = [])
        -> ServiceOverview
    {
        var overview = ServiceOverview(status: ServiceStatus(status))
        (overview.current, overview.recent) = (current, recent)
        return overview
    }

    private func archive(_ state: String, _ more: [String: Variant] = [:]) -> DownloadDescription {
        DownloadDescription(
            DownloadReference(number: 7), ["State": .string(state), "FileName": .string("version-1.archive")].merging(more) { $1 })
    }

    private let download: [String: Variant] = ["Download": .objectPath(ObjectPath("/org/todoku/Downloader1/download/7"))]

    private func labels(_ look: TrayLook) -> [String] {
        TrayMenu(look: look, texts: TrayTexts(.english), startsAtLogin: false) { _ in }.items.flatMap {
            [$0.label] + $0.children.map(\.label)
        }
    }

    @Test func `has a line for each stage`() {
        let texts = TrayTexts(.english)
        var unpacking = asset("extracting", download)
        unpacking.progress = AssetDescription.Progress(done: 1, total: 4)
        #expect(texts.line(asset("checking"), nil) == "maps — checking for a new version")
        #expect(texts.line(asset("downloading", download), archive("active")) == "maps 2026.1 — downloading")
        #expect(
            texts.line(asset("downloading", download), archive("waiting", ["WaitReason": .string("metered")]))
                == "maps 2026.1 — waiting for an unmetered connection")
        #expect(texts.line(asset("verifying", download), nil) == "maps 2026.1 — checking")
        #expect(texts.line(unpacking, nil) == "maps 2026.1 — unpacking · 25 %")
        #expect(TrayTexts(.japanese).line(unpacking, nil) == "maps 2026.1 — 展開中 · 25 %")
    }

    @Test func `reverses no line by a mark in its version`() {
        let texts = TrayTexts(.english)
        let odd = ["LatestVersion": Variant.string("1\u{202E}gnp.2")]
        #expect(texts.line(asset("downloading", odd), nil) == "maps 1\u{FFFD}gnp.2 — downloading")
        #expect(texts.retryLine(asset("failed", odd)) == "maps 1\u{FFFD}gnp.2 — failed · try again")
    }

    @Test func `counts once, and keeps the icon lit while nothing is downloaded`() {
        let running = TrayLook(
            overview(["Active": .uint32(1), "Remaining": .uint32(1)], [archive("active")]), assets: [asset("downloading", download)],
            isPresent: true, unseenFailures: 0)
        #expect(running.current.isEmpty && running.moreCurrent == 0 && running.activity == .downloading(1))
        #expect(!labels(running).contains { $0.contains("archive") })
        let unpacking = TrayLook(
            overview([:], [], [archive("finished")]), assets: [asset("extracting", download)], isPresent: true, unseenFailures: 0)
        #expect(unpacking.activity == .updating(1) && unpacking.isBusy && unpacking.recent.isEmpty)
        #expect(TrayTexts(.english).summary(unpacking) == "1 updating")
        let ready = TrayLook(overview([:], []), assets: [asset("ready")], isPresent: true, unseenFailures: 0)
        #expect(ready.activity == .idle && ready.assets.isEmpty)
        let gone = TrayLook(overview([:], []), assets: [asset("extracting")], isPresent: false, unseenFailures: 0)
        #expect(gone.activity == .idle && gone.assets.isEmpty)
    }

    @Test func `is named where its download has failed`() {
        let failed = TrayLook(
            overview([:], [], [archive("failed")]), assets: [asset("failed", download)], isPresent: true, unseenFailures: 1)
        #expect(labels(failed).contains("maps 2026.1 — failed · try again"), "\(labels(failed))")
    }
}
