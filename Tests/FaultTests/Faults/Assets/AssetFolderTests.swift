internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `The folder of an asset` {
        @Test @BusActor func `has no link in the way of the unregistration after a first switch that failed was cancelled`() async throws {
            let versions = try await PublishedVersion.makeAll()
            // After a pause of the machine, the fault may hit another call.
            let (failing, error, _) = try await repeated {
                try await FirstUpdate.failAtFlush(versions)
            } until: {
                !$0.isSlow && FirstUpdate.isFlush($0.update.place.log)
            }
            let hit = failing.place.log
            #expect(FirstUpdate.isFlush(hit), "another call has failed: \(hit)")
            #expect(error?.name.hasPrefix("org.todoku.Error.") == true, "\(error as Any)")
            #expect(!listFolder(failing.directory).contains("current"), "the link leads to a version that is not installed")
            try await failing.lane.cancelUpdate(failing.asset)
            try await failing.lane.unregisterAsset(failing.asset, deletesData: false)
            #expect(listFolder(failing.directory) == [])
            await failing.lane.end(SIGTERM)
        }

        @Test @BusActor func `is free after the unregistration, though a look for room in it ends later`() async throws {
            let lane = try await Lane(try await Shim.compiled())
            let place = Place()
            let publisher = AssetPublisher(try await PublishedVersion.makeAll())
            publisher.publish("1")
            let fault = Fault(kind: .hang, at: 1_000_000, disk: .downloads)
            let ending = await lane.start(place, fault)
            try #require(ending == nil, "\(ending?.errors ?? "")")
            let options: [String: Variant] = ["notify": .string("never"), "directory": .string(place.files)]
            let asset = try await lane.registerAsset(AssetLife.app, "first", publisher.url, options)
            // The manifest is on the other disk. So the next call on this one is part of the look for room.
            place.reach(fault)
            let answer = Task { @BusActor in try? await lane.updateAsset(asset) }
            #expect(await eventually { place.hits == 1 })
            try await lane.unregisterAsset(asset, deletesData: false)
            #expect(await answer.value == nil)
            let calls = place.calls
            place.stopFaults()
            #expect(await eventually { place.calls > calls })
            // This call, too, looks at the folder, and so is answered after the look for room.
            _ = try await lane.registerAsset(AssetLife.app, "second", publisher.url, options)
            await lane.end(SIGTERM)
        }
    }
}

/// The first update of an asset, which is held while it is unpacked.
@BusActor private final class FirstUpdate {
    nonisolated static let name = "maps"

    let lane: Lane
    let place = Place()
    let asset: ObjectPath
    private let publisher: AssetPublisher
    /// How long `run` took.
    private var time = Duration.zero

    init(_ versions: [String: PublishedVersion], _ fault: Fault) async throws {
        lane = try await Lane(try await Shim.compiled())
        publisher = AssetPublisher(versions)
        publisher.publish("1")
        let ending = await lane.start(place, fault, more: ["XDG_DATA_HOME": place.files, "FAULTSHIM_HOLD": AssetStep.heldFile])
        try #require(ending == nil, "\(ending?.errors ?? "")")
        asset = try await lane.registerAsset(AssetLife.app, Self.name, publisher.url, ["notify": .string("never")])
    }

    var directory: String { "\(place.files)/todoku/assets/\(AssetLife.app)/\(Self.name)" }

    /// Whether the call in a log of one fault is a flush of the folder.
    nonisolated static func isFlush(_ log: String) -> Bool { log.contains("sync") && log.hasSuffix("/\(name)\n") }

    /// Updates twice. The first update finds the call that flushes the new link, and in the second update this call fails. After the hold,
    /// both updates make the same calls.
    ///
    /// - Returns: the second update, and the error of `Update`. `isSlow`: the calls may differ, because an unpacking that takes ten seconds
    ///   writes a checkpoint.
    static func failAtFlush(
        _ versions: [String: PublishedVersion]
    ) async throws -> (update: FirstUpdate, error: DBusError?, isSlow: Bool) {
        let counted = try await FirstUpdate(versions, Fault(kind: .eio, at: 0, disk: .downloads))
        var calls = 0
        #expect(await counted.run { calls = $0.calls } == nil)
        await counted.lane.end(SIGTERM)
        let lines = counted.place.log.split(separator: "\n").map { $0.split(separator: " ", maxSplits: 3).map(String.init) }
        let isSwitched = { (line: [String]) in line[2] == "rename" && line[3].hasSuffix("/.todoku-switch-current") }
        let flush = lines.drop { !isSwitched($0) }.first { $0[2].contains("sync") && $0[3].hasSuffix("/\(name)") }
        let number = try #require(flush.flatMap { Int($0[0]) }, "the link was not flushed")

        let fault = Fault(kind: .eio, at: 1_000_000, disk: .downloads)
        let failing = try await FirstUpdate(versions, fault)
        let error = await failing.run { $0.reach(Fault(kind: .eio, at: fault.at - (number - calls) + 1)) }
        return (failing, error, max(counted.time, failing.time) >= .seconds(10))
    }

    /// Updates.
    ///
    /// - Parameter body: called while the unpacking is held, and nothing else uses the disk of the folder.
    /// - Returns: the error of `Update`; nil: none.
    func run(_ body: (Place) -> Void) async -> DBusError? {
        place.hold(true)
        let begun = ContinuousClock.now
        defer { time = ContinuousClock.now - begun }
        let answer = Task { @BusActor [lane, asset] () -> DBusError? in
            do throws(DBusError) {
                _ = try await lane.updateAsset(asset)
                return nil
            } catch { return error }
        }
        #expect(await eventually { place.held == 1 })
        await place.waitForCalls()
        body(place)
        place.hold(false)
        return await answer.value
    }
}

extension Place {
    /// Waits until the threads of the daemon, and of its child, make no call for a while.
    fileprivate func waitForCalls() async {
        var (last, looks) = (calls, 0)
        _ = await eventually {
            let now = calls
            (last, looks) = (now, now == last ? looks + 1 : 0)
            return looks == 30
        }
    }
}

extension Lane {
    fileprivate func unregisterAsset(_ path: ObjectPath, deletesData: Bool) async throws(DBusError) {
        try await connection.call(
            Manager.unregisterAsset, on: BusName.service, at: BusName.managerPath, (path, deletesData), timeout: .seconds(60))
    }
}
