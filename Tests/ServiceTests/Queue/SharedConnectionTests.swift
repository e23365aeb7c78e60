internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import Synchronization
internal import TestSupport
internal import Testing

/// The connections on which a server answers requests, at each moment.
private final class BusyConnections: Sendable {
    private let state = Mutex(State())

    private struct State {
        /// The number of requests on each connection.
        var requests: [Int: Int] = [:]
        var most = 0
    }

    var count: Int { state.withLock { $0.requests.count } }
    /// The most connections at a time so far.
    var most: Int { state.withLock(\.most) }

    /// The server answers a request.
    ///
    /// - Parameter isAlone: whether the connection may have no other request.
    /// - Returns: false: it has one, and this request is not counted.
    @discardableResult func begin(_ connection: Int, isAlone: Bool = false) -> Bool {
        state.withLock { state in
            guard !isAlone || state.requests[connection] == nil else { return false }
            state.requests[connection, default: 0] += 1
            state.most = max(state.most, state.requests.count)
            return true
        }
    }

    /// Call before the last bytes of the answer go out. The client may use its place at the host from then on.
    func end(_ connection: Int) {
        state.withLock { state in
            let rest = (state.requests[connection] ?? 1) - 1
            state.requests[connection] = rest > 0 ? rest : nil
        }
    }
}

/// Requests of small files that must share an HTTP/2 connection, and find no room.
@Suite(.timeLimit(.minutes(10))) struct `The connections to a host that has no room on them` {
    private static let size = 100_000
    private static func file(_ path: String) -> [UInt8] { patternBytes(size, seed: UInt64(path.dropFirst()) ?? 0) }

    private let goOn = Gate()
    private let busy = BusyConnections()

    /// Why a connection has no room for a second request.
    enum Obstacle: CaseIterable, Sendable {
        /// The server announces that it takes one stream at a time.
        case oneStream
        /// The server refuses each stream beside another one.
        case refusedStreams
    }

    /// Sends the beginning of each file "/NUMBER", and the rest once `goOn` opens.
    private func server(_ obstacle: Obstacle?) async -> FrameServer {
        await FrameServer(mostStreams: obstacle == .oneStream ? 1 : 100) { [goOn, busy] request, stream in
            guard busy.begin(request.connection, isAlone: obstacle == .refusedStreams) else {
                stream.send(.reset(.refusedStream))
                return
            }
            let file = Self.file(request.path)
            stream.send(.head(length: file.count), .data(Array(file[..<1000])))
            goOn.wait()
            busy.end(request.connection)
            stream.send(.data(Array(file[1000...]), ends: true))
        }
    }

    private func download(_ number: Int, _ server: FrameServer, _ running: Running, to folder: String? = nil) async throws -> ObjectPath {
        let options: [String: Variant] = ["size": .uint64(UInt64(Self.size)), "directory": .string(folder ?? running.world.folder)]
        return try await running.download(server.url("/\(number)"), options)
    }

    /// Waits until one of the downloads has been started, and waits for a place at its host.
    private func hasFoundNoRoom(_ paths: [ObjectPath], _ client: Client) async throws -> Bool {
        try await eventually {
            for path in paths {
                let properties = try await client.all(path)
                let isWaiting = properties["State"] == .string("waiting") && properties["WaitReason"] == .string("host-limit")
                if isWaiting, properties["Attempts"] == .uint32(1) { return true }
            }
            return false
        }
    }

    @Test(arguments: Obstacle.allCases) func `keep to the rule of the host, and all files arrive`(obstacle: Obstacle) async throws {
        let server = await server(obstacle)
        defer { goOn.open() }
        let running = try await Running.start(extra: ["SSL_CERT_FILE": server.authority])
        let client = running.client
        func allow(_ connections: UInt32) async throws {
            try await client.call(Manager.setHostRule, ("127.0.0.1", ["connections": .uint32(connections)]))
        }
        // With one place, a second download can only try to share. With two, it may be the one that gets the second place.
        try await allow(1)
        var paths: [ObjectPath] = []
        for number in 1...12 { paths.append(try await download(number, server, running)) }
        #expect(try await hasFoundNoRoom(Array(paths[1...]), client))
        // The server may begin its answer later than the client learns how many streams the server takes.
        #expect(await eventually { busy.count == 1 })
        try await allow(2)
        #expect(await eventually { busy.count == 2 })
        goOn.open()
        for (number, path) in zip(1..., paths) {
            let isRight = readFile(try await client.wait(path)) == Self.file("/\(number)")
            #expect(isRight, "file \(number)")
        }
        #expect(busy.most == 2)
        #expect(server.requests.isEmpty, "none over HTTP/1.1")
    }

    /// Each disk has an engine, and engines share no connections.
    @Test(.enabled("only root can mount a small disk") { await SmallDisk.isPossible() })
    func `keep to the rule of the host for two disks together, and all files arrive`() async throws {
        let server = await server(nil)
        defer { goOn.open() }
        let running = try await Running.start(extra: ["SSL_CERT_FILE": server.authority])
        let client = running.client
        try await client.call(Manager.setHostRule, ("127.0.0.1", ["connections": .uint32(1)]))
        let isDone = try await SmallDisk.withDisk(bytes: 4 << 20) { disk in
            var paths = [try await download(1, server, running)]
            #expect(await client.signals.has("Progress", at: paths[0]))
            // The scheduler expects this request to share the connection of the first one, which the other engine has.
            paths.append(try await download(2, server, running, to: disk.path))
            #expect(try await hasFoundNoRoom([paths[1]], client))
            #expect(server.streams.map(\.path) == ["/1"] && server.connections == 1)
            for number in 3...6 { paths.append(try await download(number, server, running, to: number % 2 == 0 ? disk.path : nil)) }
            goOn.open()
            for (number, path) in zip(1..., paths) {
                let place = try await client.wait(path)
                let isRight = readFile(place) == Self.file("/\(number)")
                #expect(isRight && place.hasPrefix(disk.path) == (number % 2 == 0), "file \(number): \(place)")
            }
            return true
        }
        #expect(isDone == true)
        #expect(busy.most == 1)
        #expect(Set(server.streams.map(\.path)) == Set((1...6).map { "/\($0)" }) && server.streams.count == 6, "each is asked for once")
    }
}
