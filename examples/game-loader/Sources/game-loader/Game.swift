// SPDX-License-Identifier: CC0-1.0
// The loader of a game: it brings the levels, shows each stage, and plays one version while a newer one comes.
//
//   game-loader MANIFEST-URL [PUBLIC-KEY [VERSIONS]]
//
// PUBLIC-KEY: 64 hexadecimal digits, or "-". The game ends when it has played so many VERSIONS (1). To rehearse it:
//
//   todoku asset serve levels --asset org.example.Game/levels
import Glibc
import TodokuClient

@main struct Game {
    static let id = "org.example.Game"

    static func main() async {
        let arguments = CommandLine.arguments.dropFirst()
        guard let manifest = arguments.first else { return end("usage: game-loader MANIFEST-URL [PUBLIC-KEY [VERSIONS]]", 2) }
        do {
            let versions = arguments.dropFirst(2).first.flatMap { Int($0) } ?? 1
            try await play(versions, from: manifest, publicKey: key(arguments.dropFirst().first ?? "-"))
        } catch {
            end("game-loader: \(error)", 1)
        }
    }

    static func play(_ versions: Int, from manifest: String, publicKey: [UInt8]) async throws {
        let client = try await DownloaderClient.connect()
        // Once a day without a call, too. If this window is not in front, a toast says that the levels are there.
        var request = DownloadRequest()
        request.title = "New levels"
        request.notify = .background
        let levels = try await client.registerAsset(
            AssetKey(app: id, name: "levels"), manifest: manifest, update: .daily, publicKey: publicKey, request)
        try await client.setForeground(id, true)

        let (ready, found) = AsyncStream.makeStream(of: String.self, bufferingPolicy: .bufferingNewest(1))
        let screen = Screen()
        let watch = try await client.watchAssets([levels]) { news in
            guard case .changed(let asset) = news else { return }
            screen.show(asset)
            if !asset.stage.isUnderWay, !asset.installedVersion.isEmpty { found.yield(asset.installedVersion) }
        }
        defer { watch.stop() }

        // Without a network, the game plays the version that it has.
        var path = try await client.describe(levels).path
        do {
            path = try await client.update(levels).path
        } catch {
            guard try await !client.describe(levels).installedVersion.isEmpty else { throw error }
            say("playing offline: \(error)")
        }
        var (played, version) = (0, "")
        var level: Level?
        for await latest in ready where latest != version {
            // The folder that was opened before stays whole until the update after this one.
            if let level { say("\(latest) is ready; still playing: \(try level.read("1.txt"))") }
            level = try Level(path)
            version = latest
            say("playing: \(try level?.read("1.txt") ?? "")")
            played += 1
            if played == versions { return }
        }
    }

    static func key(_ text: String) throws -> [UInt8] { text == "-" ? [] : try Checksum("sha256:\(text)").digest }

    static func end(_ message: String, _ status: Int32) {
        say(message, to: 2)
        exit(status)
    }
}

/// Prints a line, at once.
func say(_ line: String, to descriptor: Int32 = 1) {
    let bytes = Array("\(line)\n".utf8)
    _ = write(descriptor, bytes, bytes.count)
}

/// One version of the levels: its folder, opened once. Everything in it is opened relative to it, so no file is another version's.
final class Level: Sendable {
    private let folder: Int32

    init(_ path: String) throws {
        folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw SystemError(path, errno) }
    }

    deinit { close(folder) }

    func read(_ name: String) throws -> String {
        let file = openat(folder, name, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { throw SystemError(name, errno) }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(file, &bytes, bytes.count)
        guard count >= 0 else { throw SystemError(name, errno) }
        return String(decoding: bytes.prefix(count), as: UTF8.self)
    }
}

struct SystemError: Error, CustomStringConvertible {
    let description: String
    init(_ path: String, _ code: Int32) { description = "\(path): \(String(cString: strerror(code)))" }
}

/// The loading screen. The client calls it on one thread.
final class Screen: @unchecked Sendable {
    private var shown = ""

    func show(_ asset: AssetDescription) {
        var line = asset.stage == .ready ? "ready \(asset.installedVersion)" : asset.stage.name
        if let fraction = asset.progress?.fraction { line += " \(Int(fraction * 10) * 10) %" }
        if line != shown { say(line) }
        shown = line
    }
}
