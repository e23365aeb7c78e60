internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// The door for batches: all of one is taken in, or nothing, and what is wrong is told with the index of its item.
extension Admission {
    /// Takes in one call of `DownloadBatch`.
    ///
    /// - Throws: what is wrong with a URL or an option; a folder's faults are answered later.
    func admit(
        _ items: [(String, [String: Variant])], options dictionary: [String: Variant], _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) throws(Refusal) {
        guard !items.isEmpty else { throw Refusal(.invalidOption, "A batch has at least one item.") }
        guard items.count <= Limits.batchItems else {
            throw Refusal(.limitExceeded, "A batch has at most \(Limits.batchItems) items, not \(items.count).")
        }
        if dictionary["token"] != nil {
            throw Refusal(.invalidOption, "Option token belongs to the items of a batch: it names one download.")
        }
        let (caller, defaultDirectory, settings) = (reply.call.caller, downloader.defaultDirectory, downloader.settings)
        let defaults = try DownloadOptions(decoding: dictionary, from: caller, defaultDirectory: defaultDirectory, settings: settings)
        var wanted: [Wanted] = []
        wanted.reserveCapacity(items.count)
        var folders: [ByteText: Bool] = [:]
        for (index, (url, own)) in items.enumerated() {
            do throws(Refusal) {
                let options =
                    own.isEmpty
                    ? defaults
                    : try DownloadOptions(
                        decoding: own, over: defaults, from: caller, defaultDirectory: defaultDirectory, settings: settings)
                let url = try DownloadURL(url)
                try options.checkAddress(of: url, settings)
                wanted.append(Wanted(url: url, options: options))
                let folder = ByteText(options.directory ?? defaultDirectory)
                folders[folder] = folders[folder] == true || options.directory == nil
            } catch { throw error.about(item: index) }
        }
        let load = Load(of: wanted, from: caller)
        try checkRoom(for: load)
        lookAt(folders, load, for: reply.call.sender) { [self, wanted] verdicts in
            do throws(Refusal) { try take(wanted, defaults, defaultDirectory, verdicts, reply) } catch { reply.fail(error) }
        }
    }

    private func take(
        _ asked: [Wanted], _ defaults: DownloadOptions, _ defaultDirectory: String, _ verdicts: [ByteText: Result<String, Refusal>],
        _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) throws(Refusal) {
        var wanted = asked
        var directories: [String] = []
        directories.reserveCapacity(asked.count)
        for index in wanted.indices {
            let folder = wanted[index].options.directory
            switch verdicts[ByteText(folder ?? defaultDirectory)] {
            case .success(let directory):
                directories.append(directory)
                if folder != nil, !folder.isSameBytes(as: directory) { wanted[index].options.directory = directory }
            case .failure(let refusal): throw refusal.about(item: index)
            case nil: return
            }
        }
        if let batch = try batchHeld(by: wanted) {
            let paths = wanted.compactMap { holder(of: $0).map { BusName.path(of: $0.record) } }
            return downloader.journal.answer(reply, (batch.path, paths))
        }
        let (now, count) = (WallTime.now, UInt64(wanted.count))
        let number = takeNumbers(1 + count)
        let apps = Set(wanted.lazy.map(\.options.app))
        let record = BatchRecord(
            number: number, count: UInt32(count), app: apps.count == 1 ? apps.first ?? "" : "",
            directory: defaults.directory.flatMap { try? verdicts[ByteText($0)]?.get() } ?? directories[0], options: defaults)
        let members = wanted.indices.lazy.map { [self] index in
            var member = makeRecord(wanted[index], directories[index], number: DownloadNumber(number.value +| 1 +| UInt64(index)), now: now)
            member.batch = number
            return member
        }
        downloader.add(record, members, reply: reply)
    }

    /// The batch that this very request has made already, if it has.
    ///
    /// - Throws: `AlreadyExists` where tokens are taken otherwise.
    private func batchHeld(by wanted: [Wanted]) throws(Refusal) -> ManagedBatch? {
        var seen: [ByteText: Int] = [:]
        var held: ManagedBatch?
        var taken: Int?
        var isRepetition = true
        for (index, item) in wanted.enumerated() {
            guard let token = item.options.token else {
                isRepetition = false
                continue
            }
            if let first = seen.updateValue(index, forKey: ByteText("\(item.options.app)/\(token)")) {
                throw Refusal(.alreadyExists, "The token \(token) is that of item \(first) too; take a new token.").about(item: index)
            }
            guard let download = holder(of: item) else {
                isRepetition = false
                continue
            }
            taken = taken ?? index
            let batch = download.record.batch.flatMap { downloader.batch($0) }
            if batch == nil || held.map({ $0 !== batch }) == true || !item.isSame(as: download.record) {
                (isRepetition, taken) = (false, index)
                break
            }
            held = batch
        }
        guard let taken else { return nil }
        if isRepetition, let held, held.record.count == wanted.count { return held }
        let (app, token) = (wanted[taken].options.app, wanted[taken].options.token ?? "")
        throw Refusal(.alreadyExists, "The token \(token) of \(app) names another request already; take a new token.").about(item: taken)
    }
}

extension Refusal {
    /// The same, naming the item of a batch that is to blame, counted from 0.
    func about(item index: Int) -> Refusal { Refusal(name, "Item \(index): \(message)") }
}
