import DBus
import DownloaderInterface
import EventLoop
import TestSupport
import Testing
import TodokuClient

/// A service whose list changes between two pages, which no test can arrange with the real one.
@BusActor private final class StandInList: ObjectTree {
    private static let face = Face<StandInList>(
        Manager.interface, xml: { "" },
        methods: [
            Row(Manager.describe) { list, arguments, reply in
                reply(
                    try list.page(arguments.0).map { path in
                        Structure(path, ["State": .string(list.finished == path ? "finished" : "queued")])
                    })
            },
            Row(Manager.listBatches) { list, filter, reply in reply(try list.page(filter)) },
        ])
    private let connection: Connection
    var paths: [ObjectPath]
    /// The download that has finished.
    var finished: ObjectPath?
    /// Called once, before the answer to the second page.
    var isContinued: (() -> Void)?

    init(on address: String, _ paths: [String]) throws {
        self.paths = paths.map { ObjectPath($0) }
        connection = try Connection.open(address: address)
        connection.export(self)
        #expect(try connection.requestName(BusName.service))
    }

    private func page(_ filter: [String: Variant]) throws -> [ObjectPath] {
        guard let after = filter["after"]?.objectPath else { return Array(paths.prefix(1000)) }
        isContinued?()
        isContinued = nil
        guard let place = paths.firstIndex(of: after) else { throw DBusError("org.todoku.Error.NoSuchObject", "there is no \(after)") }
        return Array(paths[(place + 1)...].prefix(1000))
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        path == BusName.managerPath.value ? [Self.face.of(self)] : nil
    }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}

@Suite(.timeLimit(.minutes(5))) struct `A list of several pages` {
    @Test @BusActor func `has a download once that ends between two pages`() async throws {
        let bus = await PrivateBus()
        let downloads = (1...1500).map { DownloadReference(number: $0) }
        let list = try StandInList(on: bus.address, downloads.map(\.path))
        list.isContinued = {
            let first = list.paths.removeFirst()
            list.finished = first
            list.paths.append(first)
        }
        let client = try await DownloaderClient.connect(to: bus.address)
        let all = try await client.describe()
        #expect(all.map(\.reference) == downloads.dropFirst() + [downloads[0]])
        #expect(all.last?.state == .finished)
    }

    @Test @BusActor func `is read again if the last batch of a page leaves it`() async throws {
        let bus = await PrivateBus()
        let batches = (1...1500).map { BatchReference(number: $0) }
        let list = try StandInList(on: bus.address, batches.map(\.path))
        list.isContinued = { list.paths.remove(at: 999) }
        let client = try await DownloaderClient.connect(to: bus.address)
        #expect(try await client.batches() == batches.filter { $0 != batches[999] })
    }
}
