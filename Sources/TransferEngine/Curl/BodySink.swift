internal import CCurl
internal import CSystem
internal import Glibc

/// Takes what libcurl receives for one exchange, on the thread that drives the multi handle.
///
/// Subclasses override all four; nothing here may wait, allocate for body bytes, or call libcurl.
class BodySink {
    enum Answer { case accepted, pause, abort }

    /// Body bytes, decoded, at most 16 KiB a call; lent for the call only. After `.pause` libcurl gives the same bytes again once the exchange
    /// is resumed; after `.abort` it ends the exchange.
    func receive(_ bytes: UnsafeRawBufferPointer) -> Answer { .abort }

    /// One header line with its line end; also status lines, the empty line at the end, and trailers.
    func receiveHeader(_ line: UnsafeRawBufferPointer) -> Answer { .accepted }

    /// Whether the request may be sent to this address, the proxy's where there is one.
    func mayTalk(to address: String) -> Bool { true }
}

private func sink(_ context: UnsafeMutableRawPointer) -> BodySink {
    Unmanaged<BodySink>.fromOpaque(context).takeUnretainedValue()  // +0: the exchange keeps it alive
}

let bodySinkWrite: curl_write_callback = { buffer, size, count, context in
    guard let buffer, let context else { return 0 }
    let bytes = UnsafeRawBufferPointer(start: buffer, count: size * count)
    switch sink(context).receive(bytes) {
    case .accepted: return bytes.count
    case .pause: return Int(CURL_WRITEFUNC_PAUSE)
    case .abort: return Int(CURL_MAX_WRITE_SIZE) + 1  // any other count than the one given; libcurl reports CURLE_WRITE_ERROR
    }
}

let bodySinkHeader: curl_write_callback = { buffer, size, count, context in
    guard let buffer, let context else { return 0 }
    let bytes = UnsafeRawBufferPointer(start: buffer, count: size * count)
    switch sink(context).receiveHeader(bytes) {
    case .accepted: return bytes.count
    case .abort, .pause: return bytes.count + 1  // there is no pause in a head
    }
}

let bodySinkPrerequest: curl_prereq_callback = { context, remote, _, _, _ in
    guard let context, let remote else { return CURL_PREREQFUNC_ABORT }
    return sink(context).mayTalk(to: String(cString: remote)) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

/// Sockets that programs started by us do not inherit.
let openSocket: curl_opensocket_callback = { _, _, address in
    guard let address else { return -1 }
    let type = address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue)
    return socket(address.pointee.family, type, address.pointee.protocol)
}
