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

    /// What one download is to be.
    struct Wanted {
        let url: String
        var options: DownloadOptions

        init(url text: String, options: DownloadOptions) throws(Refusal) {
            let url = try DownloadURL(text)
            (self.url, self.options) = (url.text, options)
            if options.username == nil, let username = url.username {
                self.options.username = username
                if options.password == nil { self.options.password = url.password }
            }
        }
    }

    /// A call, until all its folders have been looked at.
    @BusActor private final class Request {
        /// How many downloads it is about.
        let count: Int
        let deadline: ContinuousClock.Instant
        private var missing: Set<String>
        private var verdicts: [String: Result<String, Refusal>] = [:]
        /// Goes on with the folders, without superfluous slashes and dots, or with what is wrong with them.
        private let then: ([String: Result<String, Refusal>]) -> Void

        init(count: Int, folders: Set<String>, then: @escaping ([String: Result<String, Refusal>]) -> Void) {
            (self.count, missing, self.then) = (count, folders, then)
            deadline = .now + Admission.patience
        }

        var isSettled: Bool { missing.isEmpty }

        func saw(_ folder: String, _ verdict: Result<String, Refusal>) {
            if missing.remove(folder) != nil { verdicts[folder] = verdict }
        }

        /// Waits no longer: folders that have not answered are refused.
        func giveUp() {
            for folder in missing {
                saw(folder, .failure(Refusal(.permissionDenied, "The folder \(folder) did not answer within 5 seconds.")))
            }
        }

        func proceed() { then(verdicts) }
    }

    unowned let downloader: Downloader  // the centre owns its door
    private var requests: [Request] = []
    private var head = 0
    /// How many downloads the requests are about.
    private var waiting = 0
    /// Requests by folder, while a look at that folder is under way: those that came before it began, and after.
    private var looking: [String: (asked: [Request], gathered: [Request])] = [:]
    private var timer: Poller.Token?

    init(_ downloader: Downloader) { self.downloader = downloader }

    var isBusy: Bool { head < requests.count }

    /// Takes in one call of `Download`.
    ///
    /// - Throws: what is wrong with the URL or the options; the folder's faults are answered later.
    func admit(url: String, options dictionary: [String: Variant], _ reply: Reply<ObjectPath>) throws(Refusal) {
        let wanted = try Wanted(
            url: url,
            options: DownloadOptions(decoding: dictionary, from: reply.call.caller, defaultDirectory: downloader.defaultDirectory))
        let folder = wanted.options.directory ?? downloader.defaultDirectory
        try lookAt([folder: wanted.options.directory == nil], count: 1) { [self] verdicts in
            guard let verdict = verdicts[folder] else { return }
            switch verdict {
            case .success(let directory): take(wanted, into: directory, reply)
            case .failure(let refusal): reply.fail(refusal)
            }
        }
    }

    /// Has `folders` looked at, those that are true made where they are not there, and then goes on: in the order of the calls.
    func lookAt(
        _ folders: [String: Bool], count: Int, then: @escaping ([String: Result<String, Refusal>]) -> Void
    ) throws(Refusal) {
        guard Int(downloader.counts.remaining) + waiting + count <= Limits.downloadsNotEnded else {
            throw Refusal(.limitExceeded, "At most \(Limits.downloadsNotEnded) downloads may be queued at a time.")
        }
        let request = Request(count: count, folders: Set(folders.keys), then: then)
        requests.append(request)
        waiting += count
        for (folder, isDefault) in folders { look(at: folder, isDefault: isDefault, for: request) }
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
            for request in asked { request.saw(directory, result) }
            if !gathered.isEmpty {
                looking[directory] = (gathered, [])
                check(directory, create: create)
            }
            drain()
        }
    }

    /// Takes in what is settled, up to the first that is not.
    private func drain() {
        while head < requests.count, requests[head].isSettled {
            let request = requests[head]
            head += 1
            waiting -= request.count
            request.proceed()
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
            while head < requests.count, requests[head].deadline <= .now {
                requests[head].giveUp()
                drain()
            }
            armTimer()
        }
    }

    private func take(_ wanted: Wanted, into directory: String, _ reply: Reply<ObjectPath>) {
        let wanted = wanted.into(directory)
        if let token = wanted.options.token, let held = holder(of: wanted) {
            if wanted.isSame(as: held.record) { return downloader.journal.answer(reply, held.path) }
            return reply.fail(
                Refusal(.alreadyExists, "The token \(token) of \(wanted.options.app) names another request already; take a new token."))
        }
        let record = makeRecord(wanted, directory, number: takeNumbers(1), now: .now)
        downloader.add(record, reply: reply)
    }

    /// The download that the token of `wanted` names already.
    func holder(of wanted: Wanted) -> ManagedDownload? {
        guard let token = wanted.options.token, !downloader.tokens.isEmpty else { return nil }
        return downloader.download(at: BusName.path(app: wanted.options.app, token: token).value)
    }

    /// The first of `count` numbers that nothing else will have.
    func takeNumbers(_ count: UInt64) -> DownloadNumber {
        let number = downloader.journal.nextNumber
        downloader.journal.nextNumber = DownloadNumber(number.value + count)
        return number
    }

    func makeRecord(_ wanted: Wanted, _ directory: String, number: DownloadNumber, now: WallTime) -> DownloadRecord {
        var options = wanted.options
        let paused = !options.start
        options.start = true  // said once; from here on the state says it
        var record = DownloadRecord(
            number: number, url: wanted.url, options: options, directory: directory, state: .paused, queuedAt: now,
            position: DownloadQueue.position(of: number))
        if !paused { record.state = record.obstacle(now: now, paused: downloader.settings.paused) }
        return record
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

extension Admission.Wanted {
    /// The same, the folder without superfluous slashes and dots.
    func into(_ directory: String) -> Self {
        var wanted = self
        if options.directory != nil { wanted.options.directory = directory }
        return wanted
    }

    /// Whether a repeated call asks for what `record` is; what can be changed later (`priority`, `speed-limit`, `start`) is not compared.
    func isSame(as record: DownloadRecord) -> Bool {
        var (held, asked) = (record.options, options)
        (held.priority, held.speedLimit, held.start) = (0, nil, true)
        (asked.priority, asked.speedLimit, asked.start) = (0, nil, true)
        return record.url == url && held == asked
    }
}
