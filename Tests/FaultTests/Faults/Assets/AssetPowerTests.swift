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
                    The life of an asset (see above) is recorded: writes, names, links, flushes. The disk is rebuilt as a cut after each change may leave \
                    it. On each disk the path is looked at before a daemon starts; then the daemon starts under another boot id, goes on, updates \
                    and unregisters the asset.
                    """)
            let versions = try await PublishedVersion.makeAll()
            let parts = Array(0..<Length.lanes)
            try await runCases(parts, report, lanes: parts.count) { part, lane in
                try await cutPower(part, of: parts.count, versions, lane, report)
                return Verdict(row: "", name: "", wasMet: false)
            }
            await report.finish()
        }
    }
}

/// The version that is installed after each milestone of the life; the empty one: none.
private let milestones = ["", "1", "2", "3", "2", "4", ""]
private let rows = [
    "registered", "the first update", "a larger update, then a cancelled one", "a rollback", "an update after a rollback", "an end",
    "ended",
]

/// What the daemon had said before the cut.
private struct Said {
    var isRegistered = false
    /// The place in `milestones`.
    var milestone = 0

    mutating func take(_ told: Told) {
        switch told {
        case .acknowledged(let path) where path.contains("/asset/"): isRegistered = true
        case .ready, .rolledBack, .unregistered: milestone += 1
        default: break
        }
    }
}

/// Records a life, and cuts the power after each change whose number is `part` modulo `count`.
@BusActor private func cutPower(
    _ part: Int, of count: Int, _ versions: [String: PublishedVersion], _ lane: Lane, _ report: Report
) async throws {
    let place = Place()
    let recorded = AssetLife(Verdict(row: "", name: "the record"), place, lane, AssetPublisher(versions))
    var disk = Disk(roots: [place.state, place.files])
    recorded.more = ["FAULTSHIM_RECORD": place.folder("record")]
    guard await recorded.register() else { return report.take(recorded.verdict) }
    for step in AssetStep.life {
        if await !recorded.take(step) { return report.take(recorded.verdict) }
        await recorded.expectTidy()
    }
    await lane.end(SIGTERM)
    let log = try RecordedLog(place.folder("record"))
    #expect(log.changes.contains { if case .syncAll = $0 { true } else { false } }, "no flush of unpacked files was recorded")
    var (said, seen) = (Said(), Set<Int>())
    let points = Set(Length.sample(Array(0..<log.changes.count).filter { $0 % count == part }, 3))
    for (index, change) in log.changes.enumerated() {
        disk.make(change)
        if case .told(let one) = change { said.take(one) }
        guard points.contains(index) else { continue }
        let seed = Length.seed &* 1_000_003 &+ UInt64(index) &* 2
        let losses: [Disk.Loss] =
            Length.isFull
            ? [.all, .nothing, .some(seed: seed), .some(seed: seed + 1)] : [[.all, .nothing][index / count % 2], .some(seed: seed)]
        for loss in losses {
            let remains = disk.afterPowerCut(loss)
            guard seen.insert(remains.hashValue).inserted else { continue }
            let name = "change \(index) of \(log.changes.count) (\(change.name)), \(loss)"
            if let only = Length.only, !name.hasPrefix(only) { continue }
            lane.begin()
            let blank = Verdict(row: rows[min(said.milestone, rows.count - 1)], name: name)
            report.take(await goOn(with: remains, said, blank, place, lane, recorded.publisher))
            if lane.isRunning { await lane.end(SIGKILL) }
        }
    }
    #expect(said.milestone == milestones.count - 1, "the record has \(said.milestone) milestones")
    let last = disk.afterPowerCut(.nothing)
    #expect(
        last.files.keys.allSatisfy { !$0.hasPrefix(place.files) } && last.links.isEmpty, "the record missed changes: \(last.files.keys)")
}

/// Looks at the asset on the disk after a power cut, and lets a daemon go on.
@BusActor private func goOn(
    with remains: Disk.Remains, _ said: Said, _ blank: Verdict, _ place: Place, _ lane: Lane, _ publisher: AssetPublisher
) async -> Verdict {
    let life = AssetLife(blank, place, lane, publisher)
    life.more = rebuild(remains, place)
    let (now, next) = (milestones[said.milestone], milestones[min(said.milestone + 1, milestones.count - 1)])
    life.allowed = [now, next]
    life.look("after the cut")
    guard await life.wake() else { return life.verdict }
    let isThere = (try? await lane.assets().isEmpty) == false
    let isEnding = said.milestone >= milestones.count - 2
    life.verdict.expect(isThere || !said.isRegistered || isEnding, "the registration was acknowledged and is gone")
    life.verdict.expect(!isThere || said.milestone < milestones.count - 1, "the end was told, and the asset is there")
    // An unregistration that was under way goes on first.
    _ = await eventually {
        do throws(DBusError) { _ = try await life.tryToRegister() } catch { return !error.message.contains("being unregistered") }
        return true
    }
    guard await life.register(), await life.take(.update("5")) else { return life.verdict }
    await life.expectTidy()
    _ = await life.take(.unregister)
    await life.expectNothingLeft()
    return life.verdict
}
