internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Scheduling

/// A call of `DownloadBatch` whose items are being read.
@BusActor final class BatchReading {
    let defaults: DownloadOptions
    let defaultDirectory: String
    let request: Admission.Request
    let reply: Reply<(ObjectPath, [ObjectPath])>
    private(set) var wanted: [Admission.Wanted] = []
    /// The folders named; true: an item goes to the default folder, which is made where it is not there.
    private(set) var folders: [ByteText: Bool] = [:]
    /// What the items hold, where that is counted.
    private(set) var bytes = 0
    /// Let go, with the message that it reads, as soon as all has been read.
    private var next: (() throws -> (String, [String: Variant])?)?
    private let settings: Settings

    init(
        _ next: @escaping () throws -> (String, [String: Variant])?, _ count: Int, _ defaults: DownloadOptions,
        _ defaultDirectory: String, _ settings: Settings, _ request: Admission.Request, _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) {
        (self.next, self.defaults, self.defaultDirectory, self.settings) = (next, defaults, defaultDirectory, settings)
        (self.request, self.reply) = (request, reply)
        wanted.reserveCapacity(count)
    }

    /// Gives the items away.
    func takeWanted() -> [Admission.Wanted] {
        defer { wanted = [] }
        return wanted
    }

    /// Reads one item.
    ///
    /// - Returns: true when there was none left.
    /// - Throws: what is wrong with it, a `Refusal`, or with the message, a `DBusError`.
    func readNext() throws -> Bool {
        guard let (text, own) = try next?() else {
            next = nil
            return true
        }
        do throws(Refusal) {
            let options =
                own.isEmpty
                ? defaults
                : try DownloadOptions(
                    decoding: own, over: defaults, from: reply.call.caller, defaultDirectory: defaultDirectory, settings: settings)
            let url = try DownloadURL(text)
            try options.checkAddress(of: url, settings)
            let item = Admission.Wanted(url: url, options: options)
            bytes += Admission.Load.bytes(of: item, from: reply.call.caller)
            wanted.append(item)
            let folder = ByteText(options.directory ?? defaultDirectory)
            folders[folder] = folders[folder] == true || options.directory == nil
        } catch { throw error.about(item: wanted.count) }
        return false
    }
}

/// The members of a batch, made in slices when its folders have been looked at. Nobody knows of them before the batch is taken in.
@BusActor private final class BatchMembers {
    /// Taken when its turn has come among the calls of its caller.
    private(set) lazy var number = admission.takeNumbers(1 + UInt64(wanted.count))
    /// What was asked for, each with its folder as that was found.
    private(set) var wanted: [Admission.Wanted]
    private(set) var apps: Set<String> = []
    /// What is wrong with the first folder with which something is.
    private(set) var entries: Result<[LedgerEntry], Refusal> = .success([])
    private var made: [LedgerEntry] = []
    private let admission: Admission
    private let defaultDirectory: String
    private lazy var now = WallTime.now

    init(_ reading: BatchReading, _ admission: Admission) {
        (wanted, defaultDirectory, self.admission) = (reading.takeWanted(), reading.defaultDirectory, admission)
        made.reserveCapacity(wanted.count)
    }

    /// Makes one, or, behind the last, room for all.
    ///
    /// - Returns: false when all is done.
    func makeSome(_ verdicts: [ByteText: Result<String, Refusal>]) -> Bool {
        let index = made.count
        guard index < wanted.count else {
            if admission.downloader.ledger.makeRoom(for: made) { return true }
            (entries, made) = (.success(made), [])
            return false
        }
        // Before a number is taken: what is refused has none.
        if index == 0, let refusal = firstRefusal(verdicts) {
            entries = .failure(refusal)
            return false
        }
        let folder = wanted[index].options.directory
        switch verdicts[ByteText(folder ?? defaultDirectory)] {
        case .success(let directory):
            if let folder, !folder.isSameBytes(as: directory) { wanted[index].options.directory = directory }
            let own = DownloadNumber(number.value +| 1 +| UInt64(index))
            var record = admission.makeRecord(wanted[index], directory, number: own, now: now)
            record.batch = number
            apps.insert(record.options.app)
            made.append(admission.downloader.ledger.prepare(record))
            return true
        case .failure, nil: return false
        }
    }

    /// What is wrong with the folder of the first item whose folder is refused.
    private func firstRefusal(_ verdicts: [ByteText: Result<String, Refusal>]) -> Refusal? {
        for (index, item) in wanted.enumerated() {
            if case .failure(let refusal) = verdicts[ByteText(item.options.directory ?? defaultDirectory)] {
                return refusal.about(item: index)
            }
        }
        return nil
    }
}

/// The door for batches: all of one is taken in, or nothing, and what is wrong is told with the index of its item.
extension Admission {
    /// Takes in one call of `DownloadBatch`: reads its items in slices, so that calls of others are answered in between.
    ///
    /// - Throws: what is wrong with the batch as a whole; faults of an item or a folder are answered later.
    func admit(
        _ items: ArrayArgument<Structure<String, [String: Variant]>>, options dictionary: [String: Variant],
        _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) throws {
        let count = try items.count(upTo: Limits.batchItems + 1)
        try admit(count, { try items.next()?.fields }, options: dictionary, reply)
    }

    /// The same of `count` items, which `next` gives one by one.
    func admit(
        _ count: Int, _ next: @escaping () throws -> (String, [String: Variant])?, options dictionary: [String: Variant],
        _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) throws(Refusal) {
        guard count > 0 else { throw Refusal(.invalidOption, "A batch has at least one item.") }
        guard count <= Limits.batchItems else {
            throw Refusal(.limitExceeded, "A batch has at most \(Limits.batchItems) items.")
        }
        if dictionary["token"] != nil {
            throw Refusal(.invalidOption, "Option token belongs to the items of a batch: it names one download.")
        }
        let (caller, defaultDirectory, settings) = (reply.call.caller, downloader.defaultDirectory, downloader.settings)
        let defaults = try DownloadOptions(decoding: dictionary, from: caller, defaultDirectory: defaultDirectory, settings: settings)
        // Its bytes are counted when they are known.
        let load = Load(count, bytes: 0, from: caller)
        try checkRoom(for: load)
        let request = begin(load, for: reply.call.sender)
        readings.append(BatchReading(next, count, defaults, defaultDirectory, settings, request, reply))
        if !isReading { readSome() }
    }

    /// One slice of reading.
    private func readSome() {
        isReading = true
        let step = StepTime()
        while let reading = readings.first {
            do {
                if try reading.readNext() {
                    readings.removeFirst()
                    finish(reading)
                }
            } catch {
                readings.removeFirst()
                reading.reply.fail(error as? any DBusErrorConvertible ?? DBusError.failed("\(error)"))
                giveUp(reading.request)
            }
            if step.isOver { break }
        }
        if readings.isEmpty { isReading = false } else { BusActor.spawn { [self] in readSome() } }
    }

    /// All items have been read.
    private func finish(_ reading: BatchReading) {
        do throws(Refusal) {
            try checkRoom(for: Load(0, bytes: reading.bytes, from: reading.reply.call.caller))
        } catch {
            reading.reply.fail(error)
            return giveUp(reading.request)
        }
        let members = BatchMembers(reading, self)
        lookAt(reading.folders, bytes: reading.bytes, for: reading.request) { verdicts in
            members.makeSome(verdicts)
        } then: { [self] verdicts in
            do throws(Refusal) { try take(reading, members, verdicts) } catch { reading.reply.fail(error) }
        }
    }

    private func take(
        _ reading: BatchReading, _ members: BatchMembers, _ verdicts: [ByteText: Result<String, Refusal>]
    ) throws(Refusal) {
        let (entries, defaults, reply) = (try members.entries.get(), reading.defaults, reading.reply)
        guard let first = entries.first else { return }
        if let batch = try batchHeld(by: members.wanted) {
            let paths = members.wanted.compactMap { holder(of: $0).map { BusName.path(of: $0.record) } }
            return downloader.journal.answer(reply, (batch.path, paths))
        }
        let record = BatchRecord(
            number: members.number, count: UInt32(entries.count), app: members.apps.count == 1 ? members.apps.first ?? "" : "",
            directory: defaults.directory.flatMap { try? verdicts[ByteText($0)]?.get() } ?? first.record.directory, options: defaults)
        downloader.add(record, entries, reply: reply)
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
