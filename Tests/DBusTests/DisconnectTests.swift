internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DBus

@Suite(.timeLimit(.minutes(5))) struct `The end of the bus` {
    @Test @BusActor func `is reported once, ends pending calls, and does no harm afterwards`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let answers = Answers()
        let log = Log()
        service.connection.onDisconnect = { log.add("service") }
        client.onDisconnect = { log.add("client") }
        for number in 0..<3 {
            BusActor.spawn {
                answers.add(
                    number,
                    await attempt { try await client.call(Shelf.keep, on: TestService.name, at: ShelfTree.path, .byte(1), timeout: nil) })
            }
        }
        #expect(await eventually { service.object.kept.count == 3 })
        await service.bus.stop()
        #expect(await eventually { log.lines.count == 2 && answers.all.count == 3 })
        #expect(Set(log.lines) == ["service", "client"])
        for (_, answer) in answers.all {
            #expect(["org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Disconnected"].contains(answer))
        }
        // All later calls are harmless.
        for reply in service.object.kept { reply("too late") }
        service.object.kept = []
        service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("x", 1)))
        service.connection.flush()
        service.connection.dispatchArrived()
        _ = service.connection.watchOwner(of: ":1.7") { _ in }
        service.connection.unsubscribe(service.connection.subscribe(MatchRule(interface: "a.b")) { _ in })
        #expect(service.connection.outgoingBytes >= 0)
        #expect(throws: DBusError.self) { try service.connection.requestName("org.todoku.Other") }
        #expect(throws: DBusError.self) { try service.connection.releaseName("org.todoku.Other") }
        let again = await attempt { "\(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (1, 2)))" }
        #expect(again == "org.freedesktop.DBus.Error.Disconnected")
        #expect(log.lines.count == 2)
    }

    @Test @BusActor func `of a bus killed with many messages in flight is survived, too`() async throws {
        let service = try await TestService()
        let client = try service.client()
        let answers = Answers()
        let text = String(repeating: "x", count: 1 << 20)
        for number in 0..<20 {
            BusActor.spawn {
                answers.add(
                    number, await attempt { "\(try await client.call(Shelf.length, on: TestService.name, at: ShelfTree.path, text))" })
            }
        }
        #expect(await eventually { !answers.all.isEmpty })
        await service.bus.stop()
        #expect(await eventually { answers.all.count == 20 })
    }

    @Test @BusActor func `no bus at an address is an error`() async throws {
        let folder = TemporaryFolder()
        #expect(throws: DBusError.self) { try Connection.open(address: "unix:path=\(folder("bus"))") }
        #expect(throws: DBusError.self) { try Connection.open(address: "nonsense") }
        #expect(throws: DBusError.self) { try Connection.open(address: "") }
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A connection` {
    @Test @BusActor func `goes with its last reference, and the bus sees it`() async throws {
        let service = try await TestService()
        var client: Connection? = try service.client()
        let name = try #require(client?.uniqueName)
        weak let observed = client
        #expect(try await service.connection.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, name))
        _ = client?.watchOwner(of: TestService.name) { _ in }
        if let client { try await roundTrip(client) }
        client = nil
        #expect(await eventually { await service.bus.hasOwner(name) == false })
        #expect(observed == nil)
    }

    @Test @BusActor func `may lose its last reference in a handler of its own`() async throws {
        let service = try await TestService()
        let holder = Holder()
        holder.connection = try service.client()
        let name = try #require(holder.connection?.uniqueName)
        _ = holder.connection?.subscribe(MatchRule(interface: Shelf.interface)) { _ in holder.connection = nil }
        if let connection = holder.connection { try await roundTrip(connection) }
        for _ in 0..<100 { service.connection.send(Shelf.changed.message(from: ShelfTree.path, ("x", 1))) }
        #expect(await eventually { await service.bus.hasOwner(name) == false })
        #expect(holder.connection == nil)
    }

    @Test func `may lose its last reference on a foreign thread while input waits`() async throws {
        await #expect(processExitsWith: .success) {
            let service = try await TestService()
            let dropped = Journal()
            for _ in 0..<5 {
                try await { @BusActor in
                    let (owner, name) = try await lentClient(of: service)
                    // Many descriptors, including the connection's, are ready in one turn. The first handler waits while another thread
                    // releases the connection.
                    let pipes = (0..<32).map { _ in TestPipe() }
                    nonisolated(unsafe) var isFirst = true  // on the bus loop only
                    nonisolated(unsafe) var tokens: [Poller.Token] = []
                    await withCheckedContinuation { done in
                        for pipe in pipes {
                            tokens.append(
                                Poller.shared.watch(pipe.readEnd, for: .readable) { _ in
                                    pipe.take()
                                    guard isFirst else { return }
                                    isFirst = false
                                    let gone = TestPipe()
                                    startThread("test-dropper") {
                                        owner.drop()
                                        gone.put()
                                    }
                                    gone.take()
                                    Poller.shared.schedule(after: .milliseconds(20)) { done.resume() }
                                })
                        }
                        // All of this is one job, so the loop polls only afterwards.
                        try? service.ping(name)
                        for pipe in pipes { pipe.put() }
                    }
                    for token in tokens { Poller.shared.cancel(token) }
                    dropped.count += 1
                }()
            }
            let count = await dropped.count
            precondition(count == 5)
        }
    }

    @BusActor final class Journal: Sendable {
        var count = 0
        nonisolated init() {}
    }
}

/// A client whose only reference is the owner's.
@BusActor private func lentClient(of service: TestService) async throws -> (Owner, String) {
    let connection = try service.client()
    try await roundTrip(connection)
    return (Owner(connection), connection.uniqueName)
}

@BusActor final class Holder: Sendable {
    var connection: Connection?
}

/// Holds a connection that any thread may release.
final class Owner: Sendable {
    private nonisolated(unsafe) var connection: Connection?  // touched by one thread after the other
    init(_ connection: Connection) { self.connection = connection }
    func drop() { connection = nil }
}

/// A pipe that is closed with its last reference.
final class TestPipe: Sendable {
    let readEnd: Int32
    private let writeEnd: Int32

    init() {
        var ends: [Int32] = [0, 0]
        precondition(pipe(&ends) == 0)
        (readEnd, writeEnd) = (ends[0], ends[1])
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    func put() { precondition(write(writeEnd, [1], 1) == 1) }
    func take() {
        var byte: UInt8 = 0
        precondition(read(readEnd, &byte, 1) == 1)
    }
}
