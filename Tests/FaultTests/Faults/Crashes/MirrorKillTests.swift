internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

extension `The fault campaign` {
    @Suite struct `kill -9 with eight connections and two mirrors` {
        @Test func `spoils no file, believes no mirror that is wrong, and costs at most 1 MiB again`() async throws {
            let report = await Report(
                "kill -9 with eight connections and two mirrors",
                notes: """
                    One file of 16 MB from three servers, eight connections, the daemon killed at a random call (before it, after it, or with half \
                    of its bytes written) or at a random time, every third one again while it recovers, then let finish. Half of the cases have a \
                    checksum. The others have piece hashes, and one mirror whose bytes are wrong in five places. Further cases have one server, \
                    and only its validator. In each case, eight responses were sent at the same time, from all servers.
                    """)
            let lane = try await Lane(try await Shim.compiled())
            let place = Place()
            let undisturbed = try await killed(DividedKill(kill: KillCase(counting: ()), proof: .checksum), lane, place)
            #expect(undisturbed.wrong == [] && place.calls > 0, "without a kill: \(undisturbed.wrong)")
            var random = SeededRandom(Length.seed)
            func cases(_ count: Int, _ proof: (Int) -> DividedKill.Proof) -> [DividedKill] {
                (0..<count).map { DividedKill(kill: KillCase($0, calls: place.calls, &random), proof: proof($0)) }
            }
            let mirrored = cases(490) { $0 / 4 % 2 == 1 ? .pieces : .checksum }
            let alone = cases(245) { _ in .validator }
            try await runCases(Length.sample(mirrored, 40) + Length.sample(alone, 12), report) { try await killed($0, $1) }
            let rows = ["checksum", "pieces"].flatMap { proof in ["kill", "kill-after", "kill by time"].map { "\(proof), \($0)" } }
            await report.finish(expecting: rows + ["validator, kill by time"])
        }
    }
}

/// A kill while eight connections fetch parts of a file.
private struct DividedKill: Sendable, CustomStringConvertible {
    /// Why the parts may be joined.
    enum Proof: String, Sendable {
        case checksum, pieces, validator
    }

    let kill: KillCase
    let proof: Proof
    var description: String { "\(proof.rawValue), \(kill)" }
    var row: String { "\(proof.rawValue), \(kill.row)" }
}

/// The file of these cases, and a copy that is wrong in five places.
private enum Mirrored {
    static let length = 1 << 20
    static let file = patternBytes(16 << 20, seed: 5)
    static let wrong: [UInt8] = {
        var bytes = file
        for place in [1 << 20, 3_000_000, 7_000_000, 10_000_000, bytes.count - 1] { bytes[place] ^= 0xFF }
        return bytes
    }()
}

/// How many bytes of the only part file are right, in whole blocks; 0 if there is not one part file.
private func written(in place: Place) -> Int {
    let (names, block) = (listFolder(place.files).filter { $0.hasSuffix(".part") }, 4096)
    guard names.count == 1, let bytes = readFile("\(place.files)/\(names[0])") else { return 0 }
    return block
        * stride(from: 0, to: min(bytes.count, Mirrored.file.count) - block + 1, by: block).count {
            bytes[$0..<$0 + block] == Mirrored.file[$0..<$0 + block]
        }
}

@BusActor private func killed(_ test: DividedKill, _ lane: Lane, _ place: Place = Place()) async throws -> Verdict {
    let hasPieces = test.proof == .pieces
    var verdict = Verdict(row: test.row, name: "\(test)")
    let servers = CaseServers(
        Mirrored.file, test.proof == .validator ? .several : .mirrors, name: "file", wrong: hasPieces ? Mirrored.wrong : nil)
    var options: [String: Variant] = [
        "directory": .string(place.files), "notify": .string("never"), "size": .uint64(UInt64(Mirrored.file.count)),
    ]
    options.merge(try await servers.options(place)) { $1 }
    if hasPieces {
        options["checksum"] = nil
        options["piece-hashes"] = .string(await pieceHashes(of: Mirrored.file, length: Mirrored.length))
    }
    var path: ObjectPath?
    var (kills, calls) = (0, 0)
    for moment in test.kill.moments {
        guard await startAlive(place, moment, lane, &verdict) else { return verdict }
        let begun = ContinuousClock.now
        if path == nil {
            calls += 1
            path = try? await lane.download(servers.url, options)
        }
        if case .time(let milliseconds) = moment {
            _ = await eventually(within: .milliseconds(milliseconds)) { ContinuousClock.now - begun >= .milliseconds(milliseconds) }
            kills += 1
        } else {
            // The shim has killed the daemon, or the download ended before that call.
            let isAlive = (try? await lane.settle([path].compactMap(\.self))) != nil && lane.isRunning
            if !isAlive { kills += 1 }
        }
        await lane.end(SIGKILL)
    }
    verdict.wasMet = kills > 0
    let (held, resumed) = (written(in: place), lane.resumed)
    guard await startInTheEnd(place, nil, lane, &verdict) else { return verdict }
    // A call that was killed before its answer may have left a download unknown to the caller, or none.
    var known = try await lane.describe()
    if known.isEmpty {
        calls += 1
        path = try await lane.download(servers.url, options)
        known = try await lane.describe()
    }
    let all = try await lane.settle(known.keys.map { ObjectPath($0) })
    verdict.expect(path.map { all[$0.value] != nil } ?? true, "the download was acknowledged and is gone")
    verdict.expect(all.values.allSatisfy { $0.state == "finished" }, "\(all.values.map(\.outcome)) \(all.values.map(\.error.message))")
    for download in all.values where download.state == "finished" {
        let isRight = fileHolds(download.path, Mirrored.file)
        verdict.expect(isRight, "\(download.path) holds wrong bytes")
        if isRight { verdict.right += 1 }
    }
    verdict.expect(all.count <= calls, "\(all.count) downloads for \(calls) calls")
    let fetched = servers.received(in: place)
    if !hasPieces {
        // Also without a kill, bytes are in flight when a response is cut. Of these the daemon reads at most one buffer, of 512 KiB. A kill
        // costs 1 MiB, not 1 MiB for each connection: the daemon reads one response at a time, and all connections share one buffer of
        // bytes that are not written yet.
        let answers = servers.requestCount
        let most = all.count * (Mirrored.file.count + kills << 20) + answers << 19
        verdict.expect(fetched <= most, "\(fetched) bytes were fetched for \(Mirrored.file.count), more than \(most)")
        // A kill loses at most one write: the one that the written map does not have yet.
        if all.count == 1, held < Mirrored.file.count, let path = all.keys.first {
            let offset = Int(lane.resumed[path]?.dropFirst(resumed[path]?.count ?? 0).first ?? 0)
            verdict.expect(offset + max(1, kills) << 20 >= held, "it resumed from \(offset) bytes, and \(held) were written")
        }
    } else if let url = all.keys.first {
        let sources = try await lane.connection.call(
            Standard.get, on: BusName.service, at: ObjectPath(url), (Download.interface, Download.sources.name), timeout: .seconds(60))
        let left = SourceList(sources)?.sources.map(\.left) ?? []
        verdict.expect(left.count == 3 && left[0] == nil && left[2] == nil, "these were left: \(left)")
    }
    servers.expectSeveral(&verdict)
    await expectNoTraces(of: all.values.map { String($0.path.split(separator: "/").last ?? "") }, place, lane, &verdict)
    await lane.end(SIGKILL)
    return verdict
}
