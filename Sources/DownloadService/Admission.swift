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

    @BusActor private final class Request {
        let url: DownloadURL
        var options: DownloadOptions
        let directory: String
        let reply: Reply<ObjectPath>
        let deadline: ContinuousClock.Instant
        /// The folder, without superfluous slashes and dots.
        var verdict: Result<String, Refusal>?

        init(url: DownloadURL, options: DownloadOptions, directory: String, reply: Reply<ObjectPath>) {
            (self.url, self.options, self.directory, self.reply) = (url, options, directory, reply)
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

    /// Takes in one call of `Download`.
    ///
    /// - Throws: what is wrong with the URL or the options; the folder's faults are answered later.
    func admit(url text: String, options dictionary: [String: Variant], _ reply: Reply<ObjectPath>) throws(Refusal) {
        let url = try DownloadURL(text)
        var options = try DownloadOptions(decoding: dictionary, from: reply.call.caller, defaultDirectory: downloader.defaultDirectory)
        if options.username == nil, let username = url.username {
            options.username = username
            if options.password == nil { options.password = url.password }
        }
        let waiting = requests.count - head
        guard Int(downloader.counts.remaining) + waiting < Limits.downloadsNotEnded else {
            throw Refusal(.limitExceeded, "At most \(Limits.downloadsNotEnded) downloads may be queued at a time.")
        }
        let directory = options.directory ?? downloader.defaultDirectory
        let request = Request(url: url, options: options, directory: directory, reply: reply)
        requests.append(request)
        look(at: directory, isDefault: options.directory == nil, for: request)
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
            switch verdict {
            case .success(let directory): take(request, into: directory)
            case .failure(let refusal): request.reply.fail(refusal)
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
                requests[head].verdict = .failure(Refusal(.permissionDenied, "The folder \(folder) did not answer within 5 seconds."))
                drain()
            }
            armTimer()
        }
    }

    private func take(_ request: Request, into directory: String) {
        if request.options.directory != nil { request.options.directory = directory }
        var options = request.options
        if let token = options.token, let held = downloader.download(at: BusName.path(app: options.app, token: token).value) {
            if Self.isSame(held.record, request) {
                return downloader.journal.answer(request.reply, held.path)
            }
            return request.reply.fail(
                Refusal(.alreadyExists, "The token \(token) of \(options.app) names another request already; take a new token."))
        }
        let number = downloader.journal.nextNumber
        downloader.journal.nextNumber = DownloadNumber(number.value + 1)
        let paused = !options.start
        options.start = true  // said once; from here on the state says it
        var record = DownloadRecord(
            number: number, url: request.url.text, options: options, directory: directory, state: .paused, queuedAt: .now,
            position: DownloadQueue.position(of: number))
        if !paused { record.state = record.obstacle(now: .now, paused: downloader.settings.paused) }
        downloader.add(record, reply: request.reply)
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
