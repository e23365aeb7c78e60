internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// The object tree: the manager, the batches, the downloads by number and by token, and the nodes between.
@BusActor final class Tree: ObjectTree {
    private let list: DownloadList
    private let commands: Commands
    /// Made once, because most calls go to the manager.
    private let manager: [BoundFace]

    init(_ commands: Commands, _ applicationActions: ApplicationActions) {
        (self.commands, list) = (commands, commands.list)
        manager = [ManagerFace.face.of(commands), ApplicationFace.face.of(applicationActions)]
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        if path == BusName.managerPath.value { return manager }
        if let key = commands.assets.key(at: path, for: caller) {
            return [AssetFace.face.of(AssetObject(key, commands.assets))]
        }
        if let batch = list.batch(at: path, for: caller) { return [BatchFace.face.of(BatchObject(batch, commands))] }
        guard let download = list.download(at: path, for: caller) else { return nil }
        return [DownloadFace.face.of(DownloadObject(download, commands))]
    }

    func postpones(_ answer: Message, from path: String) -> Bool {
        let journal = commands.journal
        guard !journal.gate.isClear else { return false }
        // The caller may see the object, because its properties have been read.
        let holdsEnd =
            list.download(at: path).map { $0.state.hasEnded && journal.holdsEnd(of: $0.number) }
            ?? list.batch(at: path, for: .user).map { $0.entry.hasEnded && journal.holdsEnd(of: $0.number) }
        guard holdsEnd ?? false else { return false }
        journal.answerRead(answer, holdingEnd: true)
        return true
    }

    /// With more downloads than this, introspection may omit downloads without a token. With more batches, it may omit batches of a
    /// sandboxed app.
    private static let mostLooks = 5000

    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] {
        if path == BusName.downloadsPath {
            let names = list.scheduler.some(Self.mostLooks, app: caller.app).lazy.filter { $0.isEntered && $0.record.options.token == nil }
            let tokens = tokenApps(for: caller, limit: 1).isEmpty ? [] : ["by_token"]
            return Array((tokens + names.prefix(limit).map { "\($0.number)" }).prefix(limit))
        }
        if let names = commands.assets.children(of: path, for: caller) { return Array(names.prefix(limit)) }
        let batches = list.batches.values.lazy.prefix(Self.mostLooks).filter { $0.entry.isEntered && caller.owns($0) }
        if path == BusName.managerPath.value {
            let hasAssets = commands.assets.children(of: BusName.assetsPath, for: caller)?.isEmpty == false
            return (hasAssets ? ["asset"] : []) + (batches.contains { _ in true } ? ["batch"] : []) + ["download"]
        }
        if path == BusName.batchesPath { return Array(batches.prefix(limit)).map(\.number).sorted().map { "\($0)" } }
        if path == BusName.tokensPath { return tokenApps(for: caller, limit: limit) }
        if path.hasPrefix(BusName.tokensPath + "/") {
            let app = String(path.dropFirst(BusName.tokensPath.utf8.count + 1))
            guard let numbers = list.tokens.numbers(of: app), caller.app.map({ ObjectPath.escape($0) == app }) ?? true else {
                return []
            }
            let entered = numbers.prefix(limit).compactMap { list.scheduler[$0] }.filter(\.isEntered)
            return entered.compactMap { $0.record.options.token.map(ObjectPath.escape) }.sorted()
        }
        // The nodes above the manager.
        let prefix = path == "/" ? "/" : path + "/"
        guard BusName.managerPath.value.hasPrefix(prefix) else { return [] }
        return [String(BusName.managerPath.value.dropFirst(prefix.utf8.count).prefix { $0 != "/" })]
    }

    /// The apps whose downloads with a token `caller` may see. The apps are written as in paths.
    private func tokenApps(for caller: CallerIdentity, limit: Int) -> [String] {
        guard let app = caller.app.map(ObjectPath.escape) else { return list.tokens.apps(limit) }
        return list.tokens.numbers(of: app) == nil ? [] : [app]
    }
}
