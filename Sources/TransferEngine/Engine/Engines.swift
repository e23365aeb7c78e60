public import DownloadModel
public import EventLoop
internal import Glibc
internal import PartFiles
internal import Transport

/// One engine for each disk in use, so that a slow or hanging disk delays only its own transfers.
///
/// An engine writes, renames and examines files on the thread that also reads from the network, so a slow disk blocks that thread. A
/// transfer whose disk has not answered for `patience` is reported as failed, and as waiting for its folder. Events that the blocked thread
/// still produces for this transfer later are dropped.
@BusActor public final class Engines {
    /// Most disks with their own engine. Further disks share one more.
    static let mostDisks = 16
    /// How long a disk may be silent before its transfers are reported as stalled (`silence`) or failed (`patience`).
    static let silence: Duration = .seconds(10)
    static let patience: Duration = .seconds(30)
    /// How long the exit waits for checkpoints.
    static let lastPatience: Duration = .seconds(5)
    private static let interval: Duration = .seconds(5)

    private struct Run {
        /// The number of the lane with `engine`.
        let lane: Int
        let engine: Engine
        let request: TransferRequest
        /// The resume data of the last checkpoint, or of the request.
        var resume: ResumeData?
        var isStalled = false
        /// Whether the end was reported without an answer of the disk.
        var isLost = false
    }

    /// A transfer that was started again while its predecessor hangs.
    private struct HeldBack {
        var request: TransferRequest
        let disk: DiskKey
        let since: SuspendingClock.Instant
    }

    struct Lane {
        let number: Int
        /// nil: the lane of all further disks.
        let disk: DiskKey?
        let engine: Engine
        var runs = 0
    }

    private let configuration: EngineConfiguration
    private let home: String
    private let report: @BusActor @Sendable (TransferEvent) -> Void
    private let limit = TotalLimit()
    private let trials = SharedTrials()
    /// Whether bytes cost money, as last set.
    private var isMetered = false
    private(set) var lanes: [Lane] = []
    private var lastLane = 0
    /// The transfers between `start` and the end that their engine reports.
    private var runs: [DownloadNumber: Run] = [:]
    /// The lost runs of downloads that have been started in another folder since. At most one for each download and lane.
    private var left: [Run] = []
    private var heldBack: [DownloadNumber: HeldBack] = [:]
    private var timer: Poller.Token?
    private var isEnding = false
    private var shutDownDone: (@BusActor @Sendable () -> Void)?

    /// - Parameters:
    ///   - home: the state folder. Its disk always gets its own engine, however many other disks hang.
    ///   - report: called with the events of every started transfer, as with `Engine`.
    public init(configuration: EngineConfiguration, home: String, report: @escaping @BusActor @Sendable (TransferEvent) -> Void) {
        (self.configuration, self.home, self.report) = (configuration, home, report)
    }

    // MARK: Commands, as in `Engine`

    /// - Parameter disk: the disk that the transfer writes to, from `DiskPool.locate`; nil: the disk did not answer.
    public func start(_ request: TransferRequest, on disk: DiskKey?) {
        let number = request.number
        guard !isEnding else { return tell(.ended(number, .stopped(request.resume))) }
        guard let disk else { return tell(.ended(number, .failed(Self.silentDisk(of: request), madeProgress: false, request.resume))) }
        // While the previous transfer hangs, a second transfer would write into the same file.
        if meetsEarlierRun(request, on: disk) {
            heldBack[number] = HeldBack(request: request, disk: disk, since: .now)
            tell(.diskStalled(number, true))
            return watch()
        }
        guard let lane = lane(of: disk) else {
            return tell(.ended(number, .failed(Self.tooManySilentDisks(request), madeProgress: false, request.resume)))
        }
        // A disk that blocks its engine gets no further transfers, because each of them would occupy a slot meanwhile.
        if lanes[lane].engine.busy >= Self.silence {
            return tell(.ended(number, .failed(Self.silentDisk(of: request), madeProgress: false, request.resume)))
        }
        if let run = runs[number] { left.append(run) }
        lanes[lane].runs += 1
        runs[number] = Run(lane: lanes[lane].number, engine: lanes[lane].engine, request: request, resume: request.resume)
        lanes[lane].engine.start(request)
        watch()
    }

    /// Whether an earlier transfer of the same download has not ended, and may write into the same folder as `request`, or through the same
    /// engine. A lost transfer into another folder, on another disk, does not delay `request`.
    private func meetsEarlierRun(_ request: TransferRequest, on disk: DiskKey) -> Bool {
        let number = request.number
        let engine = (lanes.first { $0.disk == disk } ?? lanes.first { $0.disk == nil })?.engine
        func meets(_ run: Run) -> Bool { run.engine === engine || run.request.directory.isSameBytes(as: request.directory) }
        if let run = runs[number], !run.isLost || meets(run) { return true }
        return left.contains { $0.request.number == number && meets($0) }
    }

    public func stop(_ number: DownloadNumber) {
        if let held = heldBack.removeValue(forKey: number) { return tell(.ended(number, .stopped(held.request.resume))) }
        runs[number]?.engine.stop(number)
    }

    public func permit(_ id: RequestID, question: UInt64, tellsSent: Bool, mustShare: Bool) {
        runs[id.download]?.engine.permit(id, question: question, tellsSent: tellsSent, mustShare: mustShare)
    }

    public func withdraw(_ id: RequestID) { runs[id.download]?.engine.withdraw(id) }

    public func setSpeedLimit(_ number: DownloadNumber, _ limit: Speed?) {
        heldBack[number]?.request.speedLimit = limit
        runs[number]?.engine.setSpeedLimit(number, limit)
    }

    public func setTotalSpeedLimit(_ limit: Speed?) { self.limit.set(limit ?? 0) }

    public func setMetered(_ isMetered: Bool) {
        self.isMetered = isMetered
        for lane in lanes { lane.engine.setMetered(isMetered) }
    }

    public func forgetConnections() { for lane in lanes { lane.engine.forgetConnections() } }

    /// Stops every transfer. Calls `done` when all ends are reported, or after `lastPatience` if a disk does not answer. Transfers on such
    /// a disk keep what their last checkpoints and written maps prove, as after a crash.
    public func shutDown(_ done: @escaping @BusActor @Sendable () -> Void) {
        (isEnding, shutDownDone) = (true, done)
        Poller.shared.schedule(after: Self.lastPatience) { [weak self] in self?.endShutDown() }
        for number in heldBack.keys { stop(number) }
        for lane in lanes {
            let engine = lane.engine
            engine.shutDown { [weak self] in self?.hasShutDown(engine) }
        }
        if lanes.isEmpty { endShutDown() }
    }

    private func hasShutDown(_ engine: Engine) {
        lanes.removeAll { $0.engine === engine }
        if lanes.isEmpty { endShutDown() }
    }

    private func endShutDown() {
        let done = shutDownDone
        shutDownDone = nil
        done?()
    }

    // MARK: Engines

    /// The index of the engine for `disk`; nil if `disk` would have to share an engine with a disk that hangs.
    private func lane(of disk: DiskKey) -> Int? {
        if let lane = lanes.firstIndex(where: { $0.disk == disk }) { return lane }
        if lanes.count < Self.mostDisks || disk == DiskPool.shared.disk(byTextOf: home) { return addLane(of: disk) }
        guard let shared = lanes.firstIndex(where: { $0.disk == nil }) else { return addLane(of: nil) }
        return lanes[shared].engine.busy < Self.silence ? shared : nil
    }

    private func addLane(of disk: DiskKey?) -> Int {
        lastLane += 1
        let number = lastLane
        let engine = Engine(configuration: configuration, limit: limit, trials: trials) { [weak self] in self?.take($0, from: number) }
        engine.setMetered(isMetered)
        lanes.append(Lane(number: number, disk: disk, engine: engine))
        return lanes.count - 1
    }

    /// A run of `engine` has ended. An engine without runs is shut down with its thread, unless it is the only engine.
    private func release(_ engine: Engine) {
        guard let lane = lanes.firstIndex(where: { $0.engine === engine }) else { return }
        lanes[lane].runs -= 1
        guard lanes[lane].runs == 0, lanes.count > 1, !isEnding else { return }
        lanes.remove(at: lane).engine.shutDown {}
    }

    // MARK: Events

    private func take(_ event: TransferEvent, from lane: Int) {
        func isHeard(_ number: DownloadNumber) -> Bool { runs[number].map { $0.lane == lane && !$0.isLost } ?? false }
        switch event {
        case .ended(let number, _, _):
            guard let run = endRun(of: number, in: lane) else { return }
            if !run.isLost { report(event) }
            if let held = heldBack.removeValue(forKey: number) {
                report(.diskStalled(number, false))
                start(held.request, on: held.disk)
            }
            if runs.isEmpty, heldBack.isEmpty, let watching = timer {
                Poller.shared.cancel(watching)
                timer = nil
            }
        case .checkpoint(let number, let resume):
            if runs[number]?.lane == lane { runs[number]?.resume = resume }
            if isHeard(number) { report(event) }
        case .progress(let all):
            let heard = all.filter { isHeard($0.number) }
            if !heard.isEmpty { report(.progress(heard)) }
        case .stalled(let id, let isStalled):
            // While the disk blocks the engine, `look` reports that the transfer is stalled.
            if isHeard(id.download), runs[id.download]?.isStalled == false || isStalled { report(event) }
        case .diskStalled: break  // our own
        case .asks(let id, _, _, _, _), .shares(let id, _), .sent(let id, _), .joined(let id), .over(let id, _), .moved(let id, _):
            if isHeard(id.download) { report(event) }
        case .sources(let number, _), .cookies(let number, _), .bodyDropped(let number, _): if isHeard(number) { report(event) }
        case .began(let id, _): if isHeard(id.download) { report(event) }
        }
    }

    /// Removes the run of `number` that has ended in `lane`; nil: there is none.
    private func endRun(of number: DownloadNumber, in lane: Int) -> Run? {
        if let run = runs[number], run.lane == lane {
            runs[number] = nil
            release(run.engine)
            return run
        }
        guard let index = left.firstIndex(where: { $0.lane == lane && $0.request.number == number }) else { return nil }
        let run = left.remove(at: index)
        cleanUp(after: run)
        return run
    }

    /// The disk of a folder that a download has left answers again. Its transfer may have made the part file there after the deletion of
    /// that part file, and may have changed the written map, which belongs to the part file in the new folder now.
    private func cleanUp(after run: Run) {
        let (number, engine) = (run.request.number, run.engine)
        guard !isEnding else { return }
        runs[number]?.engine.renewMap(of: number)
        if heldBack[number]?.request.directory.isSameBytes(as: run.request.directory) == true { return release(engine) }
        // The disk keeps this engine until the deletion has ended. So a transfer that comes back to the folder begins after it.
        engine.discardPart(of: run.request) { [weak self] in self?.release(engine) }
    }

    private func tell(_ event: TransferEvent) { BusActor.spawn { [self] in report(event) } }

    // MARK: Disks that do not answer

    private func watch() {
        guard timer == nil, !heldBack.isEmpty || runs.values.contains(where: { !$0.isLost }) else { return }
        timer = Poller.shared.schedule(after: Self.interval) { [self] in
            timer = nil
            look()
            watch()
        }
    }

    private func look() {
        for (number, held) in heldBack where .now - held.since >= Self.patience {
            heldBack[number] = nil
            report(.ended(number, .failed(Self.silentDisk(of: held.request), madeProgress: false, held.request.resume)))
        }
        for lane in lanes where lane.runs > 0 {
            let busy = lane.engine.busy
            for (number, run) in runs where run.engine === lane.engine && !run.isLost {
                if busy >= Self.patience {
                    lose(number, in: lane.number)
                } else if run.isStalled != (busy >= Self.silence) {
                    runs[number]?.isStalled.toggle()
                    report(.diskStalled(number, !run.isStalled))
                }
            }
            let lost = lane.number
            lane.engine.findLateDisks(longerThan: Self.patience) { [weak self] in for number in $0 { self?.lose(number, in: lost) } }
        }
    }

    /// Reports the end of the transfer in `lane`, whose disk does not answer.
    func lose(_ number: DownloadNumber, in lane: Int) {
        guard let run = runs[number], run.lane == lane, !run.isLost else { return }
        runs[number]?.isLost = true
        run.engine.stop(number)
        let failure = Self.silentDisk(of: run.request)
        // The request may have gone out.
        let isFinal = run.request.body != nil
        report(.ended(number, .failed(isFinal ? failure.withoutRetry : failure, madeProgress: false, run.resume)))
    }

    private static func tooManySilentDisks(_ request: TransferRequest) -> DownloadFailure {
        DownloadFailure(
            .writeFailed,
            "Too many disks do not answer, so \(request.directory) has to wait; the download resumes when one of them answers.",
            wait: request.descriptor == nil ? .destination : nil)
    }

    private static func silentDisk(of request: TransferRequest) -> DownloadFailure {
        guard request.descriptor == nil else { return DownloadFailure(.writeFailed, "The disk of the caller’s file does not answer.") }
        return DownloadFailure(
            .writeFailed, "The disk of \(request.directory) does not answer; the download resumes when it does.", wait: .destination)
    }
}
