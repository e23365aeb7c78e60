internal import CCurl
internal import CSystem
internal import EventLoop
internal import Glibc

/// Receives libcurl's data for one exchange, on the thread that drives the multi handle.
///
/// Subclasses override all five members. None of them may wait, allocate for body bytes, or call libcurl, except to read a fact of the
/// exchange (curl_easy_getinfo).
open class BodySink {
    public init() {}

    public enum Answer { case accepted, pause, abort }

    /// The number of the work, for `CrashMarks`; 0: none.
    open var work: UInt64 { 0 }

    /// Body bytes after the transfer coding, at most 16 KiB a call, lent for the call only. After `.pause` libcurl gives the same bytes
    /// again once the exchange is resumed. After `.abort` it ends the exchange.
    open func receive(_ bytes: UnsafeRawBufferPointer) -> Answer { .abort }

    /// One header line with its line end. Status lines, the empty line at the end, and trailers come here, too.
    open func receiveHeader(_ line: UnsafeRawBufferPointer) -> Answer { .accepted }

    /// Whether a connection may be made to this address, the proxy's if there is a proxy. Not called for a kept connection; `mayTalk` is
    /// always called.
    open func mayConnect(to address: String) -> Bool { true }

    /// Whether the request may be sent to this address, the proxy's if there is a proxy.
    open func mayTalk(to address: String) -> Bool { true }

    /// Whether libcurl may repeat a request that a kept connection left without an answer.
    open func mayRepeat() -> Bool { true }
}

private func exchange(_ context: UnsafeMutableRawPointer) -> Exchange {
    Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()  // +0: the easy handle is freed before the exchange
}

let bodySinkWrite: curl_write_callback = { buffer, size, count, context in
    guard let buffer, let context else { return 0 }
    let bytes = UnsafeRawBufferPointer(start: buffer, count: size * count)
    let target = exchange(context)
    switch CrashMarks.working(on: target.sink.work, { target.sink.receive(bytes) }) {
    case .accepted: return bytes.count
    case .pause: return Int(CURL_WRITEFUNC_PAUSE)
    case .abort:
        target.giveUpConnection()
        return Int(CURL_MAX_WRITE_SIZE) + 1  // any count other than the given one; libcurl reports CURLE_WRITE_ERROR
    }
}

let bodySinkHeader: curl_write_callback = { buffer, size, count, context in
    guard let buffer, let context else { return 0 }
    let bytes = UnsafeRawBufferPointer(start: buffer, count: size * count)
    let target = exchange(context)
    switch CrashMarks.working(on: target.sink.work, { target.receiveHeader(bytes) }) {
    case .accepted: return bytes.count
    case .abort, .pause:  // a head cannot be paused
        target.giveUpConnection()
        return bytes.count + 1
    }
}

let bodySinkPrerequest: curl_prereq_callback = { context, remote, _, remotePort, localPort in
    guard let context, let remote else { return CURL_PREREQFUNC_ABORT }
    return exchange(context).mayAsk(remote, remotePort: remotePort, localPort: localPort) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

/// Opens a socket if the exchange may open one, and the sink accepts the address; otherwise libcurl tries the host's next address. Programs
/// that we start do not inherit the socket.
let bodySinkOpenSocket: curl_opensocket_callback = { context, _, address in
    guard let context, let address else { return -1 }
    let target = exchange(context)
    if target.mustShare {
        target.isUnshared = true
        return -1
    }
    // The generic address is only the start of a longer one in the same memory.
    let start = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 16)
    if let text = addressText(start, address.pointee.addrlen), !target.sink.mayConnect(to: text) { return -1 }
    let type = address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue)
    let descriptor = socket(address.pointee.family, type, address.pointee.protocol)
    if descriptor >= 0 { target.opened(descriptor) }
    return descriptor
}

/// An IPv4 or IPv6 address as text, without a zone; nil for other families.
func addressText(_ address: UnsafeRawPointer, _ length: UInt32) -> String? {
    var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
    let family = address.loadUnaligned(as: sockaddr.self).sa_family
    let offset: Int
    switch Int32(family) {
    case AF_INET where length >= MemoryLayout<sockaddr_in>.size: offset = MemoryLayout<sockaddr_in>.offset(of: \.sin_addr) ?? 4
    case AF_INET6 where length >= MemoryLayout<sockaddr_in6>.size: offset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_addr) ?? 8
    default: return nil
    }
    guard inet_ntop(Int32(family), address + offset, &text, socklen_t(text.count)) != nil else { return nil }
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
}
