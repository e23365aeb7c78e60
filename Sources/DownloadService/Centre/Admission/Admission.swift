internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import Logging
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Admits new downloads. A request is read and checked at once; its folder is checked on a thread of the folder's disk. The requests of one
/// caller are admitted in the order of its calls. A folder that does not answer (a dead network mount) delays its own callers only, for at
/// most `DiskPatience.folder`.
@BusActor final class Admission {
    /// The kind of reply that a call waits for, and when it is due.
    enum Answer {
        /// The object path, once the download is on disk.
        case path(Reply<ObjectPath>)
        /// The outcome, once the download has ended.
        case fetch(FetchReply)

        @BusActor var call: PendingCall {
            switch self {
            case .path(let reply): reply.call
            case .fetch(let reply): reply.call
            }
        }

        @BusActor func fail(_ refusal: Refusal) {
            switch self {
            case .path(let reply): reply.fail(refusal)
            case .fetch(let reply): reply.fail(refusal)
            }
        }
    }

    /// The URL and the options of one requested download.
    struct Wanted {
        let url: String
        var options: DownloadOptions

        init(url: DownloadURL, options: DownloadOptions) {
            (self.url, self.options) = (url.text, options)
            if options.username == nil, let username = url.username {
                self.options.username = username
                if options.password == nil { self.options.password = url.password }
            }
        }
    }

    /// A call for one download.
    private struct Ask {
        let wanted: Wanted
        /// The caller's descriptor to write into; nil: a file in a folder.
        let descriptor: HeldDescriptor?
        let answer: Answer
    }

    /// The number of downloads and bytes by which one call approaches the limits.
    struct Load {
        /// The sandboxed app that would own the downloads; nil: the caller is in no sandbox.
        let app: String?
        let count: Int
        var bytes: Int

        init(_ count: Int, bytes: Int, from caller: CallerIdentity) { (app, self.count, self.bytes) = (caller.app, count, bytes) }

        /// The load of one download.
        init(of wanted: Wanted, from caller: CallerIdentity) { self.init(1, bytes: Self.bytes(of: wanted, from: caller), from: caller) }

        /// The bytes that `wanted` counts against the limit of a sandboxed app; 0 for other callers.
        static func bytes(of wanted: Wanted, from caller: CallerIdentity) -> Int {
            caller.app == nil ? 0 : wanted.options.heldBytes(with: wanted.url)
        }

        /// The bytes that a batch with these options counts against that limit, beside its items.
        static func bytes(ofBatch options: DownloadOptions, from caller: CallerIdentity) -> Int {
            guard caller.app != nil else { return 0 }
            return BatchRecord(number: BatchNumber(0), count: 0, app: "", directory: "", options: options).heldBytes
        }

        /// The load of a fresh link for an existing download.
        init(renewing link: FreshLink, from caller: CallerIdentity) {
            var options = DownloadOptions()
            (options.headers, options.cookies, options.referrer) = (link.headers ?? [], link.cookies ?? [], link.referrer)
            (options.username, options.password) = (link.username, link.password)
            (app, count, bytes) = (caller.app, 0, options.heldBytes(with: link.url.text))
        }
    }

    /// A call, until it is admitted or refused.
    @BusActor final class Request {
        fileprivate(set) var load: Load
        let caller: String
        /// When the wait for the folders ends; nil: the folders are not known yet.
        fileprivate private(set) var deadline: SuspendingClock.Instant?
        /// Does one slice of the work that must precede `then`, with the same verdicts. Returns false once the work is done.
        private var prepare: (([ByteText: Result<String, Refusal>]) -> Bool)?
        /// The preparation takes more than one step. Then the admission is a step of its own.
        private var isLong = false
        /// The folders without a verdict. The empty path stands for a descriptor, as in records.
        private var missing: Set<ByteText> = []
        private var verdicts: [ByteText: Result<String, Refusal>] = [:]
        /// Admits or refuses the call. A verdict is the folder's path without superfluous slashes and dots, or the fault of the folder.
        private var then: ([ByteText: Result<String, Refusal>]) -> Void = { _ in }

        fileprivate init(_ load: Load, _ caller: String) { (self.load, self.caller) = (load, caller) }

        /// Starts the wait for the verdicts on `folders`.
        fileprivate func awaits(
            _ folders: Set<ByteText>, prepare: (([ByteText: Result<String, Refusal>]) -> Bool)? = nil,
            then: @escaping ([ByteText: Result<String, Refusal>]) -> Void
        ) {
            (missing, self.prepare, self.then, deadline) = (folders, prepare, then, .now + DiskPatience.folder)
        }

        /// Does slices of the preparation until `step` is over.
        ///
        /// - Returns: whether the request may be admitted in this step.
        fileprivate func prepareSome(in step: StepTime) -> Bool {
            while prepare?(verdicts) == true {
                guard step.isOver else { continue }
                isLong = true
                return false
            }
            prepare = nil
            defer { isLong = false }
            return !isLong
        }

        var isSettled: Bool { deadline != nil && missing.isEmpty }
        /// When the wait for the folders ends; nil: the request does not wait for folders.
        fileprivate var dueAt: SuspendingClock.Instant? { isSettled ? nil : deadline }

        func saw(_ folder: ByteText, _ verdict: Result<String, Refusal>) {
            if missing.remove(folder) != nil { verdicts[folder] = verdict }
        }

        /// Ends the wait: refuses the folders that have not answered.
        func giveUp() {
            for folder in missing { saw(folder, .failure(.silentFolder(folder.text))) }
        }

        /// Calls `then` once. Releases the closure, because the closure of a batch retains this request and all items.
        fileprivate func proceed() {
            let proceed = then
            (prepare, then) = (nil, { _ in })
            proceed(verdicts)
        }
    }

    /// The requests of one caller, in the order of its calls.
    private struct Queue {
        private var requests: [Request] = []
        private var head = 0

        var first: Request? { head < requests.count ? requests[head] : nil }
        mutating func append(_ request: Request) { requests.append(request) }

        mutating func removeFirst() {
            head += 1
            guard head == requests.count || head > 1024 else { return }
            requests.removeFirst(head)
            head = 0
        }
    }

    let list: DownloadList
    let executor: ServiceExecutor
    let journal: Journal
    let callers: Callers
    let log: Logger
    private let descriptors: Descriptors
    private let allowsHiddenFolders: Bool
    /// The waiting requests, by caller.
    private var queues: [String: Queue] = [:] { didSet { hold.isHeld = !queues.isEmpty } }
    /// The callers whose settled requests are admitted further in a later turn of the loop.
    private var draining: Set<String> = []
    let hold: IdleExit.Hold
    /// The number of downloads in all waiting requests.
    private var waiting = 0
    /// The downloads and bytes in the waiting requests of each sandboxed app.
    private var waitingOf: [String: (count: Int, bytes: Int)] = [:]
    /// The requests that wait for the check of a folder: requests in `asked` came before the check began, requests in `gathered` later.
    /// `makes`: a gathered request wants the folder created.
    private var looking: [ByteText: (asked: [Request], gathered: [Request], makes: Bool)] = [:]
    private var timer: Poller.Token?
    /// Batches whose items are being read, in the order of the calls.
    var readings: [BatchReading] = []
    var isReading = false
    /// The Metalink documents that are being read, for each holder of a descriptor.
    var documents: [String: Int] = [:]

    /// - Parameters:
    ///   - allowsHiddenFolders: whether hidden folders may be destinations (`--allow-hidden-folders`).
    ///   - hold: held while any call is neither admitted nor refused.
    init(
        list: DownloadList, executor: ServiceExecutor, journal: Journal, callers: Callers, descriptors: Descriptors,
        allowsHiddenFolders: Bool, hold: IdleExit.Hold, log: Logger
    ) {
        (self.list, self.executor, self.journal, self.callers) = (list, executor, journal, callers)
        (self.descriptors, self.allowsHiddenFolders, self.hold, self.log) = (descriptors, allowsHiddenFolders, hold, log)
    }

    /// Admits one call of `Download`, `Fetch` or `DownloadToFd`.
    ///
    /// - Parameter descriptor: the caller's descriptor to write into; nil: a file in a folder.
    /// - Throws: the fault of the URL or of the options, or the limit that is reached. Faults of folder and descriptor are answered later.
    func admit(
        url text: String, options dictionary: [String: Variant], into descriptor: HeldDescriptor? = nil, _ answer: Answer
    ) throws(Refusal) {
        let url = try DownloadURL(text)
        let call = answer.call
        if descriptor != nil { try Self.checkKeys(dictionary) }
        var options = try DownloadOptions(
            decoding: dictionary, from: call.caller, defaultDirectory: list.defaultDirectory, settings: list.settings)
        try options.checkAddress(of: url, list.settings)
        try options.checkMirrors(list.settings)
        if case .fetch = answer, options.extract != nil {
            throw Refusal(
                .invalidOption,
                "Option extract is not for Fetch, which compares the file with its last copy; use Download and Wait, or an asset.")
        }
        if case .fetch = answer, options.isPrivate {
            throw Refusal(.invalidOption, "Option private is not for Fetch, which keeps a copy to compare with; use Download and Wait.")
        }
        if case .fetch = answer, options.postData != nil {
            throw Refusal(
                .invalidOption, "Option post-data is not for Fetch, which compares the file with its last copy; use Download and Wait.")
        }
        if case .fetch = answer, dictionary["only-if-changed"] == nil { options.onlyIfChanged = true }
        let folder: ByteText = descriptor == nil ? ByteText(options.directory ?? list.defaultDirectory) : ""
        let wanted = Wanted(url: url, options: options)
        let load = Load(of: wanted, from: call.caller)
        try checkRoom(for: load)
        if case .fetch = answer { try callers.arrives(call.sender) }
        if descriptor != nil { try descriptors.reserve(for: call.holder) }
        let ask = Ask(wanted: wanted, descriptor: descriptor, answer: answer)
        let folders: [ByteText: Bool] = descriptor == nil ? [folder: options.directory == nil] : [:]
        lookAt(folders, load, for: call.sender, descriptor, reading: options.provesFile) { [self] verdicts in
            if let verdict = verdicts[folder] { settle(ask, verdict) }
        }
    }

    private func settle(_ ask: Ask, _ verdict: Result<String, Refusal>) {
        if case .fetch(let reply) = ask.answer { callers.arrived(reply.call.sender) }
        switch verdict {
        case .success(let directory) where take(ask, into: directory): break
        case .success: releaseDescriptor(of: ask)
        case .failure(let refusal):
            releaseDescriptor(of: ask)
            if let held = repeated(ask) { answer(ask, by: held) } else { ask.answer.fail(refusal) }
        }
    }

    /// The download that an earlier, identical call with a token has added; nil: there is none. Its folder may be gone since, as on an
    /// unplugged disk: the download waits for the folder, or has ended.
    private func repeated(_ ask: Ask) -> ScheduledDownload? {
        guard ask.descriptor == nil else { return nil }
        let wanted = ask.wanted.options.directory.map { ask.wanted.into($0.tidyPath) } ?? ask.wanted
        guard let held = holder(of: wanted), wanted.isSame(as: held.record), isSameFile(held, ask) else { return nil }
        return held
    }

    private func releaseDescriptor(of ask: Ask) {
        if ask.descriptor != nil { descriptors.release(for: ask.answer.call.holder) }
    }

    /// - Throws: `InvalidOption` for an option that says where a file goes.
    private static func checkKeys(_ dictionary: [String: Variant]) throws(Refusal) {
        for key in OptionRow.ofPlace where dictionary[key] != nil {
            throw Refusal(.invalidOption, "Option \(key) is not for DownloadToFd, which writes into the caller’s own file.")
        }
    }

    /// - Throws: `Storage` if the journal is full; `LimitExceeded` if `load` exceeds what all callers, or one sandboxed app, may have. Both
    ///   the existing downloads and the waiting requests count.
    func checkRoom(for load: Load) throws(Refusal) {
        if journal.isFull { throw journal.refusal }
        guard Int(list.counts.remaining) + waiting + load.count <= Limits.downloadsNotEnded else {
            throw Refusal(.limitExceeded, "At most \(Limits.downloadsNotEnded) downloads may be queued at a time.")
        }
        guard let app = load.app else { return }
        let (held, atDoor) = (list.scheduler.holdings(of: app), waitingOf[app] ?? (0, 0))
        guard held.remaining + atDoor.count + load.count <= Limits.downloadsNotEndedOfSandboxedApp else {
            throw Refusal(
                .limitExceeded, "An app in a sandbox may have at most \(Limits.downloadsNotEndedOfSandboxedApp) downloads queued at a time."
            )
        }
        guard load.bytes == 0 || held.bytes + atDoor.bytes + load.bytes <= Limits.heldBytesOfSandboxedApp else {
            throw Refusal(
                .limitExceeded,
                """
                The URLs, headers, cookies, bodies, metadata and texts of toasts of an app in a sandbox may take at most \
                \(Limits.heldBytesOfSandboxedApp >> 20) MiB, the first KiB of each download or batch aside; remove some that have ended.
                """)
        }
    }

    /// Checks `folders` and `descriptor`, then calls `then`, in the order of the calls of `caller`. A folder with the value true is created
    /// if it is missing. The verdict on the descriptor has the key "".
    func lookAt(
        _ folders: [ByteText: Bool], _ load: Load, for caller: String, _ descriptor: HeldDescriptor? = nil, reading: Bool = false,
        then: @escaping ([ByteText: Result<String, Refusal>]) -> Void
    ) {
        let request = begin(load, for: caller)
        request.awaits(Set(folders.keys).union(descriptor == nil ? [] : [""]), then: then)
        if let descriptor { look(at: descriptor, reading: reading, for: request) }
        look(at: folders, for: request)
    }

    /// Queues a call whose folders are not known yet. Later calls of `caller` wait behind it.
    func begin(_ load: Load, for caller: String) -> Request {
        let request = Request(load, caller)
        queues[caller, default: Queue()].append(request)
        count(load, 1)
        return request
    }

    /// Continues a request of `begin`, now that its folders and its bytes are known.
    func lookAt(
        _ folders: [ByteText: Bool], bytes: Int, for request: Request, prepare: @escaping ([ByteText: Result<String, Refusal>]) -> Bool,
        then: @escaping ([ByteText: Result<String, Refusal>]) -> Void
    ) {
        var load = request.load
        load.bytes = bytes
        setLoad(load, of: request)
        request.awaits(Set(folders.keys), prepare: prepare, then: then)
        look(at: folders, for: request)
    }

    /// Sets the load of a request of `begin`, which was not known before.
    func setLoad(_ load: Load, of request: Request) {
        count(request.load, -1)
        request.load = load
        count(load, 1)
    }

    /// Takes `request`, whose call has been answered, out of the queue.
    func giveUp(_ request: Request) {
        request.awaits([]) { _ in }
        drain(request.caller)
    }

    private func look(at folders: [ByteText: Bool], for request: Request) {
        for (folder, isDefault) in folders { look(at: folder, isDefault: isDefault, for: request) }
        armTimer()
    }

    /// Adds `load` to the sums of the waiting requests (`sign` 1), or subtracts it (`sign` -1).
    private func count(_ load: Load, _ sign: Int) {
        waiting += sign * load.count
        guard let app = load.app else { return }
        let (count, bytes) = waitingOf[app] ?? (0, 0)
        waitingOf[app] = count + sign * load.count == 0 ? nil : (count + sign * load.count, bytes + sign * load.bytes)
    }

    private func look(at descriptor: HeldDescriptor, reading: Bool, for request: Request) {
        DiskPool.shared.perform(at: .descriptor(descriptor.number), within: DiskPatience.folder) {
            descriptor.obstacle(reading: reading)
        } then: { [self] obstacle in
            request.saw("", obstacle.map { $0.map { .failure($0) } ?? .success("") } ?? .failure(.silentFolder("")))
            drain(request.caller)
        }
    }

    private func look(at directory: ByteText, isDefault: Bool, for request: Request) {
        if let makes = looking[directory]?.makes {
            looking[directory]?.gathered.append(request)
            looking[directory]?.makes = makes || isDefault
            return
        }
        looking[directory] = ([request], [], false)
        check(directory, create: isDefault)
    }

    private func check(_ directory: ByteText, create: Bool) {
        let allowHidden = allowsHiddenFolders
        DiskPool.shared.perform(at: .path(directory.text), within: DiskPatience.folder) {
            Destination.check(directory.text, allowHidden: allowHidden, create: create)
        } then: { [self] result in
            guard let (asked, gathered, makes) = looking.removeValue(forKey: directory) else { return }
            for request in asked { request.saw(directory, result ?? .failure(.silentFolder(directory.text))) }
            if !gathered.isEmpty {
                looking[directory] = (gathered, [], false)
                check(directory, create: makes)
            }
            let step = StepTime()
            for caller in Set(asked.map(\.caller)) { drain(caller, in: step) }
        }
    }

    /// Admits the settled requests of `caller`, up to the first unsettled one. Thousands may have waited behind one folder, so the work
    /// continues in a later turn of the loop once `step` is over.
    private func drain(_ caller: String, in step: StepTime = StepTime()) {
        guard !draining.contains(caller) else { return }
        while let request = queues[caller]?.first, request.isSettled {
            guard !step.isOver, request.prepareSome(in: step) else { return drainLater(caller) }
            queues[caller]?.removeFirst()
            count(request.load, -1)
            request.proceed()
        }
        if queues[caller]?.first == nil { queues[caller] = nil } else { armTimer() }
    }

    private func drainLater(_ caller: String) {
        draining.insert(caller)
        BusActor.spawn { [self] in
            draining.remove(caller)
            drain(caller)
        }
    }

    /// Arms the one timer of all queues for the earliest deadline of a first request. That request may have left its queue when the timer
    /// fires.
    private func armTimer() {
        guard timer == nil, let next = queues.values.lazy.compactMap({ $0.first?.dueAt }).min() else { return }
        timer = Poller.shared.scheduleAwake(after: max(.zero, next - .now)) { [self] in
            timer = nil
            let step = StepTime()
            for caller in Array(queues.keys) {
                while let request = queues[caller]?.first, let due = request.dueAt, due <= .now {
                    request.giveUp()
                    drain(caller, in: step)
                }
            }
            armTimer()
        }
    }

    /// Adds a download for `ask` and returns true; false if an existing download, or a refusal, has answered the call.
    private func take(_ ask: Ask, into directory: String) -> Bool {
        let wanted = ask.wanted.into(directory)
        if let token = wanted.options.token, let held = holder(of: wanted) {
            guard wanted.isSame(as: held.record), isSameFile(held, ask) else {
                ask.answer.fail(
                    Refusal(
                        .alreadyExists, "The token \(token) of \(wanted.options.app) already names another request; choose a new token."))
                return false
            }
            answer(ask, by: held)
            return false
        }
        var isFetch = false
        if case .fetch = ask.answer {
            isFetch = true
            let key = CopyKey(app: wanted.options.app, url: wanted.url, directory: directory, wantedName: wanted.options.fileName)
            if let running = list.runningFetch(of: key, like: { wanted.isSame(as: $0, exactly: true) }) {
                answer(ask, by: running)
                return false
            }
        }
        if let descriptor = ask.descriptor {
            do throws(Refusal) {
                try descriptors.checkMemory(descriptor, for: ask.answer.call.holder)
            } catch {
                ask.answer.fail(error)
                return false
            }
        }
        var record = makeRecord(wanted, directory, number: takeNumbers(1), now: .now)
        (record.isFetch, record.isToDescriptor) = (isFetch, ask.descriptor != nil)
        add(record, answer: ask.answer)
        if let descriptor = ask.descriptor {
            descriptors.hold(descriptor, for: record.number, holder: ask.answer.call.holder)
        }
        return true
    }

    private func answer(_ ask: Ask, by entry: ScheduledDownload) {
        switch ask.answer {
        case .path(let reply): answer(reply, BusName.path(of: entry.record), repeating: entry)
        case .fetch(let reply): if let download = list.peek(entry.number) { answerFetch(reply, by: download) }
        }
    }

    /// Answers a call that repeats the call which has added `addition`; with `Storage` if the addition could not be saved.
    func answer<Out>(_ reply: Reply<Out>, _ out: Out, repeating addition: any Addition) {
        guard !addition.isEntered else { return journal.answer(reply, out) }
        if journal.isFull { return reply.fail(journal.refusal) }
        executor.answer(repeating: addition) {
            reply.message(out)
        } failure: {
            reply.message(failing: $0)
        }
    }

    /// Whether a repeated call passes a descriptor of the file into which `entry` writes, or wrote. True also if neither has a descriptor.
    private func isSameFile(_ entry: ScheduledDownload, _ ask: Ask) -> Bool {
        guard let descriptor = ask.descriptor else { return !entry.record.isToDescriptor }
        guard entry.record.isToDescriptor, let asked = descriptor.identity,
            let held = descriptors[entry.number]?.identity ?? entry.record.resume?.identity
        else { return false }
        return held == asked
    }

    /// The download that the token of `wanted` names already.
    func holder(of wanted: Wanted) -> ScheduledDownload? {
        guard let token = wanted.options.token else { return nil }
        return list.holder(of: BusName.path(app: wanted.options.app, token: token))
    }

    /// Reserves `count` consecutive numbers, and returns the first.
    func takeNumbers(_ count: UInt64) -> DownloadNumber {
        let number = journal.nextNumber
        journal.nextNumber = DownloadNumber(number.value +| count)
        return number
    }

    func makeRecord(_ wanted: Wanted, _ directory: String, number: DownloadNumber, now: WallTime) -> DownloadRecord {
        var options = wanted.options
        let paused = !options.start
        options.start = true  // from here on, the state says whether the download starts
        var record = DownloadRecord(
            number: number, url: wanted.url, options: options, directory: directory, state: .paused, queuedAt: now,
            position: DownloadQueue.position(of: number))
        if !paused { record.state = record.obstacle(now: now, paused: list.settings.paused) }
        return record
    }
}

extension Admission.Wanted {
    /// This request with its folder's path as the check returned it, without superfluous slashes and dots.
    func into(_ directory: String) -> Self {
        var wanted = self
        if options.directory != nil { wanted.options.directory = directory }
        return wanted
    }

    /// Whether a repeated call asks for the download `record`. Options that can change later do not count, because somebody may have
    /// changed them since the first call: `priority`, `speed-limit`, `start`, `directory`, `allow-metered` and `metadata`.
    ///
    /// - Parameter exactly: whether the last three count, too. The folder of a Fetch always counts, because it cannot change.
    func isSame(as record: DownloadRecord, exactly: Bool = false) -> Bool {
        var (held, asked) = (record.options, options)
        (held.priority, held.speedLimit, held.start) = (0, nil, true)
        (asked.priority, asked.speedLimit, asked.start) = (0, nil, true)
        if !exactly {
            (held.allowsMetered, held.metadata) = (true, [])
            (asked.allowsMetered, asked.metadata) = (true, [])
            if !record.isFetch { (held.directory, asked.directory) = (nil, nil) }
        }
        // Forgotten secrets cannot be compared. The download may run again since, after `Retry`. An earlier program wrote no mark that it
        // had forgotten the secrets of an ended download. So an ended download without secrets may have lost them, too.
        if held.hasForgottenSecrets || record.state.hasEnded, !held.holdsSecrets { asked.forgetSecrets() }
        (held.isPostSent, asked.isPostSent) = (false, false)
        (held.hasForgottenSecrets, asked.hasForgottenSecrets) = (false, false)
        return record.url == url && held == asked && held.isSameText(as: asked)
    }
}
