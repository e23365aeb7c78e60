internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DBus

/// A service behind a gate. The gate inspects callers in this process only when `door` opens, and foreign programs at once.
@BusActor private final class Guarded: Sendable {
    let service: TestService
    let door = Gate()
    let gate: CallerGate
    let looks = Looks()

    init(patience: Duration = .seconds(240), _ finding: @escaping @Sendable (Int) -> CallerFinding = { _ in .known(.user) }) async throws {
        service = try await TestService()
        let (door, looks, own) = (door, looks, UInt32(getpid()))
        gate = CallerGate(limitError: { DBusError("org.todoku.Error.Limit", $0) }, patience: patience) { credentials, arrival in
            if credentials.processID == own {
                looks.begin()
                door.wait()
            }
            return finding(looks.add(credentials, arrival))
        }
        service.connection.guardCalls(by: gate)
    }

    /// Calls `Touch` from `client`, in the order of these calls. Its result is in `answers` under `number`.
    func touch(_ client: Connection, _ text: String, _ number: Int, _ answers: Answers) {
        BusActor.spawn {
            answers.add(
                number,
                await attempt {
                    // Held calls wait for whatever the test does meanwhile, such as to run programs.
                    try await client.call(Shelf.touch, on: TestService.name, at: ShelfTree.path, text, timeout: .seconds(240))
                    return text
                })
        }
    }

    /// Returns once the bus has passed on all messages sent before.
    func barrier(_ client: Connection) async throws {
        _ = try await client.call(BusDaemon.nameHasOwner, on: BusDaemon.name, at: BusDaemon.path, TestService.name)
    }
}

/// The inspections of callers, counted on the pool's threads.
private final class Looks: Sendable {
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>  // any thread may use a pthread mutex
    private nonisolated(unsafe) var all: [(ConnectionCredentials, Duration)] = []  // between lock and unlock only
    private nonisolated(unsafe) var begunCount = 0  // between lock and unlock only

    init() {
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
    }
    deinit { mutex.deallocate() }

    /// An inspection of this process begins.
    func begin() {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        begunCount += 1
    }

    var begun: Int {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return begunCount
    }

    /// Records an inspection, and returns their number.
    func add(_ credentials: ConnectionCredentials, _ arrival: Duration) -> Int {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        all.append((credentials, arrival))
        return all.count
    }

    var seen: [(credentials: ConnectionCredentials, arrival: Duration)] {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return all
    }
}

extension Answers {
    fileprivate func of(_ number: Int) -> String? { all.first { $0.0 == number }?.1 }
}

/// One test at a time, because all use the threads that inspect callers, and some keep them busy.
@Suite(.serialized, .timeLimit(.minutes(5))) struct `Before a caller is identified` {
    @Test @BusActor func `its calls wait and are answered in order, and other calls are answered meanwhile`() async throws {
        let guarded = try await Guarded()
        let client = try guarded.service.client()
        let answers = Answers()
        for number in 0..<100 { guarded.touch(client, "\(number)", number, answers) }
        #expect(await eventually { guarded.gate.isAsking })
        #expect(await guarded.service.call(Shelf.interface, "Add", "uu", "1", "2").output == "u 3\n")
        #expect(await guarded.service.gdbus("\(Shelf.interface).Add", "1", "2").output == "(uint32 3,)\n")
        #expect(guarded.service.object.calls == ["Add", "Add"])
        guarded.door.open()
        guarded.touch(client, "100", 100, answers)
        #expect(await eventually { answers.all.count == 101 })
        #expect(guarded.service.object.calls == ["Add", "Add"] + (0...100).map { "\($0)" })
        #expect((0...100).allSatisfy { answers.of($0) == "\($0)" })
        #expect(!guarded.gate.isAsking)
    }

    @Test @BusActor func `the bus is asked about a connection once, and forgets it when it leaves`() async throws {
        let guarded = try await Guarded()
        guarded.door.open()
        let client = try guarded.service.client()
        for _ in 0..<10 { _ = try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (1, 2)) }
        #expect(guarded.looks.seen.count == 1)
        #expect(guarded.looks.seen.first?.credentials.processID == UInt32(getpid()))
        #expect(guarded.looks.seen.first?.credentials.userID == geteuid())
        let boot = guarded.looks.seen.first?.arrival ?? .zero
        #expect(boot > .zero)
        _ = await guarded.service.call(Shelf.interface, "Add", "uu", "1", "2")
        #expect(guarded.looks.seen.count == 2)
        #expect(await eventually { guarded.gate.connectionCount == 1 })  // busctl has left
    }

    @Test @BusActor func `its calls are dropped when it leaves`() async throws {
        let guarded = try await Guarded()
        var client: Connection? = try guarded.service.client()
        for text in ["a", "b"] {
            client?.send(touching(text))
        }
        #expect(await eventually { guarded.gate.isAsking })
        client?.flush()
        client = nil
        #expect(await eventually { guarded.gate.connectionCount == 0 })
        #expect(!guarded.gate.isAsking)
        guarded.door.open()
        #expect(await guarded.service.call(Shelf.interface, "Add", "uu", "1", "2").output == "u 3\n")
        #expect(guarded.service.object.calls == ["Add"])
    }

    private func touching(_ text: String) -> Message {
        let message = Message.call(to: TestService.name, path: ShelfTree.path.value, interface: Shelf.interface, member: Shelf.touch.name)
        var writer = Writer(appendingTo: message.raw)
        text.write(to: &writer)
        return message
    }

    @Test @BusActor func `calls beyond a number are refused at once, the others answered`() async throws {
        let guarded = try await Guarded()
        let client = try guarded.service.client()
        for _ in 0..<CallerGate.mostCalls { client.send(touching("x")) }
        let answers = Answers()
        guarded.touch(client, "one too many", 1, answers)
        #expect(await eventually { answers.of(1) != nil })
        #expect(answers.of(1) == "org.todoku.Error.Limit")
        guarded.door.open()
        #expect(await eventually { !guarded.gate.isAsking })
        guarded.touch(client, "later", 2, answers)
        #expect(await eventually { answers.of(2) != nil })
        #expect(answers.of(2) == "later")
        #expect(guarded.service.object.calls.count == CallerGate.mostCalls + 1)
    }

    @Test @BusActor func `calls beyond a number of bytes are refused at once, and never stop the service from reading`() async throws {
        if underSanitizer() == "thread" {
            return print("gate: under the thread sanitizer 80 MiB of messages outlast the calls' patience: not checked")
        }
        let guarded = try await Guarded()
        let client = try guarded.service.client()
        let large = String(repeating: "x", count: 1 << 20)
        // libdbus stops reading while 63 MiB of messages live. It would then never read the answer that the gate waits for.
        for _ in 0..<80 { client.send(touching(large)) }
        let answers = Answers()
        guarded.touch(client, large, 1, answers)
        #expect(await eventually { answers.of(1) != nil })
        #expect(answers.of(1) == "org.todoku.Error.Limit")
        #expect(await guarded.service.call(Shelf.interface, "Add", "uu", "1", "2").output == "u 3\n")  // there is room for small ones
        guarded.door.open()
        #expect(await eventually { !guarded.gate.isAsking })
        guarded.touch(client, "later", 2, answers)
        #expect(await eventually { answers.of(2) != nil })
        #expect(answers.of(2) == "later")
        #expect((28...32).contains(guarded.service.object.calls.count { $0.utf8.count > 5 }))
    }

    @Test @BusActor func `callers whose inspection hangs are refused, and delay no other caller`() async throws {
        let guarded = try await Guarded(patience: .seconds(5))
        let clients = try (0..<10).map { _ in try guarded.service.client() }
        let answers = Answers()
        for (number, client) in clients.enumerated() { guarded.touch(client, "x", number, answers) }
        #expect(await eventually { answers.all.count == clients.count })
        #expect(answers.all.allSatisfy { $0.1 == "org.freedesktop.DBus.Error.Failed" })
        // The pool has fewer than ten threads, so each hanging thread is replaced. A caller whose inspection never began is inspected at a
        // later call. Any other caller is not inspected again while its inspection hangs.
        var number = clients.count
        var isLast = false
        while !isLast {
            isLast = guarded.looks.begun >= clients.count
            for client in clients {
                guarded.touch(client, "y", number, answers)
                number += 1
            }
            #expect(await eventually { answers.all.count == number })
        }
        // On a busy machine, the inspection of another caller may begin five seconds late. The caller is refused then, and calls again.
        var others: [Child.Exit] = []
        while others.count < 5, others.last?.status != 0 {
            others.append(await guarded.service.call(Shelf.interface, "Add", "uu", "1", "2"))
        }
        #expect(others.last?.output == "u 3\n", "\(others)")
        #expect(guarded.looks.begun == clients.count)
        #expect(answers.all.allSatisfy { $0.1 == "org.freedesktop.DBus.Error.Failed" })
        #expect(guarded.service.object.calls == ["Add"])
        guarded.door.open()
        #expect(await eventually { guarded.looks.seen.count { $0.credentials.processID == UInt32(getpid()) } == clients.count })
        // The gate learns of the end of an inspection a moment after `looks` has counted it. Until then it refuses the caller.
        repeat {
            number += 1
            guarded.touch(clients[0], "later", number, answers)
            #expect(await eventually { answers.of(number) != nil })
        } while answers.of(number) == "org.freedesktop.DBus.Error.Failed"
        #expect(answers.of(number) == "later")
    }

    /// A call with `count` descriptors of one file.
    private func bringing(_ count: Int, of file: Int32) -> Message {
        let message = Message.call(to: TestService.name, path: ShelfTree.path.value, interface: Shelf.interface, member: "NoSuchMember")
        var writer = Writer(appendingTo: message.raw)
        for _ in 0..<count { FileDescriptor(file).write(to: &writer) }
        return message
    }

    @Test(arguments: [true, false]) @BusActor
    func `its descriptors are closed when it leaves or is refused`(leaves: Bool) async throws {
        let guarded = try await Guarded { _ in .refused(DBusError("org.todoku.Error.No", "who?")) }
        let folder = TemporaryFolder("todoku-gate")
        let file = open(folder("x"), O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        defer { close(file) }
        var client: Connection? = try guarded.service.client()
        for _ in 0..<5 { client?.send(bringing(3, of: file)) }
        client?.flush()
        #expect(await eventually { openFiles(of: getpid(), below: folder.path) == 1 + 15 })  // the rest is held
        if leaves { client = nil } else { guarded.door.open() }
        #expect(await eventually { openFiles(of: getpid(), below: folder.path) == 1 })
        guarded.door.open()
    }

    @Test @BusActor func `calls beyond a number of descriptors are refused at once, and never stop the service from reading`() async throws
    {
        let guarded = try await Guarded()
        let client = try guarded.service.client()
        let folder = TemporaryFolder("todoku-gate")
        let file = open(folder("x"), O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        defer { close(file) }
        // The bus passes on at most 16 descriptors with a message.
        for _ in 0..<100 {
            client.send(bringing(16, of: file))
            client.flush()
        }
        #expect(await eventually { openFiles(of: getpid(), below: folder.path) == 1 + CallerGate.mostDescriptors })
        let answers = Answers()
        guarded.touch(client, "without descriptors", 1, answers)
        #expect(await guarded.service.call(Shelf.interface, "Add", "uu", "1", "2").output == "u 3\n")
        guarded.door.open()
        #expect(await eventually { answers.of(1) == "without descriptors" })
        #expect(await eventually { openFiles(of: getpid(), below: folder.path) == 1 })
        // The limit counts held calls only.
        let unknown = MethodOf(Shelf.interface, "NoSuchMember", in: FileDescriptor.self)
        for number in 2..<202 {
            answers.add(
                number,
                await attempt {
                    try await client.call(unknown, on: TestService.name, at: ShelfTree.path, FileDescriptor(file))
                    return ""
                })
        }
        #expect((2..<202).allSatisfy { answers.of($0) == "org.freedesktop.DBus.Error.UnknownMethod" })
    }

    @Test @BusActor func `an unknown caller is refused, and looked up again at its next call`() async throws {
        let guarded = try await Guarded { $0 == 1 ? .refused(DBusError("org.todoku.Error.No", "who?")) : .known(.user) }
        guarded.door.open()
        let client = try guarded.service.client()
        let first = await attempt { "\(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (1, 2)))" }
        #expect(first == "org.todoku.Error.No")
        #expect(guarded.gate.connectionCount == 0)
        let second = await attempt { "\(try await client.call(Shelf.add, on: TestService.name, at: ShelfTree.path, (1, 2)))" }
        #expect(second == "3")
    }
}

@Suite struct `Credentials of a connection` {
    @Test func `are read with a process descriptor, and without what is not known`() throws {
        var pipe: [Int32] = [0, 0]
        #expect(Glibc.pipe(&pipe) == 0)
        var given = ConnectionCredentials()
        (given.processID, given.userID, given.securityLabel) = (7, 1000, "snap.a.b (enforce)")
        given.process = ProcessDescriptor(adopting: pipe[0])
        let message = Message.signal(path: "/", interface: "a.b", member: "C") { given.write(to: &$0) }
        var read: ConnectionCredentials? = try message.first(ConnectionCredentials.self)
        #expect(read?.processID == 7 && read?.userID == 1000 && read?.securityLabel == "snap.a.b (enforce)")
        let duplicate = try #require(read?.process?.number)
        #expect(duplicate != pipe[0] && fcntl(duplicate, F_GETFD) >= 0)
        let target = readlinkText("/proc/self/fd/\(duplicate)")
        #expect(target.hasPrefix("pipe:"))
        read = nil
        // Closed with its last reference. Another thread may have opened something else under this number since.
        #expect(readlinkText("/proc/self/fd/\(duplicate)") != target)
        close(pipe[1])
    }

    @Test func `that are strange are left out`() throws {
        let strange: [String: Variant] = [
            "ProcessID": .string("7"), "UnixUserID": .int32(3), "LinuxSecurityLabel": .string("snap.a.b (enforce)"),
            "ProcessFD": .uint32(1),
            "UnixGroupIDs": .array(of: "u", [.uint32(1)]), "Other": .structure([.bool(true)]),
        ]
        let message = Message.signal(path: "/", interface: "a.b", member: "C") { strange.write(to: &$0) }
        let read = try message.first(ConnectionCredentials.self)
        #expect(read.processID == nil && read.userID == nil && read.securityLabel == nil && read.process == nil)
    }
}
