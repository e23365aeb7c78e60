internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `An asset after a power cut` {
        @Test func `leads to a whole version, goes on, and leaves nothing behind`() async throws {
            let report = await Report(
                "An asset and power cuts",
                notes: """
                    The changes of todokud and of its unpacking process are recorded: writes, names, links, flushes. The disk is rebuilt as a cut after \
                    each change may leave it. On each disk the path is looked at before a daemon starts; then the daemon starts under another \
                    boot id, goes on, updates and unregisters the asset. One life has each kind of step, and is cut at each change; other lives \
                    have random steps.
                    """)
            let versions = try await PublishedVersion.makeAll()
            try await runCases(PowerCase.all, report) { test, lane in
                try await cutPower(test, versions, lane, report)
                return Verdict(row: "", name: "", wasMet: false)
            }
            await report.finish(expecting: Length.isFull ? PowerCase.all.first?.life.phases.map(\.row) ?? [] : [])
        }

        @Test func `leads to a whole version also if the daemon was killed between making a folder and flushing its name`() async throws {
            let versions = try await PublishedVersion.makeAll()
            let lane = try await Lane(try await Shim.compiled())
            // The calls of the life that make a folder.
            let place = Place()
            let whole = try await recordLife([.update("1")], isPlain: true, fault: Fault(kind: .killAfter, at: 0), place, versions, lane)
            #expect(whole.verdict.wrong == [], "without a kill")
            // Each line of the log: the number of the call, the fault, the name of the call, and the path.
            let calls = place.log.split(separator: "\n").map { $0.split(separator: " ", maxSplits: 3) }
            let numbers = calls.filter { $0.dropFirst(2).first == "mkdir" }.compactMap { $0.first.flatMap { Int($0) } }
            #expect(numbers.count >= 10, "five folders of its own, five of the asset: \(place.log)")
            for number in numbers {
                let place = Place()
                let fault = Fault(kind: .killAfter, at: number)
                let record = try await recordLife([.update("1")], isPlain: true, fault: fault, place, versions, lane)
                #expect(record.verdict.wrong == [] && place.hits == 1, "\(fault)")
                let (_, wrong) = await look(record, without: nil, place, lane)
                #expect(wrong == [], "\(fault): \(place.log)")
                #expect(await remembers(record, place, lane), "\(fault): \(place.log)")
            }
        }

        @Test func `is found damaged if a flush is left out`() async throws {
            let versions = try await PublishedVersion.makeAll()
            let lane = try await Lane(try await Shim.compiled())
            for plant in Plant.allCases {
                let place = Place()
                let record = try await recordLife([.update("1")], isPlain: plant.isPlain, place, versions, lane)
                let (_, wrong) = await look(record, without: nil, place, lane)
                #expect(record.verdict.wrong == [] && wrong == [], "without any defect")
                let (count, found) = await look(record, without: plant, place, lane)
                #expect(count > 0, "\(plant): the record has no such flush")
                #expect(!found.isEmpty, "nobody sees that a flush is missing: \(plant)")
            }
        }
    }
}

/// A flush that a daemon with a defect would leave out.
private enum Plant: CaseIterable {
    case filesBeforeTheSwitch
    case folderAfterTheSwitch
    case foldersOnTheWay

    /// Elsewhere, the flush of the unpacked files brings everything else to disk as well.
    var isPlain: Bool { self == .foldersOnTheWay }

    func leavesOut(_ change: Change, _ directory: String) -> Bool {
        switch (self, change) {
        case (.filesBeforeTheSwitch, .syncAll): true
        case (.folderAfterTheSwitch, .syncFolder(let path, _)): path == directory
        case (.foldersOnTheWay, .syncFolder(let path, _)): directory.hasPrefix("\(path)/")
        default: false
        }
    }
}

/// Looks at the disk after a power cut at the moment when the version is told to be ready.
///
/// - Returns: how many flushes were left out, and what is wrong.
@BusActor private func look(_ record: PowerRecord, without plant: Plant?, _ place: Place, _ lane: Lane) -> (Int, [String]) {
    let directory = record.life.directory
    let changes = record.log.changes.filter { !(plant?.leavesOut($0, directory) ?? false) }
    var (disk, said, wrong) = (Disk(roots: [place.state, place.files]), Said(record.phases), [String]())
    for change in changes {
        disk.make(change)
        guard case .told(let told) = change else { continue }
        said.take(told)
        guard case .ready = told else { continue }
        rebuild(disk.afterPowerCut(.all), place)
        let life = AssetLife(Verdict(row: "", name: ""), place, lane, record.life.publisher)
        life.allowed = said.allowed
        life.look("after the cut")
        wrong += life.verdict.wrong
    }
    return (record.log.changes.count - changes.count, wrong)
}

/// Whether a daemon knows the asset after a power cut behind all changes.
@BusActor private func remembers(_ record: PowerRecord, _ place: Place, _ lane: Lane) async -> Bool {
    var disk = Disk(roots: [place.state, place.files])
    for change in record.log.changes { disk.make(change) }
    let life = AssetLife(Verdict(row: "", name: ""), place, lane, record.life.publisher)
    life.more = rebuild(disk.afterPowerCut(.all), place)
    life.more["XDG_STATE_HOME"] = record.life.more["XDG_STATE_HOME"]
    guard await life.wake() else { return false }
    let isKnown = (try? await lane.assets().isEmpty) == false
    await lane.end(SIGTERM)
    return isKnown
}

/// What is recorded, and which of its changes are followed by a cut.
private struct PowerCase: Sendable, CustomStringConvertible {
    let name: String
    let life: PowerLife
    /// Of the changes whose number is `part` modulo `count`, each `stride`-th one.
    var part = 0
    var count = 1
    var stride = 1
    /// Whether each file is flushed by itself, as on FUSE and on network file systems.
    var isPlain = false

    var description: String { name }

    static let all: [PowerCase] = {
        let life = PowerLife(steps: [
            .update("1"), .interrupt("2"), .cancel("3"), .cancelUnpacking("3"), .update("3"), .rollBack(to: "2"), .update("4"),
            .repair("4"), .unregister,
        ])
        guard Length.isFull else {
            return (0..<4).map { PowerCase(name: "each step", life: life, part: $0, count: 4, isPlain: $0 % 2 == 1) }
        }
        var random = SeededRandom(Length.seed)
        let lives = (0..<8).map { number in
            PowerCase(name: "random life \(number)", life: PowerLife(&random), stride: 41, isPlain: number % 2 == 1)
        }
        let plain = PowerCase(name: "each step, on FUSE", life: life, stride: 7, isPlain: true)
        return (0..<8).map { PowerCase(name: "each step", life: life, part: $0, count: 8) } + [plain] + lives
    }()
}

/// The steps from the registration to its end.
private struct PowerLife: Sendable {
    let steps: [AssetStep]
    /// The manifests' version of each step.
    let aliases: [String?]

    init(steps: [AssetStep], aliases: [String?] = []) {
        self.steps = steps
        self.aliases = steps.indices.map { $0 < aliases.count ? aliases[$0] : nil }
    }

    /// 25 random steps, and the end.
    init(_ random: inout SeededRandom) {
        var (installed, previous): (String, String?) = ("", nil)
        var steps: [AssetStep] = []
        for _ in 1...25 {
            let name = ["1", "2", "3", "4"].filter { $0 != installed && $0 != previous }.randomElement(using: &random) ?? "1"
            let step: AssetStep =
                switch Int.random(in: 0..<10, using: &random) {
                case 0: .cancel(name)
                case 1: .cancelUnpacking(name)
                case 2: .interrupt(name)
                case 3 where !installed.isEmpty: .repair(installed)
                case 4...5: previous.map { .rollBack(to: $0) } ?? .update(name)
                default: .update(name)
                }
            switch step {
            case .update(let name), .interrupt(let name): (installed, previous) = (name, installed.isEmpty ? nil : installed)
            case .rollBack(let name): (installed, previous) = (name, nil)
            case .repair: previous = nil
            case .cancel, .cancelUnpacking, .unregister: break
            }
            steps.append(step)
        }
        self.steps = steps + [.unregister]
        aliases = self.steps.indices.map { "\($0)" }
    }

    /// Calls before the end of an update belong to it: nothing tells apps that they have ended.
    var phases: [Phase] {
        var phases: [Phase] = []
        var (before, installed) = (["registered"], "")
        var cancelled: [AssetStep] = []
        for (step, alias) in zip(steps, aliases) {
            var phase = Phase(row: "", before: installed, after: installed, alias: alias)
            switch step {
            case .update(let name): (phase.after, phase.update) = (name, name)
            case .interrupt(let name): (phase.after, phase.update, phase.isInterrupted) = (name, name, true)
            case .repair(let name): (phase.after, phase.update, phase.isRepair) = (name, name, true)
            case .rollBack(let name): phase.after = name
            case .unregister: phase.after = ""
            case .cancel, .cancelUnpacking: cancelled.append(step)
            }
            before.append(step.rowName)
            if cancelled.last == step { continue }
            phase.row = before.joined(separator: ", ")
            phase.cancelled = cancelled
            phases.append(phase)
            (before, installed, cancelled) = ([], phase.after, [])
        }
        return phases + [Phase(row: "ended", before: installed, after: installed, alias: nil)]
    }
}

extension AssetStep {
    fileprivate var rowName: String {
        switch self {
        case .update: "an update"
        case .cancel: "an update cancelled while downloading"
        case .cancelUnpacking: "an update cancelled while unpacking"
        case .interrupt: "an update over an exit"
        case .repair: "a version deleted by somebody and installed again"
        case .rollBack: "a rollback"
        case .unregister: "the end"
        }
    }
}

/// What happens until the next announcement that it has happened.
private struct Phase: Sendable {
    var row: String
    let before: String
    var after: String
    /// The version as the manifest calls it.
    let alias: String?
    /// The version that is being installed.
    var update: String?
    var isInterrupted = false
    var isRepair = false
    /// The updates before it that are cancelled. After a cut before its cancellation, such an update goes on by itself.
    var cancelled: [AssetStep] = []
}

/// What the daemon had said before the cut.
private struct Said {
    private let phases: [Phase]
    private(set) var isRegistered = false
    private(set) var number = 0
    /// Daemons that have begun to talk in this phase.
    private var starts = 0
    private var stage = ""
    /// How often unpacking has begun in this phase.
    private var extractions = 0
    /// An archive is there as a whole, and the update is not cancelled any more.
    private var isExtracting = false

    init(_ phases: [Phase]) { self.phases = phases }

    var phase: Phase { phases[min(number, phases.count - 1)] }
    var isComplete: Bool { number >= phases.count - 1 }
    var isEnding: Bool { number >= phases.count - 2 }
    /// The versions that the path may lead to; the empty one: it may be absent.
    var allowed: Set<String> { [phase.before, phase.after, phase.isRepair ? "" : phase.before] }
    /// What distinguishes cuts that leave the same disk.
    var summary: [Int] { [number, isRegistered ? 1 : 0, starts, extractions, isExtracting ? 1 : 0] }

    mutating func take(_ told: Told) {
        switch told {
        case .acknowledged(let path) where path.contains("/asset/"): isRegistered = true
        case .ready, .rolledBack, .unregistered: (number, starts, extractions, isExtracting) = (number + 1, 0, 0, false)
        case .started: starts += 1
        case .stage(let stage):
            if stage == "extracting", self.stage != stage { extractions += 1 }
            self.stage = stage
            let cancelled = phase.cancelled.count { if case .cancelUnpacking = $0 { true } else { false } }
            isExtracting = stage == "extracting" && extractions > cancelled
        default: break
        }
    }

    /// How many bytes of archives may be fetched after a cut now, where the last one is `length` bytes long.
    func most(ofArchive length: Int, _ versions: [String: PublishedVersion]) -> Int {
        if isExtracting { return 0 }
        // An exit flushes what has come: half.
        if phase.isInterrupted, starts > 0 { return length / 2 + 1 << 20 }
        // A version of another name is fetched by itself. Without names of their own, these steps are about one version.
        let others = phase.alias == nil ? [] : phase.cancelled.map { versions[$0.version]?.archive.count ?? 0 }
        return length + (others.max() ?? 0)
    }
}

/// A recorded life.
private struct PowerRecord {
    let life: AssetLife
    let verdict: Verdict
    let phases: [Phase]
    let log: RecordedLog
}

/// Records a life, and compares the replay with the disk before the end of the life. `fault` is that of the first daemon.
@BusActor private func recordLife(
    _ steps: [AssetStep], aliases: [String?] = [], isPlain: Bool, fault: Fault? = nil, _ place: Place,
    _ versions: [String: PublishedVersion], _ lane: Lane
) async throws -> PowerRecord {
    let life = AssetLife(Verdict(row: "the record", name: "\(steps)"), place, lane, AssetPublisher(versions))
    let file = place.folder("record")
    life.more = ["FAULTSHIM_RECORD": file]
    if isPlain { life.more["FAULTSHIM_PLAIN"] = "1" }
    // The daemon makes the folders above its own, too.
    if fault != nil { life.more["XDG_STATE_HOME"] = "\(place.state)/local/state" }
    let phases = PowerLife(steps: steps, aliases: aliases).phases
    var next = fault
    life.nextFault = {
        defer { next = nil }
        return next
    }
    func result() throws -> PowerRecord { PowerRecord(life: life, verdict: life.verdict, phases: phases, log: try RecordedLog(file)) }
    guard await life.register() else { return try result() }
    for (index, step) in steps.enumerated() {
        if step == .unregister {
            guard await life.restart() else { break }
            await lane.end(SIGTERM)
            var disk = Disk(roots: [place.state, place.files])
            for change in try RecordedLog(file).changes { disk.make(change) }
            let remains = disk.afterPowerCut(.nothing)
            var replayed = remains.files.filter { $0.key.hasPrefix("\(life.directory)/") }.mapValues(\.bytes)
            for link in remains.links.keys where link.hasPrefix("\(life.directory)/") { replayed[link] = [] }
            let found = life.content
            life.verdict.expect(
                replayed == found, "the record missed changes: \(replayed.keys.sorted()) for \(found.keys.sorted()) on the disk")
            life.hasEnded()
        }
        guard await life.take(step, as: index < aliases.count ? aliases[index].map { "\(step.version)-\($0)" } : nil) else { break }
        if step != .unregister { await life.expectTidy() }
    }
    await lane.end(SIGTERM)
    let flushes = try RecordedLog(file).changes.count { if case .syncAll = $0 { true } else { false } }
    life.verdict.expect(flushes > 0 || isPlain, "no flush of unpacked files was recorded")
    return try result()
}

/// Records a life, and cuts the power after its changes.
@BusActor private func cutPower(
    _ test: PowerCase, _ versions: [String: PublishedVersion], _ lane: Lane, _ report: Report
) async throws {
    let place = Place()
    let record = try await recordLife(test.life.steps, aliases: test.life.aliases, isPlain: test.isPlain, place, versions, lane)
    guard record.verdict.wrong.isEmpty else { return report.take(record.verdict) }
    var disk = Disk(roots: [place.state, place.files])
    var (said, seen) = (Said(record.phases), Set<Int>())
    let changes = record.log.changes
    let points = Length.sample(changes.indices.filter { $0 % test.count == test.part && $0 / test.count % test.stride == 0 }, 12)
    var cuts = 0
    for (index, change) in changes.enumerated() {
        disk.make(change)
        if case .told(let one) = change { said.take(one) }
        guard points.contains(index) else { continue }
        cuts += 1
        let seed = Length.seed &* 1_000_003 &+ UInt64(index) &* 2
        let others: [Disk.Loss] = [.nothing, .some(seed: seed), .some(seed: seed + 1)]
        let losses = [.all, others[cuts % others.count]]
        for loss in Length.isFull || Length.only != nil ? losses : [losses[cuts % 2]] {
            let remains = disk.afterPowerCut(loss)
            var hasher = Hasher()
            hasher.combine(remains)
            hasher.combine(said.summary)
            guard seen.insert(hasher.finalize()).inserted else { continue }
            let name = "\(test.name), change \(index) of \(changes.count) (\(change.name)), \(loss)"
            if let only = Length.only, !name.hasPrefix(only) { continue }
            lane.begin()
            let row = test.stride == 1 || !Length.isFull ? said.phase.row : test.name
            let blank = Verdict(row: row, name: name)
            report.take(await goOn(with: remains, said, blank, isPlain: test.isPlain, place, lane, record.life.publisher))
            if lane.isRunning { await lane.end(SIGKILL) }
        }
    }
    if !said.isComplete {
        let told = changes.compactMap { if case .told(let told) = $0 { "\(told)" } else { nil } }
        report.take(Verdict(row: "the record", name: "\(test)", wrong: ["it has \(said.number) announcements: \(told)"]))
    }
}

/// Looks at the asset on the disk after a power cut, and lets a daemon go on.
@BusActor private func goOn(
    with remains: Disk.Remains, _ said: Said, _ blank: Verdict, isPlain: Bool, _ place: Place, _ lane: Lane, _ publisher: AssetPublisher
) async -> Verdict {
    let life = AssetLife(blank, place, lane, publisher)
    life.more = rebuild(remains, place)
    if isPlain { life.more["FAULTSHIM_PLAIN"] = "1" }
    life.allowed = said.allowed
    life.look("after the cut")
    // The update that was under way goes on, or another one comes.
    let goal = said.phase.update ?? "5"
    let alias = said.phase.update.flatMap { name in said.phase.alias.map { "\(name)-\($0)" } }
    publisher.publish(goal, as: alias)
    let port = publisher.server.port
    let (received, requests) = (place.received(from: port), publisher.server.requests.count)
    guard await life.wake() else { return life.verdict }
    let isThere = (try? await lane.assets().isEmpty) == false
    life.verdict.expect(isThere || !said.isRegistered || said.isEnding, "the registration was acknowledged and is gone")
    life.verdict.expect(!isThere || !said.isComplete, "the end was told, and the asset is there")
    if said.isComplete { life.verdict.expect(life.folders.isEmpty, "the end was told, and there are folders: \(life.folders)") }
    // What somebody else has deleted is noticed by the next call.
    if !said.phase.isRepair { await life.expectVersionOnBus() }
    // An unregistration that was under way goes on first.
    _ = await eventually {
        do throws(DBusError) { _ = try await life.tryToRegister() } catch { return !error.message.contains("being unregistered") }
        return true
    }
    guard await life.register(), await life.take(.update(goal), as: alias) else { return life.verdict }
    await life.expectVersionOnBus()
    let length = publisher.versions[goal]?.archive.count ?? 0
    let fetched = place.received(from: port) - received
    let most = said.most(ofArchive: length, publisher.versions) + (publisher.server.requests.count - requests) * 700
    life.verdict.expect(fetched <= most, "\(fetched) bytes were fetched, and \(most) are enough")
    await life.expectTidy()
    _ = await life.take(.unregister)
    await life.expectNothingLeft()
    return life.verdict
}
