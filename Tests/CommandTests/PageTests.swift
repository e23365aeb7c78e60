import DownloaderInterface
import EventLoop
import TestSupport
import Testing
import TodokuClient

@testable import DBus

/// A download of `StandInList`.
@BusActor private final class ListedDownload: Sendable {
    static let face = Face<ListedDownload>(
        Download.interface, xml: { "" }, methods: [],
        properties: [PropertyRow(Download.state) { $0.state }, PropertyRow(Download.endedAt) { $0.endedAt }])
    let state: String
    let endedAt: UInt64
    init(_ state: String, endedAt: UInt64) { (self.state, self.endedAt) = (state, endedAt) }
}

/// A service whose list changes between two pages, which no test can arrange with the real one.
@BusActor private final class StandInList: ObjectTree {
    private static let face = Face<StandInList>(
        Manager.interface, xml: { "" },
        methods: [
            Row(Manager.describe) { list, arguments, reply in
                let page = try list.page(arguments.0)
                let ordered = list.isOrdered
                list.isOrdered = nil
                ordered?()
                reply(
                    page.map {
                        Structure($0, ["State": .string(list.state(of: $0)), "EndedAt": .uint64(list.finished[$0] ?? 0)])
                    })
            },
            Row(Manager.list) { list, filter, reply in reply(try list.page(filter)) },
            Row(Manager.listBatches) { list, filter, reply in reply(try list.page(filter)) },
        ])
    private let connection: Connection
    var paths: [ObjectPath]
    /// The downloads that have finished, and when, in microseconds since the Unix epoch.
    private(set) var finished: [ObjectPath: UInt64] = [:]
    /// Called once, after the first page is ordered and before the states are read.
    var isOrdered: (() -> Void)?
    /// Called once, before the answer to the second page.
    var isContinued: (() -> Void)?
    /// A longer page would be too long an answer.
    var most = 1000

    init(on address: String, _ paths: [String]) throws {
        self.paths = paths.map { ObjectPath($0) }
        connection = try Connection.open(address: address)
        connection.export(self)
        #expect(try connection.requestName(BusName.service))
    }

    /// Finishes the first downloads of the list, which moves them to its end.
    func finish(_ count: Int) {
        let ended = paths.prefix(count)
        for path in ended { finished[path] = wallClock() }
        paths = Array(paths.dropFirst(count)) + ended
    }

    /// Signals the state of a download, or `former`, which it had before.
    func tellState(of path: ObjectPath, _ former: String? = nil) {
        let changed: [String: Variant] = ["State": .string(former ?? state(of: path))]
        connection.send(Standard.propertiesChanged.message(from: path, (Download.interface, changed, [])))
    }

    /// Adds a download, and signals that.
    func add(_ path: ObjectPath) {
        paths.append(path)
        connection.send(Manager.downloadAdded.message(from: BusName.managerPath, path))
    }

    /// Adds a download, signals that, and answers the next call as the bus does for a program that does not answer in time.
    func addWhileSilent(_ path: ObjectPath) {
        fail(by: DBusError("org.freedesktop.DBus.Error.NoReply", "it hangs")) {}
        add(path)
    }

    /// Adds a download, signals that, removes it before the next call, and signals the removal behind the answer.
    func addAndRemove(_ path: ObjectPath) {
        fail(by: .unknownObject("it was removed")) { [self] in
            connection.send(Manager.downloadRemoved.message(from: BusName.managerPath, path))
        }
        add(path)
        paths.removeLast()
    }

    /// Answers the next call with `error`, and then calls `done`.
    private func fail(by error: DBusError, done: @escaping () -> Void) {
        connection.observer = { [connection] message in
            guard message.kind == .call else { return }
            connection.observer = nil
            PendingCall(message: message, connection: connection).fail(error)
            done()
        }
    }

    private func state(of path: ObjectPath) -> String { finished[path] == nil ? "queued" : "finished" }

    private func page(_ filter: [String: Variant]) throws -> [ObjectPath] {
        let limit = Int(filter["limit"]?.uint32 ?? 1000)
        guard limit <= most else { throw DBusError("org.todoku.Error.LimitExceeded", "ask for fewer downloads") }
        guard let after = filter["after"]?.objectPath else { return Array(paths.prefix(limit)) }
        let continued = isContinued
        isContinued = nil
        continued?()
        guard let place = paths.firstIndex(of: after) else { throw DBusError("org.todoku.Error.NoSuchObject", "there is no \(after)") }
        return Array(paths[(place + 1)...].prefix(limit))
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        if path == BusName.managerPath.value { return [Self.face.of(self)] }
        let path = ObjectPath(path)
        return paths.contains(path) ? [ListedDownload.face.of(ListedDownload(state(of: path), endedAt: finished[path] ?? 0))] : nil
    }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

@Suite(.timeLimit(.minutes(5))) struct `A list of several pages` {
    @Test @BusActor func `has a download once that ends between two pages`() async throws {
        let bus = await PrivateBus()
        let downloads = (1...1500).map { DownloadReference(number: $0) }
        let list = try StandInList(on: bus.address, downloads.map(\.path))
        list.isContinued = { list.finish(1) }
        let client = try await DownloaderClient.connect(to: bus.address)
        let all = try await client.describe()
        #expect(all.map(\.reference) == downloads.dropFirst() + [downloads[0]])
        #expect(all.last?.state == .finished)
    }

    @Test(arguments: [false, true]) @BusActor
    func `has all downloads if those of a page end before the next one`(isBeforeTheAnswer: Bool) async throws {
        let bus = await PrivateBus()
        let downloads = (1...2500).map { DownloadReference(number: $0) }
        let list = try StandInList(on: bus.address, downloads.map(\.path))
        let end: () -> Void = { list.finish(1000) }
        if isBeforeTheAnswer { list.isOrdered = end } else { list.isContinued = end }
        let client = try await DownloaderClient.connect(to: bus.address)
        let all = try await client.describe()
        #expect(all.map(\.reference) == Array(downloads[1000...] + downloads[..<1000]))
        #expect(all.suffix(1000).allSatisfy { $0.state == .finished } && all.prefix(1500).allSatisfy { $0.state == .queued })
    }

    @Test @BusActor func `ends, and has each download that was read, while the downloads never stop ending`() async throws {
        let bus = await PrivateBus()
        let list = try StandInList(on: bus.address, (1...1500).map { DownloadReference(number: $0).path })
        var added: UInt64 = 1500
        func goOn() {
            list.finish(1000)
            // As many are queued anew, so each reading has a full first page of unfinished downloads.
            list.paths = (1...1000).map { ObjectPath(DownloadReference(number: added + $0).path) } + list.paths
            added += 1000
            list.isContinued = goOn
        }
        list.isContinued = goOn
        let client = try await DownloaderClient.connect(to: bus.address)
        let all = try await client.describe()
        #expect(Set(all.map(\.reference)).count == all.count)
        #expect(Set(all.map(\.reference)).isSuperset(of: (1...1000).map { DownloadReference(number: $0) }))
    }

    @Test(arguments: [125, 1]) @BusActor func `is read in smaller pages if the answer would be too long`(most: Int) async throws {
        let bus = await PrivateBus()
        let downloads = (1...300).map { DownloadReference(number: $0) }
        let list = try StandInList(on: bus.address, downloads.map(\.path))
        list.most = most
        let client = try await DownloaderClient.connect(to: bus.address)
        #expect(try await client.describe().map(\.reference) == downloads)
    }

    @Test @BusActor func `fails if a single description would be too long`() async throws {
        let bus = await PrivateBus()
        let list = try StandInList(on: bus.address, [DownloadReference(number: 1).path])
        list.most = 0
        let client = try await DownloaderClient.connect(to: bus.address)
        do {
            let all = try await client.describe()
            Issue.record("\(all.count) downloads are described")
        } catch { #expect(error.name == "org.todoku.Error.LimitExceeded") }
    }

    @Test @BusActor func `is read again if the last batch of a page leaves it`() async throws {
        let bus = await PrivateBus()
        let batches = (1...1500).map { BatchReference(number: $0) }
        let list = try StandInList(on: bus.address, batches.map(\.path))
        list.isContinued = { list.paths.remove(at: 999) }
        let client = try await DownloaderClient.connect(to: bus.address)
        #expect(try await client.batches() == batches.filter { $0 != batches[999] })
    }

    /// The numbers that an expression of Python prints, which uses the module.
    private func python(_ expression: String, on bus: PrivateBus) async -> [Int] {
        let program = """
            import sys

            sys.path.insert(0, sys.argv[1])
            import todoku

            print(*[item.path.rsplit("/", 1)[1] for item in \(expression)])
            """
        let environment = bus.environment.merging(["PYTHONDONTWRITEBYTECODE": "1"]) { $1 }
        let exit = await Child.run(["/usr/bin/python3", "-c", program, "\(repository)/examples/python"], environment: environment)
        #expect(exit.status == 0, "packages python3-gi: \(exit.errors)")
        return exit.output.split(whereSeparator: \.isWhitespace).compactMap { Int($0) }
    }

    @Test(arguments: [false, true]) @BusActor
    func `has all downloads in the module for Python, too`(isBeforeTheAnswer: Bool) async throws {
        let bus = await PrivateBus()
        let list = try StandInList(on: bus.address, (1...2500).map { DownloadReference(number: $0).path })
        let end: () -> Void = { list.finish(1000) }
        if isBeforeTheAnswer { list.isOrdered = end } else { list.isContinued = end }
        #expect(await python("todoku.Todoku().find()", on: bus) == Array(1001...2500) + Array(1...1000))
    }

    @Test @BusActor func `is read again in the module for Python, too`() async throws {
        let bus = await PrivateBus()
        let list = try StandInList(on: bus.address, (1...1500).map { BatchReference(number: $0).path })
        list.isContinued = { list.paths.remove(at: 999) }
        #expect(await python("todoku.Todoku().batches()", on: bus) == Array(1...999) + Array(1001...1500))
    }
}

/// What a watch of all downloads reports of one of them.
@BusActor private final class ToldStates {
    private(set) var states: [DownloadDescription.State] = []
    private(set) var count = 0
    private(set) var removals: [DownloadReference] = []
    private(set) var latest: [DownloadReference: DownloadDescription] = [:]
    nonisolated init() {}

    nonisolated func receive(_ wanted: DownloadReference) -> @Sendable (DownloadUpdate) -> Void {
        { update in
            BusActor.assumeIsolated {
                self.count += 1
                if case .removed(let download) = update { self.removals.append(download) }
                guard case .changed(let download) = update else { return }
                self.latest[download.reference] = download
                if download.reference == wanted { self.states.append(download.state) }
            }
        }
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A watch of all downloads` {
    @Test @BusActor func `reports the end of a download of the first page, which comes before the second page`() async throws {
        let bus = await PrivateBus()
        let downloads = (1...1500).map { DownloadReference(number: $0) }
        let list = try StandInList(on: bus.address, downloads.map(\.path))
        list.isContinued = {
            list.finish(1)
            list.tellState(of: ObjectPath(downloads[0].path))
        }
        let client = try await DownloaderClient.connect(to: bus.address)
        let told = ToldStates()
        let watch = try await client.watch(nil, told.receive(downloads[0]))
        #expect(told.states.first == .queued && told.states.last == .finished && told.count > 1500, "\(told.states), \(told.count)")
        watch.stop()
    }

    @Test @BusActor func `reports an end once if the signal of an earlier state follows it, and the end after a retry`() async throws {
        let bus = await PrivateBus()
        let (ended, other) = (DownloadReference(number: 1), DownloadReference(number: 2))
        let path = ObjectPath(ended.path)
        let list = try StandInList(on: bus.address, [ended.path])
        list.isOrdered = { list.finish(1) }
        let client = try await DownloaderClient.connect(to: bus.address)
        let told = ToldStates()
        let watch = try await client.watch(nil, told.receive(ended))
        let end = try #require(told.latest[ended]?.endedAt)
        // The service holds these signals back until it has sent the page.
        for state in ["verifying", "finished"] { list.tellState(of: path, state) }
        // The watch asks for this download after it has asked for the first, whose signal came before.
        list.add(ObjectPath(other.path))
        #expect(await eventually { told.latest[other] != nil })
        #expect(told.states == [.finished])
        list.finish(1)
        list.tellState(of: path, "queued")
        #expect(await eventually { told.latest[ended]?.endedAt != end })
        #expect(told.states == [.finished, .finished])
        watch.stop()
    }

    @Test @BusActor func `reports a download whose service does not answer at first`() async throws {
        let bus = await PrivateBus()
        let list = try StandInList(on: bus.address, [])
        let client = try await DownloaderClient.connect(to: bus.address)
        let (told, added) = (ToldStates(), DownloadReference(number: 1))
        let watch = try await client.watch(nil, told.receive(added))
        list.addWhileSilent(ObjectPath(added.path))
        #expect(await eventually { told.states == [.queued] })
        watch.stop()
    }

    /// The service answers a read at once, and holds the signal of a removal until the removal is saved.
    @Test @BusActor func `reports a removal once, although an answer tells of it before its signal`() async throws {
        let bus = await PrivateBus()
        let list = try StandInList(on: bus.address, [])
        let client = try await DownloaderClient.connect(to: bus.address)
        let (told, removed, other) = (ToldStates(), DownloadReference(number: 1), DownloadReference(number: 2))
        let watch = try await client.watch(nil, told.receive(other))
        list.addAndRemove(ObjectPath(removed.path))
        #expect(await eventually { !told.removals.isEmpty })
        // The answer about another download comes after the signal of the removal.
        list.add(ObjectPath(other.path))
        #expect(await eventually { told.states == [.queued] })
        #expect(told.removals == [removed])
        watch.stop()
    }
}
