internal import EventLoop
internal import Glibc

/// A system call that failed.
struct SystemError: Error {
    let message: String
    init() { message = String(cString: strerror(errno)) }
}

/// An HTTP/1.1 server for one file, on a free port of 127.0.0.1. Slow on purpose, so that progress is visible.
@BusActor final class DemoServer {
    /// Most exchanges at a time; further connections are closed.
    private static let mostExchanges = 16

    let url: String
    private let file: DemoFile
    /// Bytes per second of each exchange.
    private let rate: UInt64
    private let listener: Int32
    private var exchanges: [Int32: DemoExchange] = [:]

    init(file: DemoFile, rate: UInt64) throws(SystemError) {
        (self.file, self.rate) = (file, rate)
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        guard listener >= 0 else { throw SystemError() }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = listener
        let failed = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(descriptor, address, length) != 0 || listen(descriptor, 16) != 0 || getsockname(descriptor, address, &length) != 0
            }
        }
        guard !failed else { throw SystemError() }
        url = "http://127.0.0.1:\(UInt16(bigEndian: address.sin_port))\(DemoExchange.path)"
    }

    /// Starts serving, until the program ends.
    func start() {
        _ = Poller.shared.watch(listener, for: .readable) { [self] _ in
            let connection = accept(listener, nil, nil)
            guard connection >= 0 else { return }
            _ = fcntl(connection, F_SETFL, O_NONBLOCK)
            guard exchanges.count < Self.mostExchanges else {
                close(connection)
                return
            }
            let exchange = DemoExchange(on: connection, file: file, rate: rate) { [self] in exchanges[connection] = nil }
            exchanges[connection] = exchange
            exchange.start()
        }
    }
}
