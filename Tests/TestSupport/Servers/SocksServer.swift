internal import CSystem
internal import EventLoop
internal import Glibc

/// A SOCKS5 proxy on 127.0.0.1 (RFC 1928, CONNECT without a login). It leads every host to one port of this machine, so that names need not
/// exist.
public final class SocksServer: Sendable {
    public struct Request: Equatable, Sendable {
        /// Whether the client left the look-up of the name to us (address type 3).
        public let isByName: Bool
        public let host: String
        public let port: UInt16

        public init(isByName: Bool, host: String, port: UInt16) { (self.isByName, self.host, self.port) = (isByName, host, port) }
    }

    private let core: SocksCore
    public let port: UInt16

    /// - Parameter target: the port of 127.0.0.1 where every connection ends.
    public init(to target: UInt16) {
        let bound = boundSocket()
        precondition(listen(bound.descriptor, 16) == 0)
        port = bound.port
        let core = SocksCore(listener: bound.descriptor, target: target)
        self.core = core
        startThread("socks-server") { core.accept() }
    }

    deinit { core.stop() }

    /// The requests so far.
    public var requests: [Request] { core.lock.locked { core.requests } }
}

private final class SocksCore: Sendable {
    let lock = Lock()
    private let listener: Int32
    private let target: UInt16
    // Both under `lock`.
    nonisolated(unsafe) var requests: [SocksServer.Request] = []
    private nonisolated(unsafe) var sockets: Set<Int32> = []

    init(listener: Int32, target: UInt16) { (self.listener, self.target) = (listener, target) }

    func stop() {
        lock.locked {
            shutdown(listener, Int32(SHUT_RDWR))
            for socket in sockets { shutdown(socket, Int32(SHUT_RDWR)) }
        }
    }

    func accept() {
        while true {
            let socket = todoku_accept(listener)
            if socket < 0, errno == EINTR { continue }
            guard socket >= 0 else { break }
            lock.locked { _ = sockets.insert(socket) }
            startThread("socks-conn") { [self] in
                serve(socket)
                lock.locked {
                    sockets.remove(socket)
                    close(socket)
                }
            }
        }
        close(listener)
    }

    private func serve(_ socket: Int32) {
        guard let greeting = read(socket, 2), greeting[0] == 5, read(socket, Int(greeting[1])) != nil, write(socket, [5, 0]),
            let head = read(socket, 4), head[1] == 1
        else { return }
        let host: String
        switch head[3] {
        case 3:
            guard let length = read(socket, 1), let name = read(socket, Int(length[0])) else { return }
            host = String(decoding: name, as: UTF8.self)
        case 1:
            guard let bytes = read(socket, 4) else { return }
            host = bytes.map(String.init).joined(separator: ".")
        default: return
        }
        guard let port = read(socket, 2) else { return }
        lock.locked {
            requests.append(.init(isByName: head[3] == 3, host: host, port: UInt16(port[0]) << 8 | UInt16(port[1])))
        }
        let far = connected(to: target)
        guard far >= 0 else { return }
        defer { close(far) }
        guard write(socket, [5, 0, 0, 1, 127, 0, 0, 1, 0, 0]) else { return }
        pump(socket, far)
    }

    /// Passes on the bytes of both sides until one side has ended.
    private func pump(_ near: Int32, _ far: Int32) {
        var buffer = [UInt8](repeating: 0, count: 16384)
        while true {
            var ready = [pollfd(fd: near, events: Int16(POLLIN), revents: 0), pollfd(fd: far, events: Int16(POLLIN), revents: 0)]
            guard poll(&ready, 2, 60_000) > 0 else { return }
            for (from, to) in [(0, far), (1, near)] where ready[from].revents != 0 {
                let count = recv(ready[from].fd, &buffer, buffer.count, 0)
                guard count > 0, write(to, Array(buffer[..<count])) else { return }
            }
        }
    }

    private func read(_ socket: Int32, _ count: Int) -> [UInt8]? {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 256)
        while bytes.count < count {
            let got = recv(socket, &buffer, count - bytes.count, 0)
            guard got > 0 else { return nil }
            bytes += buffer[..<got]
        }
        return bytes
    }

    private func write(_ socket: Int32, _ bytes: [UInt8]) -> Bool {
        var sent = 0
        while sent < bytes.count {
            let count = bytes.withUnsafeBytes { send(socket, $0.baseAddress! + sent, bytes.count - sent, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else { return false }
            sent += count
        }
        return true
    }

    private func connected(to port: UInt16) -> Int32 {
        let far = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = in_addr_t(0x7F00_0001).bigEndian
        address.sin_port = port.bigEndian
        let length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafePointer(to: &address) { $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(far, $0, length) } }
        guard result != 0 else { return far }
        close(far)
        return -1
    }
}
