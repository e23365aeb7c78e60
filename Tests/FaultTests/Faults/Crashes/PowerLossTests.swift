internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `A power cut` {
        @Test func `after any change to the disk leaves every promise kept`() async throws {
            let report = await Report(
                "Power cuts",
                notes: """
                    The daemon's writes, names and fsyncs are recorded, and the disk rebuilt as a cut after each of them may leave it: with all lost that \
                    was not durable, with nothing lost, or with some (pages, lengths, names; by seed). On each disk the daemon starts under another \
                    boot id and goes on. With eight connections, each of them has a part of the file when the daemon is ended.
                    """)
            try await runCases(Scenario.allCases, report, lanes: Scenario.allCases.count) { scenario, lane in
                try await cutPower(in: scenario, lane, report)
                return Verdict(row: "", name: "", wasMet: false)
            }
            await report.finish()
        }
    }
}

/// The daemon's work while its changes are recorded.
private enum Scenario: String, CaseIterable, CustomStringConvertible, Sendable {
    case whole = "with a checksum"
    case ended = "ended by SIGTERM in the middle"
    case killed = "killed in the middle"
    case replace = "over a file that is there"
    case plain = "without a validator"
    case making = "into the default folder, which is made"
    case several = "three at a time, one fails, one is cancelled"
    case divided = "ended by SIGTERM in the middle, 8 connections"
    case dividedKilled = "killed in the middle, 8 connections"
    case mirrored = "ended by SIGTERM in the middle, 8 connections and 2 mirrors"
    case mirroredKilled = "killed in the middle, 8 connections and 2 mirrors"

    var description: String { rawValue }
    var isStopped: Bool { isKilled || [.ended, .divided, .mirrored].contains(self) }
    var isKilled: Bool { [.killed, .dividedKilled, .mirroredKilled].contains(self) }
    var way: Way {
        switch self {
        case .divided, .dividedKilled: .several
        case .mirrored, .mirroredKilled: .mirrors
        default: .one
        }
    }
    /// How many of the recorded changes a short run cuts at.
    var sample: Int { way == .one ? 24 : 12 }
}

private let size = 1_500_000
private let body = Array(Bodies.large[..<size])
private let older = Array("the older file".utf8)

/// The files and server of a scenario, and the acknowledged downloads.
@BusActor private final class Recording {
    let place = Place()
    let scenario: Scenario
    let gate = Gate()
    let server: ScriptedServer
    /// The servers of a file that several connections fetch.
    let servers: CaseServers
    var paths: [String: ObjectPath] = [:]
    var disk: Disk
    /// Of the downloads.
    var folder: String { scenario == .making ? "\(place.files)/made/downloads" : place.files }
    /// Variables of every daemon.
    var more: [String: String] { scenario == .making ? ["XDG_CONFIG_HOME": place.folder("config")] : [:] }
    /// The content of the download folder at the end.
    var last: [String: [UInt8]] = [:]

    init(_ scenario: Scenario) {
        (self.scenario, disk) = (scenario, Disk(roots: [place.state, place.files]))
        let gate = gate
        servers = CaseServers(body, scenario.way, middle: .cut(gate))
        server = ScriptedServer { request, reply in
            if request.path == "/none.bin" { return reply.respond(404) }
            // Hold the first request of a stopped scenario in its middle; the cancelled download waits for the gate as well.
            if (scenario.isStopped && request.number == 0) || (request.path == "/cancelled.bin" && !gate.isOpen) {
                reply.head(200, ["ETag": "\"v1\""], length: body.count)
                reply.send(body[..<1_200_000])
                gate.wait()
                return reply.close()
            }
            reply.serve(body, for: request, entityTag: scenario == .plain ? nil : "\"v1\"")
        }
        if scenario == .making {
            place.folder.makeFolder("config")
            writeFile(place.folder("config/user-dirs.dirs"), "XDG_DOWNLOAD_DIR=\"\(folder)\"\n".utf8)
        }
        if scenario == .replace {
            writeFile("\(place.files)/a.bin", older)
            var status = stat()
            precondition(stat("\(place.files)/a.bin", &status) == 0)
            disk.put("\(place.files)/a.bin", inode: UInt64(status.st_ino), older)
        }
    }

    /// Runs the scenario under the recorder.
    func record(_ lane: Lane) async throws -> RecordedLog {
        let more = more.merging(["FAULTSHIM_RECORD": place.folder("record")]) { $1 }
        func start() async throws {
            if let exit = await lane.start(place, nil, more: more) { throw Shim.Unusable(reason: "no start: \(exit)") }
        }
        try await start()
        var options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never")]
        if scenario == .making { options["directory"] = nil }
        if scenario == .replace { options["if-exists"] = .string("replace") }
        if scenario == .whole { options["checksum"] = .string("sha256:\(try await Bodies.digest(body, place))") }
        for name in scenario == .several ? ["a.bin", "none.bin", "cancelled.bin"] : ["a.bin"] {
            let url = scenario.way == .one ? server.url("/\(name)") : servers.url
            paths[name] = try await lane.download(url, options.merging(try await servers.options(place)) { $1 })
        }
        if scenario.isStopped, let path = paths["a.bin"] {
            let early = scenario.way == .one ? 1_200_000 : UInt64(servers.early)
            #expect(await eventually { (lane.received[path.value] ?? 0) >= early })
            await lane.end(scenario.isKilled ? SIGKILL : SIGTERM)
            gate.open()
            try await start()
        }
        if let path = paths["cancelled.bin"] {
            #expect(await eventually { (lane.received[path.value] ?? 0) >= 1_200_000 })
            try await lane.cancel(path)
        }
        _ = try await lane.settle(Array(paths.values))
        await lane.end(SIGTERM)
        gate.open()
        var verdict = Verdict(row: "", name: "")
        servers.expectSeveral(&verdict)
        #expect(verdict.wrong == [])
        last = Dictionary(
            uniqueKeysWithValues: listFolder(folder).map { ("\(folder)/\($0)", readFile("\(folder)/\($0)") ?? []) })
        return try RecordedLog(place.folder("record"))
    }
}

@BusActor private func cutPower(in scenario: Scenario, _ lane: Lane, _ report: Report) async throws {
    let recording = Recording(scenario)
    let log = try await recording.record(lane)
    let count = log.changes.count
    #expect(log.changes.contains { if case .sync = $0 { true } else { false } }, "no fsync was recorded")
    var (told, seen) = (Facts(), Set<Int>())
    // Several connections write small stretches by turns: of these many changes, every third one.
    let points = Set(Length.sample(Array(stride(from: 0, to: count, by: scenario.way == .one ? 1 : 3)), scenario.sample))
    for (index, change) in log.changes.enumerated() {
        recording.disk.make(change)
        if case .told(let one) = change { told.take(one) }
        guard points.contains(index) else { continue }
        let seed = Length.seed &* 1_000_003 &+ UInt64(index) &* 2
        let losses: [Disk.Loss] =
            Length.isFull
            ? [.all, .nothing, .some(seed: seed), .some(seed: seed + 1)]
            : [[.all, .nothing][index % 2], .some(seed: seed)]
        for loss in losses {
            let remains = recording.disk.afterPowerCut(loss)
            var hasher = Hasher()
            hasher.combine(remains)
            hasher.combine(told.acknowledged.count + told.ended.count)
            guard seen.insert(hasher.finalize()).inserted else { continue }
            let name = "\(scenario), change \(index) of \(count) (\(change.name)), \(loss)"
            if let only = Length.only, !name.hasPrefix(only) { continue }
            lane.begin()
            var verdict = Verdict(row: scenario.rawValue, name: name)
            do { try await goOn(with: remains, told, recording, lane, &verdict) } catch {
                verdict.wrong.append("a call failed: \(error)\(await lane.lastWords())")
            }
            if lane.isRunning { await lane.end(SIGKILL) }
            report.take(verdict)
        }
    }
    // The record is complete: replaying its changes gives the existing files.
    let again = recording.disk.afterPowerCut(.nothing).files.filter { $0.key.folderName == recording.folder }.mapValues(\.bytes)
    #expect(again == recording.last, "the record missed changes: \(again.keys.sorted()) for \(recording.last.keys.sorted())")
}

private struct Facts {
    var acknowledged: Set<String> = []
    var ended: [String: String] = [:]

    mutating func take(_ told: Told) {
        switch told {
        case .acknowledged(let path): acknowledged.insert(path)
        case .ended(let path, let outcome): ended[path] = outcome
        case .started, .stage, .ready, .rolledBack, .unregistered: break
        }
    }
}

/// Starts the daemon on the disk after a power cut, and checks that everything reported before still holds.
@BusActor private func goOn(
    with remains: Disk.Remains, _ told: Facts, _ recording: Recording, _ lane: Lane, _ verdict: inout Verdict
) async throws {
    let place = recording.place
    let file = remains.files["\(recording.folder)/a.bin"]?.bytes
    let isOld = recording.scenario == .replace && file == older
    verdict.expect(file == nil || file == body || isOld, "the final path holds \(file?.count ?? 0) bytes that are not the file")
    let more = rebuild(remains, place).merging(recording.more) { $1 }
    if let exit = await lane.start(place, nil, more: more) {
        verdict.wrong.append("it did not start: \(exit)")
        return
    }
    let first = try await lane.describe()
    for path in told.acknowledged {
        verdict.expect(first[path] != nil, "\(path.lastName) was acknowledged and is gone")
    }
    for (path, outcome) in told.ended {
        verdict.expect(first[path]?.state == outcome, "\(path.lastName) had \(outcome) and is \(first[path]?.state ?? "gone")")
    }
    let end = try await lane.settle(first.keys.map { ObjectPath($0) })
    var names = recording.scenario == .replace ? ["a.bin"] : []
    for (path, download) in end {
        let name = recording.paths.first { $0.value.value == path }?.key ?? "?"
        verdict.expect(told.ended[path] == nil || lane.count("Completed", ObjectPath(path)) == 0, "Completed came again for \(name)")
        switch download.state {
        case "finished":
            let isRight = fileHolds(download.path, body)
            verdict.expect(isRight, "\(download.path) holds wrong bytes")
            if isRight { verdict.right += 1 }
            names.append(download.path.lastName)
            verdict.expect(name != "none.bin", "what is not there finished")
        case "failed" where name == "none.bin": verdict.tell(download.error.message, "the owner of \(name)")
        case "cancelled" where name == "cancelled.bin": break
        default: verdict.wrong.append("\(name) is \(download.outcome) \(download.waitReason) \(download.error.message)")
        }
    }
    await expectNoTraces(of: Array(Set(names)), in: recording.folder, place, lane, &verdict, mayHaveLost: told.acknowledged.isEmpty)
}

/// Recreates the folders and files. Returns variables that tell the daemon the old inodes and another boot id.
@discardableResult @BusActor func rebuild(_ remains: Disk.Remains, _ place: Place) -> [String: String] {
    removeContents(place.state)
    removeContents(place.files)
    var inodes = ""
    for folder in remains.folders {
        mkdir(folder.path, 0o700)
        inodes += "\(inode(of: folder.path)) \(folder.inode)\n"
    }
    for (path, content) in remains.files {
        writeFile(path, content.bytes, mode: 0o600)
        inodes += "\(inode(of: path)) \(content.inode)\n"
    }
    for (path, target) in remains.links { precondition(symlink(target, path) == 0) }
    writeFile(place.folder("inodes"), inodes.utf8)
    writeFile(place.folder("boot"), "00000000-1111-4222-8333-444444444444\n".utf8)
    return ["FAULTSHIM_INODES": place.folder("inodes"), "FAULTSHIM_BOOT": place.folder("boot")]
}

private func removeContents(_ folder: String) {
    for name in listFolder(folder) {
        let path = "\(folder)/\(name)"
        var status = stat()
        if lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFDIR { removeContents(path) }
        remove(path)
    }
}
