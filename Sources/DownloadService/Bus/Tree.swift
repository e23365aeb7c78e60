internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// The object tree: the manager, the batches, the downloads by number and by token, and the nodes between.
@BusActor final class Tree: ObjectTree {
    private let downloader: Downloader
    /// Made once, because most calls go to the manager.
    private let manager: [BoundFace]

    init(_ downloader: Downloader) {
        self.downloader = downloader
        manager = [ManagerFace.face.of(downloader), ApplicationFace.face.of(downloader)]
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        if path == BusName.managerPath.value { return manager }
        if let batch = downloader.batch(at: path, for: caller) { return [BatchFace.face.of(batch)] }
        guard let download = downloader.download(at: path, for: caller) else { return nil }
        return [DownloadFace.face.of(download)]
    }

    /// Of more downloads than this, introspection may miss some that have no token. Of more batches, it may miss those of a sandboxed app.
    private static let mostLooks = 5000

    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] {
        if path == BusName.downloadsPath {
            let names = downloader.ledger.some(Self.mostLooks, app: caller.app).lazy.filter { $0.record.options.token == nil }
            return (tokenApps(for: caller, limit: 1).isEmpty ? [] : ["by_token"]) + names.prefix(limit - 1).map { "\($0.number)" }
        }
        let batches = downloader.batches.values.lazy.prefix(Self.mostLooks).filter { caller.owns($0) }
        if path == BusName.managerPath.value { return (batches.contains { _ in true } ? ["batch"] : []) + ["download"] }
        if path == BusName.batchesPath { return Array(batches.prefix(limit)).map(\.number).sorted().map { "\($0)" } }
        if path == BusName.tokensPath { return tokenApps(for: caller, limit: limit) }
        if path.hasPrefix(BusName.tokensPath + "/") {
            let app = String(path.dropFirst(BusName.tokensPath.utf8.count + 1))
            guard let numbers = downloader.tokens.numbers(of: app), caller.app.map({ ObjectPath.escape($0) == app }) ?? true else {
                return []
            }
            return numbers.prefix(limit).compactMap { downloader.ledger[$0]?.record.options.token.map(ObjectPath.escape) }.sorted()
        }
        // The nodes above the manager.
        let prefix = path == "/" ? "/" : path + "/"
        guard BusName.managerPath.value.hasPrefix(prefix) else { return [] }
        return [String(BusName.managerPath.value.dropFirst(prefix.utf8.count).prefix { $0 != "/" })]
    }

    /// The apps whose downloads with a token `caller` may see, as they are in paths.
    private func tokenApps(for caller: CallerIdentity, limit: Int) -> [String] {
        guard let app = caller.app.map(ObjectPath.escape) else { return downloader.tokens.apps(limit) }
        return downloader.tokens.numbers(of: app) == nil ? [] : [app]
    }
}

extension Downloader {
    /// The download at an object path: by number, or by token.
    func download(at path: String) -> ManagedDownload? {
        if let number = tokens[path] { return peek(number) }
        guard path.hasPrefix(BusName.downloadsPath + "/") else { return nil }
        let text = path.dropFirst(BusName.downloadsPath.utf8.count + 1)
        guard let value = UInt64(text), String(value) == text else { return nil }
        return peek(DownloadNumber(value))
    }

    /// The download at an object path, if `caller` may see it.
    func download(at path: String, for caller: CallerIdentity) -> ManagedDownload? {
        download(at: path).flatMap { caller.owns($0) ? $0 : nil }
    }
}
