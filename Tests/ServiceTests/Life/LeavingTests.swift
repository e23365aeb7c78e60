internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// The service gets SIGTERM while calls are in progress: it identifies their callers, admits their downloads, changes many downloads, or
/// writes long answers.
@Suite(.timeLimit(.minutes(10))) struct `A service that is told to end` {
    private static let options: [String: Variant] = ["start": .bool(false), "notify": .string("never")]

    /// Each call comes from a connection that has not called before. The bus refuses the calls that come after the release of the name.
    @Test func `answers the first calls of many callers`() async throws {
        #expect(try await inTime { try await answersFirstCalls() }, "each time, the service identified its last callers too slowly")
    }

    /// - Returns: false if a call got no answer, and the end took so long that it did not wait for the answer: after the release of its
    ///   name, the service waits for five seconds.
    private func answersFirstCalls() async throws -> Bool {
        let world = await ServiceWorld()
        var saved = 0
        for _ in 1...5 {
            let daemon = await world.start()
            let (queued, lost, took) = await onThread { [bus = world.bus, process = daemon.pid] () -> (Int, [String], Duration) in
                let arguments: [Variant] = [.string("http://127.0.0.1:1/"), .dictionary(Self.options)]
                let calls = (0..<30).map { _ in
                    let caller = RawCaller(bus)
                    return (caller, caller.call(BusName.managerPath.value, Manager.interface, Manager.download.name, arguments))
                }
                // The service has a call before it ends.
                var answers = [calls[0].0.answer(to: calls[0].1)]
                for (caller, _) in calls { caller.flush() }
                let told = ContinuousClock.now
                kill(process, SIGTERM)
                for (caller, serial) in calls.dropFirst() { answers.append(caller.answer(to: serial)) }
                var (queued, lost): (Int, [String]) = (0, [])
                for answer in answers {
                    switch answer.map(\.errorName) ?? "no answer" {
                    case "": queued += 1
                    case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner": break
                    case let name: lost.append("\(name): \(answer?.text ?? "")")
                    }
                }
                return (queued, lost, ContinuousClock.now - told)
            }
            if !lost.isEmpty, took > .seconds(5) {
                print("leaving: the calls \(lost) got no answer in \(took)")
                return false
            }
            #expect(await daemon.wait().isClean)
            #expect(await world.bus.waitForOwner(BusName.service, present: false))
            #expect(lost == [] && queued >= 1)
            saved += queued
        }
        let daemon = await world.start()
        #expect(try await world.client().get(Manager.remaining) == UInt32(saved))
        #expect(await world.stop(daemon).isClean)
        return true
    }

    @Test func `queues the batch that it is reading`() async throws {
        let world = await ServiceWorld()
        let daemon = await world.start()
        let count = 4000
        let error = await onThread { [bus = world.bus, process = daemon.pid] () -> String? in
            let items = (0..<count).map { number in
                Variant.structure([.string("http://127.0.0.1:1/\(number)"), .dictionary(["filename": .string("file-\(number)")])])
            }
            let caller = RawCaller(bus)
            let batch = caller.call(
                BusName.managerPath.value, Manager.interface, Manager.downloadBatch.name,
                [.array(of: "(sa{sv})", items), .dictionary(Self.options)])
            // The service has begun to read the batch once it answers the next call.
            let next = caller.callLast()
            caller.flush()
            while let answer = caller.readAnswer() {
                if answer.replySerial == next { kill(process, SIGTERM) }
                if answer.replySerial == batch { return answer.errorName }
            }
            return nil
        }
        #expect(error == "")
        #expect(await daemon.wait().isClean)
        #expect(await world.bus.waitForOwner(BusName.service, present: false))
        let again = await world.start()
        #expect(try await world.client().get(Manager.remaining) == UInt32(count))
        #expect(await world.stop(again).isClean)
    }

    @Test func `completes the Cancel of a batch`() async throws {
        let running = try await Running.start()
        let (world, daemon) = (running.world, running.daemon)
        let (batch, members) = try await running.batch((1...4000).map { "http://127.0.0.1:1/\($0)" }, Self.options)
        let error = await onThread { [bus = world.bus, process = daemon.pid] () -> String? in
            let caller = RawCaller(bus)
            let cancel = caller.call(batch.value, Batch.interface, Batch.cancel.name)
            // The service has cancelled the first members once it answers the next call.
            let next = caller.callLast()
            caller.flush()
            while let answer = caller.readAnswer() {
                if answer.replySerial == next { kill(process, SIGTERM) }
                if answer.replySerial == cancel { return answer.errorName }
            }
            return nil
        }
        #expect(error == "")
        #expect(await daemon.wait().isClean)
        #expect(await world.bus.waitForOwner(BusName.service, present: false))
        let again = await world.start()
        #expect(try await running.client.counts(batch) == [0, 0, 0, UInt32(members.count)])
        #expect(await world.stop(again).isClean)
    }

    /// While one of these answers is written, the others wait.
    @Test func `writes all long answers`() async throws {
        let running = try await Running.start()
        let (world, daemon) = (running.world, running.daemon)
        _ = try await running.batch((1...1000).map { "http://127.0.0.1:1/\($0)" }, Self.options)
        let (answered, errors) = await onThread { [bus = world.bus, process = daemon.pid] () -> (Int, [String]) in
            let caller = RawCaller(bus)
            let arguments: [Variant] = [.dictionary([:]), .strings([])]  // all properties
            let calls = Set(
                (1...20).map { _ in
                    caller.call(BusName.managerPath.value, Manager.interface, Manager.describe.name, arguments)
                })
            caller.flush()
            var (answered, errors): (Int, [String]) = (0, [])
            while answered < calls.count, let answer = caller.readAnswer() {
                guard calls.contains(answer.replySerial) else { continue }
                if answered == 0 { kill(process, SIGTERM) }
                answered += 1
                if !answer.errorName.isEmpty { errors.append(answer.errorName) }
            }
            return (answered, errors)
        }
        #expect(answered == 20 && errors == [])
        #expect(await daemon.wait().isClean)
    }
}
