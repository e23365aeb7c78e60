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

    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] {
        if path == BusName.downloadsPath {
            var names: [String] = []
            downloader.ledger.visit(app: caller.app, tag: nil) { entry in
                if entry.record.options.token == nil { names.append("\(entry.number)") }
                return names.count >= limit - 1
            }
            let visible = caller.tokensPrefix
            let hasTokens = visible.isEmpty ? !downloader.tokens.isEmpty : downloader.tokens.keys.contains { $0.hasPrefix(visible) }
            return (hasTokens ? ["by_token"] : []) + names
        }
        let batches = downloader.batches.values.lazy.filter { caller.owns($0) }
        if path == BusName.managerPath.value { return (batches.isEmpty ? [] : ["batch"]) + ["download"] }
        if path == BusName.batchesPath { return batches.map(\.number).sorted().prefix(limit).map { "\($0)" } }
        if path == BusName.tokensPath || path.hasPrefix(BusName.tokensPath + "/") {
            let visible = caller.tokensPrefix
            let names = downloader.tokens.keys.lazy.filter { $0.hasPrefix(path + "/") && $0.hasPrefix(visible) }
                .compactMap { $0.dropFirst(path.utf8.count + 1).split(separator: "/").first.map(String.init) }
            return Array(Set(names).sorted().prefix(limit))
        }
        // The nodes above the manager.
        let prefix = path == "/" ? "/" : path + "/"
        guard BusName.managerPath.value.hasPrefix(prefix) else { return [] }
        return [String(BusName.managerPath.value.dropFirst(prefix.utf8.count).prefix { $0 != "/" })]
    }
}

extension CallerIdentity {
    /// The prefix of the token paths that this caller may see; empty: all.
    fileprivate var tokensPrefix: String { app.map { "\(BusName.tokensPath)/\(ObjectPath.escape($0))/" } ?? "" }
}

extension Downloader {
    /// The download at an object path: by number, or by token.
    func download(at path: String) -> ManagedDownload? {
        if let number = tokens[path] { return glance(number) }
        guard path.hasPrefix(BusName.downloadsPath + "/") else { return nil }
        let text = path.dropFirst(BusName.downloadsPath.utf8.count + 1)
        guard let value = UInt64(text), String(value) == text else { return nil }
        return glance(DownloadNumber(value))
    }

    /// The download at an object path, if `caller` may see it.
    func download(at path: String, for caller: CallerIdentity) -> ManagedDownload? {
        download(at: path).flatMap { caller.owns($0) ? $0 : nil }
    }
}
