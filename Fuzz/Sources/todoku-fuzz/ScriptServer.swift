internal import Glibc

/// One answer of the script: writes, and what becomes of the connection.
struct ServerAnswer {
    enum Ending { case kept, closed, reset, halfClosed }

    private(set) var writes: [[UInt8]] = [[]]
    /// Sent on the connection once the download has ended.
    private(set) var surplus: [UInt8] = []
    let ending: Ending

    init(_ bytes: some Sequence<UInt8>, origin: String) {
        var bytes = Array(bytes)[...]
        let mode = bytes.popFirst() ?? 0
        ending = [.kept, .closed, .reset, .halfClosed][Int(mode & 3)]
        let isByLine = mode & 4 != 0
        var isLate = false
        func add(_ more: some Sequence<UInt8>) {
            if isLate { surplus += more } else { writes[writes.count - 1] += more }
        }
        while let byte = bytes.popFirst() {
            switch byte {
            case 0x1A: isLate = true
            case 0x1B: add(origin.utf8)
            case 0x1C:
                let count = bytes.popFirst() ?? 0
                add(Self.pattern(count > 239 ? 600 << 10 : Int(count) * 257))
            case 0x1D where writes.count < 200: writes.append([])
            case 0x0A where isByLine && writes.count < 200:
                add([byte])
                if !isLate { writes.append([]) }
            default: add([byte])
            }
        }
    }

    static let notFound = ServerAnswer(Array("1HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".utf8), origin: "")
    static let innocent = ServerAnswer(
        Array("0HTTP/1.1 200 OK\r\nContent-Length: \(ScriptServer.innocentBody.count)\r\n\r\n".utf8) + ScriptServer.innocentBody, origin: ""
    )

    private static func pattern(_ count: Int) -> some Sequence<UInt8> {
        (0..<count).lazy.map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    }
}

/// A request, and all that the server sent after it.
struct ServedExchange {
    /// Lines of the request.
    var request: [[UInt8]]
    var sent: [UInt8] = []
    /// So many bytes at the front of `sent` were written when the request may not have been there yet.
    var doubtful = 0
    /// The server has ended the connection in order behind `sent`.
    var isClosed = false

    /// The value of a field, by its lower-case name.
    func field(_ name: String) -> [UInt8]? {
        for line in request.dropFirst() {
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { continue }
            let own = String(decoding: line[..<colon], as: UTF8.self).lowercased()
            if own == name { return Array(line[(colon + 1)...].drop { $0 == 0x20 }) }
        }
        return nil
    }

    var path: String { String(decoding: (request.first ?? []).split(separator: 0x20).dropFirst().first ?? [], as: UTF8.self) }
}

/// The server of the script, on libFuzzer's own thread: it accepts, reads and writes while `serve` runs.
final class ScriptServer {
    static let innocentBody = Array("the bytes of an innocent file".utf8)
    /// The engine has had so long to answer what it was sent: then what is unfinished ends.
    private static let patience: Int32 = 15

    private struct Connection {
        let descriptor: Int32
        let peerPort: UInt16
        var input: [UInt8] = []
        /// Of `exchanges`: the request that was answered last.
        var exchange: Int?
        var awaitsAnswer = false
        var surplus: [UInt8] = []
    }

    private let listener: Int32
    let origin: String
    private var connections: [Connection] = []
    private var answers: ArraySlice<ServerAnswer> = []
    private var exchanges: [ServedExchange] = []
    /// Every request is answered well.
    var isKind = false

    init() {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isListening = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, size) == 0 && listen(listener, 64) == 0 && getsockname(listener, $0, &size) == 0
            }
        }
        precondition(isListening, "no server: errno \(errno)")
        self.listener = listener
        origin = "http://127.0.0.1:\(UInt16(bigEndian: address.sin_port))"
    }

    func begin(_ answers: [ServerAnswer]) { (self.answers, isKind) = (answers[...], false) }

    func end() {
        for connection in connections { close(connection.descriptor) }
        connections = []
        exchanges = []
        // What connected, and was given up before it was accepted.
        while true {
            let descriptor = accept(listener, nil, nil)
            if descriptor < 0 { break }
            close(descriptor)
        }
    }

    /// The exchanges since the last call. What is sent on their connections from now on answers nothing.
    func takeExchanges() -> [ServedExchange] {
        defer {
            exchanges = []
            for index in connections.indices { connections[index].exchange = nil }
        }
        return exchanges
    }

    /// What answers sent behind the end of a download.
    func sendSurplus() {
        for index in connections.indices where !connections[index].surplus.isEmpty {
            put(connections[index].surplus, on: connections[index])
            connections[index].surplus = []
        }
    }

    /// Serves until `isDone`, which is looked at whenever `wakeDescriptor` is readable.
    func serve(wakeDescriptor: Int32, until isDone: () -> Bool) {
        let start = ContinuousClock.now
        while !isDone() {
            check(ContinuousClock.now - start < longestPause * 2, "a transfer hangs")
            var entries = [
                pollfd(fd: wakeDescriptor, events: Int16(POLLIN), revents: 0), pollfd(fd: listener, events: Int16(POLLIN), revents: 0),
            ]
            entries += connections.map { pollfd(fd: $0.descriptor, events: Int16(POLLIN), revents: 0) }
            let ready = poll(&entries, nfds_t(entries.count), Self.patience)
            if ready < 0 { continue }
            if ready == 0 {
                if !isKind { endAnswered() }
                continue
            }
            for index in connections.indices.reversed() where entries[index + 2].revents != 0 { readRequests(index) }
            if entries[1].revents != 0 { acceptAll() }
        }
    }

    /// Ends each connection whose request was answered: the engine waits for more than the answer has.
    private func endAnswered() {
        for index in connections.indices.reversed() {
            guard let exchange = connections[index].exchange else { continue }
            exchanges[exchange].isClosed = true
            close(connections[index].descriptor)
            connections.remove(at: index)
        }
    }

    private func acceptAll() {
        while true {
            var address = sockaddr_in()
            var size = socklen_t(MemoryLayout<sockaddr_in>.size)
            let descriptor = withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { accept(listener, $0, &size) }
            }
            guard descriptor >= 0 else { return }
            _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
            var on: Int32 = 1
            setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
            connections.append(Connection(descriptor: descriptor, peerPort: UInt16(bigEndian: address.sin_port)))
            // Its request may be here already.
            readRequests(connections.count - 1)
        }
    }

    /// Reads what has come, and answers the requests that are whole.
    private func readRequests(_ index: Int) {
        guard receive(index) else { return remove(index) }
        takeRequest(index)
        while connections[index].awaitsAnswer {
            connections[index].awaitsAnswer = false
            let isInnocent = isKind || connections[index].exchange.map { exchanges[$0].path == "/innocent" } ?? false
            let answer = isInnocent ? .innocent : answers.popFirst() ?? .notFound
            guard give(answer, on: index) else { return remove(index) }
        }
    }

    /// False where the connection is to be closed.
    private func give(_ answer: ServerAnswer, on index: Int) -> Bool {
        connections[index].surplus = answer.surplus
        let client = answer.writes.count > 1 ? clientDescriptor(of: connections[index]) : nil
        for (number, bytes) in answer.writes.enumerated() where !bytes.isEmpty {
            if number > 0, let client { waitUntilRead(client, connections[index].peerPort) }
            guard send(bytes, on: index) else { return false }
        }
        return finish(index, answer.ending)
    }

    private func finish(_ index: Int, _ ending: ServerAnswer.Ending) -> Bool {
        let connection = connections[index]
        switch ending {
        case .kept: break
        case .closed:
            if let exchange = connection.exchange { exchanges[exchange].isClosed = true }
            return false
        case .reset:
            var linger = linger(l_onoff: 1, l_linger: 0)
            setsockopt(connection.descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger)))
            return false
        case .halfClosed:
            if let exchange = connection.exchange { exchanges[exchange].isClosed = true }
            shutdown(connection.descriptor, Int32(SHUT_WR))
        }
        return true
    }

    private func remove(_ index: Int) {
        close(connections[index].descriptor)
        connections.remove(at: index)
    }

    /// Sends bytes of an answer. They are the answer of a request, too, that comes before they are all sent.
    private func send(_ bytes: [UInt8], on index: Int) -> Bool {
        guard receive(index) else { return false }
        takeRequest(index)
        let isSent = put(bytes, on: connections[index])
        if let exchange = connections[index].exchange { exchanges[exchange].sent += bytes }
        guard isSent, receive(index) else { return false }
        if takeRequest(index) {
            exchanges[exchanges.count - 1].sent = bytes
            exchanges[exchanges.count - 1].doubtful = bytes.count
        }
        return true
    }

    @discardableResult private func put(_ bytes: [UInt8], on connection: Connection) -> Bool {
        var rest = bytes[...]
        let start = ContinuousClock.now
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(connection.descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if count > 0 {
                rest = rest.dropFirst(count)
            } else if count < 0, errno == EINTR {
                continue
            } else if count < 0, errno == EAGAIN, ContinuousClock.now - start < longestPause {
                var entry = pollfd(fd: connection.descriptor, events: Int16(POLLOUT), revents: 0)
                poll(&entry, 1, 20)
            } else {
                return false
            }
        }
        return true
    }

    /// False where the connection has ended.
    private func receive(_ index: Int) -> Bool {
        var buffer = [UInt8](repeating: 0, count: 8192)
        while true {
            let count = recv(connections[index].descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 { connections[index].input += buffer[..<count] }
            if count == 0 || count < 0 && errno != EAGAIN && errno != EINTR { return false }
            if count < 0, errno == EAGAIN { return true }
        }
    }

    /// Whether a whole request has come.
    @discardableResult private func takeRequest(_ index: Int) -> Bool {
        let input = connections[index].input
        let end = Array("\r\n\r\n".utf8)
        guard input.count >= 4, let place = (0...(input.count - 4)).first(where: { Array(input[$0..<($0 + 4)]) == end }) else {
            return false
        }
        connections[index].input = Array(input[(place + 4)...])
        let lines = input[..<place].split(separator: 0x0A).map { line in Array(line.last == 0x0D ? line.dropLast() : line) }
        exchanges.append(ServedExchange(request: lines))
        (connections[index].exchange, connections[index].awaitsAnswer) = (exchanges.count - 1, true)
        return true
    }

    // MARK: The client's side, which is in the same process

    private func clientDescriptor(of connection: Connection) -> Int32? { (3..<256).first { isClient($0, connection.peerPort) } }

    private func isClient(_ descriptor: Int32, _ port: UInt16) -> Bool {
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let code = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &size) }
        }
        return code == 0 && address.sin_family == sa_family_t(AF_INET) && UInt16(bigEndian: address.sin_port) == port
    }

    /// Gives the engine two milliseconds to read what was sent: so that what follows comes as a piece of its own.
    private func waitUntilRead(_ descriptor: Int32, _ port: UInt16) {
        let start = ContinuousClock.now
        while isClient(descriptor, port), ContinuousClock.now - start < .milliseconds(2) {
            var unread: Int32 = 0
            if ioctl(descriptor, UInt(FIONREAD), &unread) != 0 || unread == 0 { return }
            sched_yield()
        }
    }
}
