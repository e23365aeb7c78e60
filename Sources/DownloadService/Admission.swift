internal import DBus
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop
internal import TransferEngine

/// The door for new downloads: a request is read and checked at once, its folder is looked at in the pool, and requests are taken in
/// in the order of their calls. A folder that does not answer (a dead network mount) holds the door for `patience` at most.
@BusActor final class Admission {
    private static let patience: Duration = .seconds(5)

    /// Whom a request is answered to, and when.
    enum Answer {
        /// With the object path, when the download is on disk.
        case path(Reply<ObjectPath>)
        /// When it has ended.
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

    @BusActor private final class Request {
        let url: DownloadURL
        var options: DownloadOptions
        /// Empty: into `descriptor`.
        let directory: String
        let descriptor: HeldDescriptor?
        let answer: Answer
        let deadline: ContinuousClock.Instant
        /// The folder, without superfluous slashes and dots.
        var verdict: Result<String, Refusal>?

        init(url: DownloadURL, options: DownloadOptions, directory: String, descriptor: HeldDescriptor?, answer: Answer) {
            (self.url, self.options, self.directory, self.descriptor, self.answer) = (url, options, directory, descriptor, answer)
            deadline = .now + Admission.patience
        }
    }

    unowned let downloader: Downloader  // the centre owns its door
    private var requests: [Request] = []
    private var head = 0
    /// Requests by folder, while a look at that folder is under way: those that came before it began, and after.
    private var looking: [String: (asked: [Request], gathered: [Request])] = [:]
    private var timer: Poller.Token?

    init(_ downloader: Downloader) { self.downloader = downloader }

    var isBusy: Bool { head < requests.count }

    /// Takes in one call of `Download`, `Fetch` or `DownloadToFd`.
    ///
    /// - Parameter descriptor: what is to be written into, instead of a file in a folder.
    /// - Throws: what is wrong with the URL or the options; the faults of folder and descriptor are answered later.
    func admit(
        url text: String, options dictionary: [String: Variant], into descriptor: HeldDescriptor? = nil, _ answer: Answer
    ) throws(Refusal) {
        let url = try DownloadURL(text)
        let call = answer.call
        if descriptor != nil { try Self.checkKeys(dictionary) }
        var options = try DownloadOptions(decoding: dictionary, from: call.caller, defaultDirectory: downloader.defaultDirectory)
        if case .fetch = answer, dictionary[OptionKey.onlyIfChanged.rawValue] == nil { options.onlyIfChanged = true }
        if options.username == nil, let username = url.username {
            options.username = username
            if options.password == nil { options.password = url.password }
        }
        let waiting = requests.count - head
        guard Int(downloader.counts.remaining) + waiting < Limits.downloadsNotEnded else {
            throw Refusal(.limitExceeded, "At most \(Limits.downloadsNotEnded) downloads may be queued at a time.")
        }
        let directory = descriptor == nil ? options.directory ?? downloader.defaultDirectory : ""
        if case .fetch = answer { try downloader.callers.arrives(call.sender) }
        if descriptor != nil { try downloader.descriptors.reserve(for: Descriptors.holder(of: call)) }
        let request = Request(url: url, options: options, directory: directory, descriptor: descriptor, answer: answer)
        requests.append(request)
        if let descriptor {
            look(at: descriptor, for: request)
        } else {
            look(at: directory, isDefault: options.directory == nil, for: request)
        }
    }

    /// - Throws: `InvalidOption` for what says where a file is to be put.
    private static func checkKeys(_ dictionary: [String: Variant]) throws(Refusal) {
        for key in [OptionKey.directory, .filename, .ifExists, .onlyIfChanged] where dictionary[key.rawValue] != nil {
            throw Refusal(.invalidOption, "Option \(key.rawValue) is not for DownloadToFd, which writes into the caller’s own file.")
        }
    }

    private func look(at descriptor: HeldDescriptor, for request: Request) {
        let reading = request.options.checksum != nil
        Pool.shared.perform {
            descriptor.obstacle(reading: reading)
        } then: { [self] obstacle in
            if request.verdict == nil { request.verdict = obstacle.map { .failure($0) } ?? .success("") }
            drain()
        }
        armTimer()
    }

    private func look(at directory: String, isDefault: Bool, for request: Request) {
        if looking[directory] != nil {
            looking[directory]?.gathered.append(request)
            return
        }
        looking[directory] = ([request], [])
        check(directory, create: isDefault)
        armTimer()
    }

    private func check(_ directory: String, create: Bool) {
        let allowHidden = downloader.allowsHiddenFolders
        Pool.shared.perform {
            Destination.check(directory, allowHidden: allowHidden, create: create)
        } then: { [self] result in
            guard let (asked, gathered) = looking.removeValue(forKey: directory) else { return }
            for request in asked where request.verdict == nil { request.verdict = result }
            if !gathered.isEmpty {
                looking[directory] = (gathered, [])
                check(directory, create: create)
            }
            drain()
        }
    }

    /// Takes in what has a verdict, up to the first that has none.
    private func drain() {
        while head < requests.count, let verdict = requests[head].verdict {
            let request = requests[head]
            head += 1
            if case .fetch(let reply) = request.answer { downloader.callers.arrived(reply.call.sender) }
            switch verdict {
            case .success(let directory): if !take(request, into: directory) { releaseDescriptor(of: request) }
            case .failure(let refusal):
                releaseDescriptor(of: request)
                request.answer.fail(refusal)
            }
        }
        if head == requests.count || head > 1024 {
            requests.removeFirst(head)
            head = 0
        }
        armTimer()
        downloader.residenceChanged?()
    }

    private func armTimer() {
        guard timer == nil, head < requests.count else { return }
        timer = Poller.shared.schedule(at: requests[head].deadline) { [self] in
            timer = nil
            while head < requests.count, requests[head].verdict == nil, requests[head].deadline <= .now {
                let folder = requests[head].directory
                let what = folder.isEmpty ? "The descriptor’s file system" : "The folder \(folder)"
                requests[head].verdict = .failure(Refusal(.permissionDenied, "\(what) did not answer within 5 seconds."))
                drain()
            }
            armTimer()
        }
    }

    private func releaseDescriptor(of request: Request) {
        if request.descriptor != nil { downloader.descriptors.release(for: Descriptors.holder(of: request.answer.call)) }
    }

    /// Adds a download, or answers `request` by one that is there, or with an error: false.
    private func take(_ request: Request, into directory: String) -> Bool {
        if request.options.directory != nil { request.options.directory = directory }
        var options = request.options
        if let token = options.token, let held = downloader.download(at: BusName.path(app: options.app, token: token).value) {
            guard Self.isSame(held.record, request), isSameFile(held, request) else {
                request.answer.fail(
                    Refusal(.alreadyExists, "The token \(token) of \(options.app) names another request already; take a new token."))
                return false
            }
            answer(request, by: held)
            return false
        }
        var isFetch = false
        if case .fetch = request.answer {
            isFetch = true
            let key = CopyKey(app: options.app, url: request.url.text, directory: directory, wantedName: options.fileName)
            if let running = downloader.runningFetch(of: key, like: { Self.isSame($0, request) }) {
                answer(request, by: running)
                return false
            }
        }
        let number = downloader.journal.nextNumber
        downloader.journal.nextNumber = DownloadNumber(number.value + 1)
        let paused = !options.start
        options.start = true  // said once; from here on the state says it
        var record = DownloadRecord(
            number: number, url: request.url.text, options: options, directory: directory, state: .paused, queuedAt: .now,
            position: DownloadQueue.position(of: number))
        (record.isFetch, record.isToDescriptor) = (isFetch, request.descriptor != nil)
        if !paused { record.state = record.obstacle(now: .now, paused: downloader.settings.paused) }
        downloader.add(record, answer: request.answer)
        if let descriptor = request.descriptor {
            downloader.descriptors.hold(descriptor, for: number, holder: Descriptors.holder(of: request.answer.call))
        }
        return true
    }

    private func answer(_ request: Request, by download: ManagedDownload) {
        switch request.answer {
        case .path(let reply): downloader.journal.answer(reply, download.path)
        case .fetch(let reply): downloader.answerFetch(reply, by: download)
        }
    }

    /// Whether a repeated call is about the descriptor of the file that `download` writes, or wrote, into; or neither has one.
    private func isSameFile(_ download: ManagedDownload, _ request: Request) -> Bool {
        guard let descriptor = request.descriptor else { return !download.record.isToDescriptor }
        guard download.record.isToDescriptor, let asked = descriptor.identity,
            let held = downloader.descriptors[download.number]?.identity ?? download.record.resume?.identity
        else { return false }
        return held == asked
    }

    /// Whether a repeated call asks for what `record` is; what can be changed later (`priority`, `speed-limit`, `start`) is not compared.
    private static func isSame(_ record: DownloadRecord, _ request: Request) -> Bool {
        var (held, asked) = (record.options, request.options)
        (held.priority, held.speedLimit, held.start) = (0, nil, true)
        (asked.priority, asked.speedLimit, asked.start) = (0, nil, true)
        return record.url == request.url.text && held == asked
    }

    /// Sets the property `DefaultDirectory`; the empty string goes back to the XDG download folder.
    func setDefaultDirectory(_ directory: String, _ reply: Reply<Void>) throws(Refusal) {
        guard directory.isEmpty || directory.hasPrefix("/") else {
            throw Refusal(.invalidOption, "DefaultDirectory must be an absolute path, not “\(shown(directory))”.")
        }
        guard !directory.isEmpty else {
            downloader.set { $0.defaultDirectory = "" }
            return downloader.answerChange(reply)
        }
        let allowHidden = downloader.allowsHiddenFolders
        Pool.shared.perform {
            Destination.check(directory, allowHidden: allowHidden, create: false)
        } then: { [self] result in
            switch result {
            case .failure(let refusal): reply.fail(refusal)
            case .success(let directory):
                downloader.set { $0.defaultDirectory = directory }
                downloader.answerChange(reply)
            }
        }
    }
}
