internal import DownloadModel
internal import EventLoop
internal import Localization
internal import TodokuClient

/// Updates assets, as many at once as the service takes, and shows their stages.
@BusActor final class AssetFollower: Interruptible {
    private let client: DownloaderClient
    private let assets: [AssetReference]
    private let json: Bool
    private let display: any AssetDisplay
    /// The assets whose updates have not begun, in their order.
    private var unbegun: ArraySlice<AssetReference>
    private var latest: [AssetReference: AssetDescription] = [:]
    private var outcomes: [AssetReference: Result<(isChanged: Bool, path: String), ClientError>] = [:]
    private var waiting: CheckedContinuation<Void, Never>?

    init(_ client: DownloaderClient, _ assets: [AssetReference], json: Bool, isQuiet: Bool) {
        (self.client, self.json) = (client, json)
        self.assets = assets.reduce(into: []) { if !$0.contains($1) { $0.append($1) } }
        unbegun = self.assets[...]
        display = Self.display(json: json, isQuiet: isQuiet)
    }

    private static func display(json: Bool, isQuiet: Bool) -> any AssetDisplay {
        if isQuiet { return QuietAssetDisplay() }
        if json { return JSONAssetDisplay() }
        return Terminal.current == nil ? PlainAssetDisplay() : LiveAssetDisplay(utf8: Terminal.isUTF8)
    }

    /// - Returns: the exit status for the outcomes.
    func follow(force: Bool) async throws -> ExitStatus {
        // The client calls on its own thread, which is this program's loop.
        let watch = try await client.watchAssets(assets) { [weak self] news in BusActor.assumeIsolated { self?.take(news) } }
        // The service refuses more waiting calls of one connection.
        for _ in assets.prefix(Limits.waitingCallsPerConnection) { beginNext(force: force) }
        await withCheckedContinuation { continuation in
            if outcomes.count < assets.count { waiting = continuation } else { continuation.resume() }
        }
        watch.stop()
        display.clear()
        return assets.reduce(.success) { $0.and(tell($1)) }
    }

    /// Begins the next update, if one is left. Its end begins a further one.
    private func beginNext(force: Bool) {
        guard let asset = unbegun.popFirst() else { return }
        BusActor.spawn { [self] in
            let outcome: Result<(isChanged: Bool, path: String), ClientError>
            do { outcome = .success(try await client.update(asset, force: force)) } catch {
                outcome = .failure(ClientError(ofWait: error))
            }
            outcomes[asset] = outcome
            beginNext(force: force)
            if outcomes.count == assets.count { waiting?.resume() }
        }
    }

    private func take(_ news: AssetNews) {
        guard case .changed(let asset) = news else { return }
        display.changed(asset, before: latest.updateValue(asset, forKey: asset.reference))
    }

    private func tell(_ asset: AssetReference) -> ExitStatus {
        switch outcomes[asset] {
        case .success(let (isChanged, path)):
            let members: [(String, JSON)] = [
                ("event", .string("ended")), ("asset", .string(asset.description)), ("changed", .bool(isChanged)),
                ("version", .string(latest[asset]?.installedVersion ?? "")), ("path", .string(path)),
            ]
            Output.write(json ? JSON.object(members).text + "\n" : path + "\n")
            return .success
        case .failure(let error):
            let text = CommandFailure(error).message
            // Outside of a sandbox, no call of `Update` is refused with a name that may be that of an end.
            let status = error.isEnd ?? true ? ExitStatus.ended : .refused
            let failure = CommandFailure(status, assets.count > 1 ? "\(asset): \(text)" : text, name: error.name, about: .asset(asset))
            return Program.report(failure, json: json)
        case nil: return .success
        }
    }

    // MARK: Ctrl-C

    /// The updates that have begun and not ended.
    private var remaining: [AssetReference] { assets.dropLast(unbegun.count).filter { outcomes[$0] == nil } }

    /// Names all updates that continue, as arguments of the commands.
    var farewell: String? {
        guard !remaining.isEmpty else { return nil }
        let names = remaining.prefix(20).map(\.description).joined(separator: " ")
        guard remaining.count != 1 else {
            return catalog.text(
                "the update continues in the background; “todoku asset show %1$s” shows it, and “todoku asset cancel %1$s” cancels it",
                names)
        }
        return catalog.text(
            "%1$s update continues in the background; “todoku asset list” shows it, and “todoku asset cancel %2$s” cancels it",
            "%1$s updates continue in the background; “todoku asset list” shows them, and “todoku asset cancel %2$s” cancels them",
            count: UInt64(clamping: remaining.count), names)
    }

    func leave() { display.clear() }
}
