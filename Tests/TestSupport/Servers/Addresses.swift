internal import Glibc

/// The machine's own name, in lower case as in a URL. Only a look-up shows that it leads to this machine: by /etc/hosts, or by the name
/// service (nss-myhostname).
public func ownHostName() -> String {
    var name = [CChar](repeating: 0, count: 256)
    precondition(gethostname(&name, 255) == 0)
    return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self).lowercased()
}

/// A port of 127.0.0.1 for a server that a test starts. No other program gets it as long as this object lives: the port is bound here.
/// The server can bind it, too, if it sets SO_REUSEADDR, as most servers do (ip(7)).
public final class ReservedPort: Sendable {
    public let number: UInt16
    private let descriptor: Int32

    public init() { (descriptor, number) = boundSocket(isReusable: true) }

    deinit { close(descriptor) }
}

/// A port of 127.0.0.1 that refuses connections as long as this process lives. The port is bound, so that no other program gets it, and
/// never listens.
public func closedPort() -> UInt16 { boundSocket().port }

func boundSocket(isReusable: Bool = false) -> (descriptor: Int32, port: UInt16) {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var reuse: Int32 = isReusable ? 1 : 0
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &reuse, socklen_t(MemoryLayout<Int32>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = in_addr_t(0x7F00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let bound = withUnsafeMutablePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
        }
    }
    precondition(bound)
    return (descriptor, UInt16(bigEndian: address.sin_port))
}
