internal import CSystem
public import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles
internal import Synchronization
internal import Transport

/// Fetches bodies into part files with libcurl, on its own thread, which starts with the first command.
///
/// Commands return at once, and are carried out in order. `report` is called on the bus loop for all events, in order. Every started
/// transfer ends with one `.ended`. Nothing wakes the thread while no transfer runs.
public actor Engine {
    /// The interval between two checks of progress.
    static let tick: Duration = .milliseconds(100)
    static let hopLimit = 20
    /// A transfer that receives nothing for this long is reported as stalled.
    public static let silence: Duration = .seconds(10)

    private nonisolated let thread = EngineThread()
    public nonisolated var unownedExecutor: UnownedSerialExecutor { thread.loop.asUnownedSerialExecutor() }

    nonisolated let configuration: EngineConfiguration
    private nonisolated let report: @BusActor @Sendable (TransferEvent) -> Void
    /// fdatasync(2): 0 or errno.
    private nonisolated let flush: @Sendable (_ descriptor: Int32) -> Int32
    /// The speed limit of all transfers, including those of other engines.
    private nonisolated let totalLimit: TotalLimit
    /// The automatic connections of all engines.
    nonisolated let trials: SharedTrials
    /// Whether a progress snapshot is on its way to the bus loop. The next one waits for its arrival.
    private nonisolated let isProgressUnderWay = Atomic<Bool>(false)
    /// Whether to drop the connections that libcurl keeps before the next request.
    private nonisolated let isMultiStale = Atomic<Bool>(false)

    /// Whether bytes cost money, so that no transfer adds connections by itself.
    nonisolated let isMetered = Atomic<Bool>(false)

    private var multi: MultiHandle?
    var staging: StagingBuffer?
    var transfers: [DownloadNumber: Transfer] = [:]
    /// Transfers started again before the end of their predecessor. A stopped transfer stays here, because its end must still be reported.
    private var heldBack: [DownloadNumber: (request: TransferRequest, isStopped: Bool)] = [:]
    /// How often the desktop has been asked for a proxy, or the resolver for a name.
    var lookups: UInt64 = 0
    /// The number of look-ups of names that are in flight.
    var namesAsked = 0
    /// The checks of pieces so far.
    var checks: UInt64 = 0
    /// When the disk last answered a check of pieces, and a flush.
    let checkAnswers = DiskAnswers()
    private let flushAnswers = DiskAnswers()
    private var lastTick = SuspendingClock.now
    /// The transfers of all engines that were fetching at the last tick.
    var fetched: Set<DownloadNumber> = []
    private let pace = SharedPace()
    private var shutDownDone: (@BusActor @Sendable () -> Void)?

    public init(configuration: EngineConfiguration, report: @escaping @BusActor @Sendable (TransferEvent) -> Void) {
        self.init(configuration: configuration, limit: TotalLimit(), report: report)
    }

    init(
        configuration: EngineConfiguration, limit: TotalLimit, trials: SharedTrials = SharedTrials(),
        report: @escaping @BusActor @Sendable (TransferEvent) -> Void
    ) {
        self.init(configuration: configuration, limit: limit, trials: trials, flush: { fdatasync($0) == 0 ? 0 : errno }, report: report)
    }

    /// - Parameter flush: replaced by tests, to simulate a failing disk.
    init(
        configuration: EngineConfiguration, limit: TotalLimit = TotalLimit(), trials: SharedTrials = SharedTrials(),
        flush: @escaping @Sendable (_ descriptor: Int32) -> Int32, report: @escaping @BusActor @Sendable (TransferEvent) -> Void
    ) {
        self.configuration = configuration
        (totalLimit, self.trials) = (limit, trials)
        self.report = report
        self.flush = flush
    }

    // MARK: Commands, from any thread

    /// Starts a transfer, after the end of an earlier transfer with the same number.
    public nonisolated func start(_ request: TransferRequest) { command { $0.begin(request) } }

    /// Ends a transfer with the bytes it has on disk. Has no effect on an ended transfer.
    public nonisolated func stop(_ number: DownloadNumber) { command { $0.halt(number) } }

    /// Permits the request of the question `question` (`.asks`). Has no effect if the transfer has asked another one since. `tellsSent`:
    /// whether to report `.sent`. `mustShare`: as `TransferRequest.mustShare`.
    public nonisolated func permit(_ id: RequestID, question: UInt64, tellsSent: Bool, mustShare: Bool = false) {
        command { $0.goOn(id, question, tellsSent: tellsSent, mustShare: mustShare) }
    }

    /// Ends a further request of a transfer, because another download needs its place at the host. The transfer continues, and reports
    /// `over`. Has no effect on the only request of a transfer.
    public nonisolated func withdraw(_ id: RequestID) { command { $0.takeBack(id) } }

    /// Sets the limit of a transfer in bytes per second; nil: no limit.
    public nonisolated func setSpeedLimit(_ number: DownloadNumber, _ limit: Speed?) { command { $0.limit(number, limit) } }

    /// Sets the limit of all transfers together, shared fairly, in bytes per second; nil: no limit. Does not start the thread.
    public nonisolated func setTotalSpeedLimit(_ limit: Speed?) {
        totalLimit.set(limit ?? 0)  // read at every tick
    }

    /// From now on, bytes cost money (true) or not. If they do, transfers with automatic `connections` use one connection, because ending
    /// a connection loses bytes in flight. Does not start the thread.
    public nonisolated func setMetered(_ isMetered: Bool) {
        self.isMetered.store(isMetered, ordering: .relaxed)  // read at every tick
    }

    /// Makes the next transfer open new connections, because kept connections are dead after a sleep, and nothing reports that. Does not
    /// start the thread.
    public nonisolated func forgetConnections() { isMultiStale.store(true, ordering: .relaxed) }

    /// Whether the kernel has a route out of this machine. Sends nothing, and does not block.
    public static nonisolated func hasRoute() -> Bool { todoku_has_route() }

    /// Stops every transfer, reports their ends, calls `done`, and ends the thread. The engine does nothing afterwards.
    public nonisolated func shutDown(_ done: @escaping @BusActor @Sendable () -> Void) { command { $0.close(done) } }

    /// Deletes the part file of an ended transfer, whose download has another folder now. Then calls `done`. A transfer that starts later
    /// comes after this.
    nonisolated func discardPart(of request: TransferRequest, _ done: @escaping @BusActor @Sendable () -> Void) {
        command { _ in
            Commit.discard(directory: request.directory, partName: request.partName, mapPath: nil)
            BusActor.spawn(done)
        }
    }

    /// Writes the map of a part file anew, because the transfer of the same download in a former folder may have changed it.
    nonisolated func renewMap(of number: DownloadNumber) { command { $0.transfers[number]?.part?.renewMap() } }

    nonisolated func command(_ body: @escaping @Sendable (isolated Engine) -> Void) {
        thread.start { [self] block in assumeIsolated { $0.turn(block) } }
        Task(executorPreference: thread.loop) { await self.carryOut(body) }
    }

    private func carryOut(_ body: @Sendable (isolated Engine) -> Void) {
        thread.setBusy()
        forgiveSilence(.now)  // after a pause of the machine, a command may come before the next tick
        body(self)
    }

    // MARK: The disk of the engine

    /// How long the current step has kept the thread: usually a call on its disk.
    nonisolated var busy: Duration { thread.busy }

    /// Reports the transfers that have ended, except for a flush, or a check of pieces, whose disk has been silent for longer than
    /// `patience`.
    nonisolated func findLateDisks(longerThan patience: Duration, _ told: @escaping @BusActor @Sendable ([DownloadNumber]) -> Void) {
        command { engine in
            let now = SuspendingClock.now
            let late = engine.transfers.values.filter { $0.endWaitsForDisk(longerThan: patience, now) }
            guard !late.isEmpty else { return }
            let numbers = late.map(\.request.number)
            BusActor.spawn { told(numbers) }
        }
    }

    // MARK: The loop

    private func turn(_ block: Bool) {
        thread.setBusy()
        multi?.perform { exchange, error in exchangeEnded(exchange, error) }
        staging?.flush()
        let now = SuspendingClock.now
        if now - lastTick >= Self.tick {
            look(now)
            lastTick = now
        }
        reportEvents()
        guard block else { return }
        let left = max(.milliseconds(1), Self.tick - (SuspendingClock.now - lastTick))
        thread.wait(multi.flatMap { isFetching || hasUnsaved ? ($0, left) : nil })
    }

    /// Counts no server as silent yet if a disk has blocked this thread, or the machine has paused: the thread could not hear any server
    /// then. Call before a silence is judged.
    private func forgiveSilence(_ now: SuspendingClock.Instant) {
        guard now - lastTick > .seconds(2) else { return }
        for transfer in transfers.values {
            for segment in transfer.segments where segment.exchange != nil { segment.heard(now) }
        }
    }

    /// Runs ten times a second during transfers: progress, stalls, checkpoints, limits.
    private func look(_ now: SuspendingClock.Instant) {
        let seconds = min((now - lastTick) / .seconds(1), 1)
        let fetching = transfers.values.filter(\.isFetching)
        let segments = fetching.flatMap { $0.segments.filter { $0.exchange != nil } }
        forgiveSilence(now)
        pace.deal(totalLimit, as: ObjectIdentifier(self), seconds: seconds, to: segments.map(\.pace))
        var snapshot: [TransferProgress] = []
        let mayReport = !isProgressUnderWay.load(ordering: .acquiring)
        measureConnections(of: fetching, seconds)
        for transfer in fetching {
            let received = transfer.received
            transfer.meter.add(received -| transfer.receivedAtTick, seconds: seconds)
            transfer.receivedAtTick = received
            if transfer.hasMirrors { for source in transfer.sources { source.measure(seconds: seconds) } }
            for segment in transfer.segments { segment.measure(seconds: seconds) }
            var progress = TransferProgress(
                number: transfer.request.number, received: received, speed: transfer.meter.bytesPerSecond,
                connections: UInt32(clamping: transfer.segments.count { $0.exchange != nil }))
            if transfer.hasMirrors { progress.sources = transfer.sources.map { SourceProgress($0.record, speed: $0.speed) } }
            if mayReport, transfer.facts != nil, transfer.reported != progress {
                transfer.reported = progress
                snapshot.append(progress)
            }
            if transfer.isCheckpointDue(now: now) { sync(transfer) }
            checkPieces(of: transfer)
        }
        for segment in segments { look(at: segment, now) }
        for transfer in fetching where transfer.isFetching {
            for segment in transfer.segments { checkSilence(segment, now) }
            grow(transfer, now)
            // Rotate the segments, so that each connection in turn is the first to use the allowance of a limit.
            if transfer.hasSeveral { transfer.segments.append(transfer.segments.removeFirst()) }
        }
        saveWaiting(now)
        reportEvents()
        if !snapshot.isEmpty { send(snapshot) }
    }

    private func look(at segment: Segment, _ now: SuspendingClock.Instant) {
        guard segment.exchange != nil else { return }
        segment.watchUpload()
        segment.attempt?.decoder?.beginTick()
        let isHolding = segment.pace.isHolding
        if segment.pace.release() { resume(segment) }
        if let attempt = segment.attempt, attempt.drags(now) { return leaveBody(of: segment, attempt) }
        segment.listen(now, isHolding: isHolding)
        checkStall(segment, now, isHolding: isHolding)
    }

    private func send(_ snapshot: [TransferProgress]) {
        isProgressUnderWay.store(true, ordering: .relaxed)
        BusActor.spawn { [self] in
            report(.progress(snapshot))
            isProgressUnderWay.store(false, ordering: .releasing)
        }
    }

    private func checkSilence(_ segment: Segment, _ now: SuspendingClock.Instant) {
        let isStalled = now - segment.lastHeard >= Self.silence
        guard segment.exchange != nil, isStalled != segment.isStalled else { return }
        segment.isStalled = isStalled
        segment.transfer.events.append(.stalled(segment.id, isStalled))
    }

    private func checkStall(_ segment: Segment, _ now: SuspendingClock.Instant, isHolding: Bool) {
        let (transfer, timeout) = (segment.transfer, segment.transfer.request.stallTimeout)
        guard let exchange = segment.exchange, segment.liveness.isStalled(now, timeout: timeout, isHolding: isHolding) else { return }
        // A failure that the head of a response has shown takes precedence over the missing end of the body.
        if let attempt = segment.attempt, attempt.isRefusal() { return leaveBody(of: segment, attempt) }
        if let status = exchange.proxyRefusal {
            return fail(segment, FailureMapping.refusedByProxy(status, host: segment.url.host))
        }
        let failure = FailureMapping.timeout(
            host: segment.url.host, after: timeout, madeProgress: transfer.facts != nil, trickle: segment.liveness.bytes)
        fail(segment, failure)
    }

    func reportEvents() {
        for transfer in transfers.values where !transfer.events.isEmpty { reportEvents(of: transfer) }
    }

    func reportEvents(of transfer: Transfer) {
        for event in transfer.events { BusActor.spawn { [self] in report(event) } }
        transfer.events.removeAll()
    }

    // MARK: Limits

    /// Resumes an exchange that a limit had paused.
    private func resume(_ segment: Segment) {
        guard let exchange = segment.exchange, let error = exchange.resume() else { return }
        exchangeEnded(exchange, error)
    }

    private func limit(_ number: DownloadNumber, _ limit: Speed?) {
        heldBack[number]?.request.speedLimit = limit
        guard let transfer = transfers[number] else { return }
        transfer.setLimit(limit ?? 0)
        for segment in transfer.segments where segment.pace.release() { resume(segment) }
    }

    // MARK: The course of a transfer

    private func begin(_ request: TransferRequest) {
        let number = request.number
        guard shutDownDone == nil else { return tell(.ended(number, .stopped(request.resume))) }
        if transfers[number] != nil {
            heldBack[number] = (request, false)
            return
        }
        if !isFetching {
            let now = SuspendingClock.now
            pace.wake(totalLimit.part(for: ObjectIdentifier(self), demands: []), idle: (now - lastTick) / .seconds(1))
            lastTick = now
            if isMultiStale.exchange(false, ordering: .relaxed) { multi = nil }
        }
        let staging = staging ?? StagingBuffer { [thread] in thread.setBusy() }
        self.staging = staging
        let transfer = Transfer(request, boot: bootIdentity(), staging: staging, pace: pace)
        transfers[number] = transfer
        CrashMarks.transferBegan(number.value)
        if let end = CrashMarks.working(on: number.value, { transfer.prepare() }) { return finish(transfer, end) }
        for segment in transfer.segments { if transfer.turnToHolder(segment) { ask(segment, isAnswered: false) } else { fetch(segment) } }
    }

    /// Makes the request of the current hop.
    ///
    /// - Parameter isFresh: whether kept connections must not be used.
    func fetch(_ segment: Segment, isFresh: Bool = false) {
        guard !segment.isNamedAway else { return fail(segment, segment.keptAway, by: nil) }
        if let choice = segment.transfer.request.proxy ?? configuration.proxies.choice(for: segment.url) {
            return connect(segment, choice, isFresh: isFresh)
        }
        guard let resolve = configuration.desktopProxy, !isLoopbackAddress(segment.url.host) else {
            return connect(segment, .direct, isFresh: isFresh)
        }
        lookups += 1
        segment.lookup = lookups
        let (number, lookup, url) = (segment.id.download, lookups, segment.url)
        BusActor.spawn { [self] in
            let choice = await resolve(url)
            command { $0.resolved(number, lookup, choice, isFresh: isFresh) }
        }
    }

    /// The desktop has named the proxy. Meanwhile the transfer may have ended, and a later transfer may have the same number.
    private func resolved(_ number: DownloadNumber, _ lookup: UInt64, _ choice: ProxyChoice, isFresh: Bool) {
        guard let transfer = transfers[number], transfer.conclusion == nil,
            let segment = transfer.segments.first(where: { $0.lookup == lookup })
        else { return }
        segment.lookup = nil
        connect(segment, choice, isFresh: isFresh)
    }

    private func connect(_ segment: Segment, _ choice: ProxyChoice, isFresh: Bool) {
        switch choice {
        case .direct: connect(segment, through: nil, isFresh: isFresh)
        case .through(let proxy): connect(segment, through: proxy, isFresh: isFresh)
        case .unknown(let reason):
            let host = segment.url.host
            let text = "Nothing was sent to \(host), because the desktop’s proxy for it is not known: \(reason)."
            fail(segment, DownloadFailure(.network, text, host: host, isRetryable: true, wait: .retry), by: nil)
        }
    }

    private func connect(_ segment: Segment, through proxy: String?, isFresh: Bool) {
        let request = segment.transfer.request
        guard segment.aim() else { return drop(segment) }
        segment.writtenBefore = segment.transfer.part?.written ?? 0
        let attempt = Attempt(segment, isProxied: proxy != nil)
        var options = ExchangeOptions(
            url: segment.url.text, userAgent: request.userAgent ?? configuration.userAgent,
            connectTimeoutMilliseconds: max(1, Int(clamping: request.stallTimeout.wholeMilliseconds)))
        (options.headerLines, options.cookieField) = (segment.headerLines, segment.cookieField)
        options.ownsConnection = segment.sharing == .impossible
        (options.isFresh, options.mustShare) = (isFresh, segment.mustShare)
        segment.addBody(to: &options)
        if segment.isFirstOrigin {
            (options.username, options.password) = (request.username, request.password)
            options.referrer = request.referrer.flatMap { Referrer.sent($0, to: segment.url) }
        }
        options.proxy = proxy ?? ""
        (options.certificateFile, options.certificateFolder) = (configuration.certificateFile, configuration.certificateFolder)
        segment.heard(.now)
        do throws(CurlError) {
            let multi = if let multi { multi } else { try MultiHandle() }
            self.multi = multi
            options.jar = try segment.transfer.cookies()
            segment.exchange = try Exchange(options, sink: attempt, multi: multi)
        } catch {
            fail(segment, DownloadFailure(.network, "libcurl cannot be used: \(error.text)."), by: nil)
        }
    }

    func exchangeEnded(_ exchange: Exchange, _ error: CurlError?) {
        guard let attempt = exchange.sink as? Attempt,
            transfers.values.contains(where: { $0.segments.contains { $0.exchange === exchange } })
        else { return }
        forgiveSilence(.now)  // the disk may have blocked the same call of libcurl, which writes the bytes of all exchanges
        let segment = attempt.segment
        CrashMarks.working(on: segment.id.download.value) { conclude(attempt, segment, exchange, error) }
    }

    private func conclude(_ attempt: Attempt, _ segment: Segment, _ exchange: Exchange, _ error: CurlError?) {
        let transfer = segment.transfer
        func endTransfer(_ conclusion: Transfer.Conclusion) { conclude(transfer, conclusion, by: segment.id) }
        if exchange.isUnshared {
            segment.endExchange()
            return ask(segment, isAnswered: false, segment.sharing == .possible ? .failed : segment.sharing)
        }
        // libcurl accepts a head that ends with its connection.
        let error =
            attempt.isHeadless
            ? CurlError(.malformedAnswer, "the header of the response does not end")
            : error ?? (attempt.head.isComplete ? nil : CurlError(.nothingReceived, "no whole head"))
        if error == nil { attempt.decide() }
        if error == nil, attempt.head.isAlone { exchange.lookBehindHead() }
        let closes = attempt.head.endsConnection || exchange.hasHTTPProxy && attempt.head.endsProxyConnection
        if exchange.needsNewConnection(error, heardAnswer: attempt.verdict != .undecided, closes: closes) {
            staging?.flush()
            if error == nil, attempt.verdict == .body {
                segment.forgetBody()
                distrust(transfer, keeping: segment)
            }
            segment.endExchange()
            guard exchange.hasAsked else { return fetch(segment, isFresh: true) }
            // A request has gone out already, so its repetition is another request, which needs a permit.
            segment.needsFreshConnection = true
            return ask(segment)
        }
        if let failure = transfer.diskFailure, attempt.verdict == .body { return endTransfer(.failed(failure)) }
        switch attempt.verdict {
        // Bytes of the body were refused, so another source must bring the whole file.
        case .failed(let failure) where attempt.hasBody: failWhole(segment, failure)
        case .failed(let failure): fail(segment, failure)
        case .declined(let failure, let fault): decline(segment, failure, fault)
        case .left(let fault): leave(segment, fault)
        case .late, .again: goOn(segment)
        case .taken(let path): endTransfer(.whole(.nameTaken(path: path)))
        case .unchanged(let copy): endTransfer(.whole(.unchanged(copy)))
        case .restart:
            if transfer.isDistrusted { distrust(transfer, keeping: segment) }
            restart(segment)
        case .alone:
            segment.ownsConnection = true
            staging?.flush()
            transfer.dropCandidate()
            // The same hop again: a redirect may be for one use, or may have followed a request with a body.
            segment.endExchange()
            ask(segment)
        case .redirect: follow(segment, attempt)
        case .whole,
            .body where error == nil || segment.isFilled:
            if case .body = attempt.verdict, let failure = attempt.codingFailure { return failWhole(segment, failure) }
            forgetUncompared(of: transfer, ended: segment)
            switch transfer.complete(attempt) {
            case .success(let end): endWhole(transfer, end, by: segment)
            case .failure where segment.gotPart(attempt): goOn(segment)
            case .failure(let failure) where transfer.mustForgetBody(after: failure): failWhole(segment, failure)
            case .failure(let failure): fail(segment, failure)
            }
        case .undecided where attempt.isKeptAway && error?.kind == .connect: fail(segment, segment.keptAway)
        case .undecided, .body:
            let error = error ?? CurlError(.other, "no answer")
            // libcurl takes header lines of at most 100 KiB. Before version 8.6, it reports a lack of memory for a longer line.
            if [.noMemory, .tooLarge].contains(error.kind), exchange.hasAsked, !attempt.head.isComplete {
                return fail(segment, FailureMapping.headTooLarge(host: segment.url.host))
            }
            let failure = FailureMapping.failure(
                error, host: segment.url.host, proxy: attempt.isProxied, stallTimeout: transfer.request.stallTimeout,
                madeProgress: transfer.facts != nil)
            // Behind a proxy, a look-up on this machine that fails is an error of the proxy (CURLE_PROXY).
            if error.kind == .resolve, failure.wait == nil, !attempt.isProxied { return failUnresolved(segment, failure) }
            fail(segment, failure)
        }
    }

    // MARK: Stops

    private func halt(_ number: DownloadNumber) {
        heldBack[number]?.isStopped = true
        if let transfer = transfers[number] { conclude(transfer, .stopped) }
    }

    // MARK: Ends

    /// Stops fetching. Reports the end once the bytes that count are on disk.
    ///
    /// - Parameter id: the request that brought the conclusion; nil: no request did.
    func conclude(_ transfer: Transfer, _ conclusion: Transfer.Conclusion, by id: RequestID? = nil) {
        guard transfer.conclusion == nil else { return }
        (transfer.conclusion, transfer.concludedBy) = (transfer.isBodySent ? conclusion.withoutRetry : conclusion, id)
        transfer.stop()
        staging?.flush()
        transfer.dropCandidate()
        if !transfer.isSyncing { settle(transfer) }
    }

    /// Does the last flush, if one is needed, and ends the transfer. Call while no flush is in flight.
    private func settle(_ transfer: Transfer) {
        guard let conclusion = transfer.conclusion else { return }
        if case .whole(let end) = conclusion { return finish(transfer, end) }
        if let part = transfer.part, transfer.mayFlush, part.isResumable, part.written > transfer.checkpoint?.written ?? 0 {
            return sync(transfer)
        }
        if !transfer.mayFlush { transfer.part?.loseMap() }
        // The checkpoint of a part file that cannot be resumed says only that no bytes are held (`Transfer.reportStart`).
        tellEnd(transfer, transfer.part?.isResumable == false ? nil : transfer.checkpoint)
    }

    private func tellEnd(_ transfer: Transfer, _ resume: ResumeData?) {
        switch transfer.conclusion {
        case .failed(let failure): finish(transfer, .failed(failure, madeProgress: transfer.madeProgress(keeping: resume), resume))
        case .stopped, nil: finish(transfer, .stopped(resume))
        case .whole(let end): finish(transfer, end)
        }
    }

    /// Flushes the written bytes on a thread of their disk, while the transfer continues.
    func sync(_ transfer: Transfer) {
        staging?.flush()
        guard let part = transfer.part, let data = part.resumeData(part.ranges) else { return }
        let work = DiskWork(on: flushAnswers)
        (transfer.syncing, transfer.flush) = (part, work)
        transfer.lastCheckpoint = .now
        let (descriptor, folder, number) = (part.descriptor, part.unflushedFolder, transfer.request.number)  // open until `synced`
        let (map, identity) = (transfer.request.mapPath, part.identity)
        DiskPool.shared.perform(at: .descriptor(descriptor), kind: .flush) { [flush] in
            work.noteAnswer()
            var code = CrashMarks.working(on: number.value) { flush(descriptor) }
            work.noteAnswer()
            // A file system without fsync for folders returns EINVAL.
            if code == 0, let folder, fsync(folder) != 0, errno != EINVAL { code = errno }
            // The engine's thread may wait for the same disk, and the process may be killed before the engine knows of the failure.
            if code != 0, let map { WrittenMap.disown(map, of: identity) }
            return code == 0 ? nil : DiskError("save the part file", code)
        } then: { [self] error in
            command { $0.synced(number, data, error) }
        }
    }

    private func synced(_ number: DownloadNumber, _ data: ResumeData, _ error: DiskError?) {
        guard let transfer = transfers[number] else { return }
        let isInPlace = transfer.syncing === transfer.part
        transfer.syncing = nil
        if !isInPlace {
            settle(transfer)
        } else if let error {
            // Only the previous checkpoint counts: the kernel has dropped pages that it could not write.
            (transfer.conclusion, transfer.concludedBy) = (.failed(transfer.failure(error)), nil)
            transfer.stop()
            transfer.part?.loseMap()
            staging?.discard(transfer)
            transfer.dropCandidate()
            tellEnd(transfer, transfer.checkpoint)
        } else {
            transfer.part?.isNameOnDisk = true
            transfer.report(transfer.stillHeld(of: data))
            settle(transfer)
        }
    }

    private func finish(_ transfer: Transfer, _ end: TransferEnd) {
        let number = transfer.request.number
        transfer.stop()
        staging?.discard(transfer)
        transfer.reportSources()
        transfer.reportCookies()
        // Requests that share a connection of this transfer are reported before its end (`.shares`).
        reportEvents()
        transfers[number] = nil
        CrashMarks.transferEnded(number.value)
        tell(.ended(number, end, by: transfer.concludedBy))
        if let next = heldBack.removeValue(forKey: number) {
            if next.isStopped { tell(.ended(number, .stopped(next.request.resume))) } else { begin(next.request) }
        }
        if transfers.isEmpty {
            staging = nil
            trials.leave(ObjectIdentifier(self))
        }
        endIfDone()
    }

    private func tell(_ event: TransferEvent) { BusActor.spawn { [self] in report(event) } }

    private func close(_ done: @escaping @BusActor @Sendable () -> Void) {
        shutDownDone = done
        for number in heldBack.keys { heldBack[number]?.isStopped = true }
        for transfer in transfers.values { conclude(transfer, .stopped) }
        endIfDone()
    }

    private func endIfDone() {
        guard let done = shutDownDone, transfers.isEmpty else { return }
        shutDownDone = {}
        multi = nil
        BusActor.spawn(done)
        thread.loop.stop()
    }
}
