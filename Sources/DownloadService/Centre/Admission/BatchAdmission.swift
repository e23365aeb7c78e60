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
    /// The folders of the items. True: an item goes to the default folder, which is created if it is missing.
    private(set) var folders: [ByteText: Bool] = [:]
    private(set) var hasTokens = false
    /// The bytes that the batch and its items count against the limit of a sandboxed app.
    private(set) var bytes: Int
    /// Reads the next item. This closure, and the message that it reads, are released as soon as all items are read.
    private var next: (() throws -> (String, [String: Variant])?)?
    private let settings: Settings

    init(
        _ next: @escaping () throws -> (String, [String: Variant])?, _ count: Int, _ defaults: DownloadOptions,
        _ defaultDirectory: String, _ settings: Settings, _ request: Admission.Request, _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) {
        (self.next, self.defaults, self.defaultDirectory, self.settings) = (next, defaults, defaultDirectory, settings)
        (self.request, self.reply) = (request, reply)
        bytes = Admission.Load.bytes(ofBatch: defaults, from: reply.call.caller)
        wanted.reserveCapacity(count)
    }

    /// Hands over the items, leaving none.
    func takeWanted() -> [Admission.Wanted] {
        defer { wanted = [] }
        return wanted
    }

    /// Reads one item.
    ///
    /// - Returns: true when no item was left.
    /// - Throws: a `Refusal` if the item is wrong; a `DBusError` if the message is malformed.
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
            try options.checkMirrors(settings)
            let item = Admission.Wanted(url: url, options: options)
            bytes += Admission.Load.bytes(of: item, from: reply.call.caller)
            wanted.append(item)
            if options.token != nil { hasTokens = true }
            let folder = ByteText(options.directory ?? defaultDirectory)
            folders[folder] = folders[folder] == true || options.directory == nil
        } catch { throw error.about(item: wanted.count) }
        return false
    }
}

/// The members of a batch, made in slices once its folders are checked. No caller sees the members before the batch is admitted.
@BusActor private final class BatchMembers {
    /// Reserved when the batch's turn comes among the calls of its caller.
    private(set) lazy var number = admission.takeNumbers(1 + UInt64(count))
    private let count: Int
    private let hasTokens: Bool
    /// The items. If no item has a token, the items are released once all members are made. The item of a made member has the folder's path
    /// as the check returned it.
    private(set) var wanted: [Admission.Wanted]
    private(set) var apps: Set<String> = []
    /// The paths of the members.
    private(set) var paths: [ObjectPath] = []
    /// The index of each item with a token, by path.
    private(set) var places: [String: Int] = [:]
    /// The members, once all are made; or the refusal of the first item whose folder is refused.
    private(set) var members: Result<PreparedMembers, Refusal> = .success(PreparedMembers())
    /// That refusal, if the members are made all the same: an earlier, identical call may have added the batch, and the folder may be gone
    /// since, as on an unplugged disk. `batchHeld` compares them.
    private(set) var refusalOfNew: Refusal?
    private var made = PreparedMembers()
    private var comparison: TokenComparison?
    private let admission: Admission
    private let defaultDirectory: String
    private lazy var now = WallTime.now

    init(_ reading: BatchReading, _ admission: Admission) {
        hasTokens = reading.hasTokens
        (wanted, defaultDirectory, self.admission) = (reading.takeWanted(), reading.defaultDirectory, admission)
        count = wanted.count
        made.reserveCapacity(wanted.count)
        paths.reserveCapacity(wanted.count)
        if hasTokens { places.reserveCapacity(wanted.count) }
    }

    /// Makes one member. When all are made, compares the items one by one with the downloads that have their tokens; without tokens, it
    /// releases the items.
    ///
    /// - Returns: false when nothing is left to do, or the batch is refused.
    func makeSome(_ verdicts: [ByteText: Result<String, Refusal>]) -> Bool {
        let index = made.entries.count
        guard index < count else {
            if hasTokens ? compareOne() : wanted.popLast() != nil { return true }
            (members, made) = (.success(made), PreparedMembers())
            return false
        }
        // Checked before a number is reserved: a batch that is refused here has none.
        if index == 0, let refusal = firstRefusal(verdicts) {
            guard admission.holder(of: wanted[0]) != nil else {
                members = .failure(refusal)
                return false
            }
            refusalOfNew = refusal
        }
        let folder = wanted[index].options.directory
        let given = folder ?? defaultDirectory
        guard let verdict = verdicts[ByteText(given)] else { return false }
        let directory = (try? verdict.get()) ?? given.tidyPath
        if let folder, !folder.isSameBytes(as: directory) { wanted[index].options.directory = directory }
        let own = DownloadNumber(number.value +| 1 +| UInt64(index))
        var record = admission.makeRecord(wanted[index], directory, number: own, now: now)
        record.batch = number
        apps.insert(record.options.app)
        let path = BusName.path(of: record)
        if let token = record.options.token, let first = places.updateValue(index, forKey: path.value) {
            let refusal = Refusal(.alreadyExists, "The token \(token) already names item \(first); choose a new token.")
            members = .failure(refusal.about(item: index))
            return false
        }
        paths.append(path)
        admission.list.scheduler.prepare(record, in: &made)
        return true
    }

    /// The scheduler has the members now.
    func areAdded() { members = .success(PreparedMembers()) }

    /// Releases items and members, which are no longer needed, in slices.
    func drop() {
        if case .success(let all) = members, !all.entries.isEmpty { (made, members) = (all, .success(PreparedMembers())) }
        BusActor.inSteps { [self] in wanted.popLast() != nil || made.popLast() }
    }

    /// - Returns: false when no item is left to compare.
    private func compareOne() -> Bool {
        let generation = admission.list.tokens.generation
        if comparison?.generation != generation { comparison = TokenComparison(generation: generation) }
        guard let index = comparison?.compared, index < count else { return false }
        comparison?.compare(wanted[index], admission.list.holder(of: paths[index]), in: admission.list)
        return true
    }

    /// The batch that an earlier, identical call added; nil: no identical call was made.
    ///
    /// - Throws: `AlreadyExists` if a token names another request.
    func batchHeld() throws(Refusal) -> ManagedBatch? {
        guard hasTokens else { return nil }
        // Nothing is left to compare, unless tokens have changed since.
        while compareOne() {}
        guard let comparison, let taken = comparison.taken else { return nil }
        if let held = comparison.repeated(count) { return held }
        let (app, token) = (wanted[taken].options.app, wanted[taken].options.token ?? "")
        throw Refusal(.alreadyExists, "The token \(token) of \(app) already names another request; choose a new token.").about(item: taken)
    }

    /// The refusal of the first item whose folder is refused.
    private func firstRefusal(_ verdicts: [ByteText: Result<String, Refusal>]) -> Refusal? {
        for (index, item) in wanted.enumerated() {
            if case .failure(let refusal) = verdicts[ByteText(item.options.directory ?? defaultDirectory)] {
                return refusal.about(item: index)
            }
        }
        return nil
    }
}

/// Compares the items of a batch with the downloads that have their tokens already.
private struct TokenComparison {
    /// `TokenTable.generation` when the comparison began.
    let generation: UInt64
    /// The number of compared items.
    private(set) var compared = 0
    /// The index of the first item whose token is taken. If an item shows that no identical call was made before, the index of that item
    /// instead.
    private(set) var taken: Int?
    private var held: ManagedBatch?
    private var isRepetition = true
    private var isDecided = false

    init(generation: UInt64) { self.generation = generation }

    /// - Parameter holder: the download with the token of `item`; nil: there is none.
    @BusActor mutating func compare(_ item: Admission.Wanted, _ holder: ScheduledDownload?, in list: DownloadList) {
        let index = compared
        compared += 1
        guard !isDecided else { return }
        guard let holder, item.options.token != nil else {
            isRepetition = false
            return
        }
        taken = taken ?? index
        let batch = holder.record.batch.flatMap { list.batch($0) }
        if batch == nil || held.map({ $0 !== batch }) == true || !item.isSame(as: holder.record) {
            (isRepetition, isDecided, taken) = (false, true, index)
        }
        held = batch
    }

    /// The earlier batch with exactly these items; nil: there is none.
    ///
    /// - Parameter count: of the items.
    @BusActor func repeated(_ count: Int) -> ManagedBatch? {
        guard isRepetition, let held, held.record.count == count else { return nil }
        return held
    }
}

/// Admits batches: all items or none. A refusal names the index of the item at fault.
extension Admission {
    /// Admits one call of `DownloadBatch`. Its items are read in slices, so that other calls are answered in between.
    ///
    /// - Throws: the fault of the batch as a whole. Faults of an item or of a folder are answered later.
    func admit(
        _ items: ArrayArgument<Structure<String, [String: Variant]>>, options dictionary: [String: Variant],
        _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) throws {
        let count = try items.count(upTo: Limits.batchItems + 1)
        try admit(count, { try items.next()?.fields }, options: dictionary, reply)
    }

    /// Admits a batch of `count` items, which `next` returns one by one.
    func admit(
        _ count: Int, _ next: @escaping () throws -> (String, [String: Variant])?, options dictionary: [String: Variant],
        _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) throws(Refusal) {
        guard count > 0 else { throw Refusal(.invalidOption, "A batch has at least one item.") }
        guard count <= Limits.batchItems else {
            throw Refusal(.limitExceeded, "A batch has at most \(Limits.batchItems) items.")
        }
        let defaults = try batchDefaults(dictionary, from: reply.call.caller)
        // The bytes are counted once all items are read.
        let load = Load(count, bytes: 0, from: reply.call.caller)
        try checkRoom(for: load)
        read(count, next, defaults, begin(load, for: reply.call.sender), reply)
    }

    /// Decodes the options of a batch.
    func batchDefaults(_ dictionary: [String: Variant], from caller: CallerIdentity) throws(Refusal) -> DownloadOptions {
        if dictionary["token"] != nil {
            throw Refusal(.invalidOption, "Option token belongs to the items of a batch: it names one download.")
        }
        if dictionary["post-data"] != nil {
            throw Refusal(.invalidOption, "Option post-data belongs to the items of a batch: it is the body of one request.")
        }
        return try DownloadOptions(
            decoding: dictionary, from: caller, defaultDirectory: list.defaultDirectory, settings: list.settings)
    }

    /// Reads the `count` items of `request`, a batch, in slices.
    func read(
        _ count: Int, _ next: @escaping () throws -> (String, [String: Variant])?, _ defaults: DownloadOptions, _ request: Request,
        _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) {
        readings.append(BatchReading(next, count, defaults, list.defaultDirectory, list.settings, request, reply))
        guard !isReading else { return }
        isReading = true
        readSome()
    }

    /// Reads one slice of the batches.
    private func readSome() {
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

    /// Checks the bytes, and then the folders, of a batch whose items are all read.
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
        let (prepared, defaults, reply) = (try members.members.get(), reading.defaults, reading.reply)
        guard let first = prepared.entries.first else { return }
        defer { BusActor.spawn { members.drop() } }
        if let batch = try members.batchHeld() {
            return answer(reply, (batch.path, members.paths), repeating: batch.entry)
        }
        if let refusal = members.refusalOfNew { throw refusal }
        let record = BatchRecord(
            number: members.number, count: UInt32(prepared.entries.count), app: members.apps.count == 1 ? members.apps.first ?? "" : "",
            directory: defaults.directory.flatMap { try? verdicts[ByteText($0)]?.get() } ?? first.record.directory, options: defaults)
        add(record, prepared, members.paths, members.places, reply: reply)
        members.areAdded()
    }
}

extension Refusal {
    /// This refusal with the index of the item at fault in its message, counted from 0.
    func about(item index: Int) -> Refusal { Refusal(name, "Item \(index): \(message)") }
}
