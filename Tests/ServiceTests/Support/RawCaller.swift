internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport

/// A client of the bus on a bare socket. It need not read what it receives, wait for answers, or tell the truth. It blocks, so run it on
/// its own thread (`onThread`).
final class RawCaller {
    struct Incoming {
        /// 2: an answer, 3: an error, 4: a signal.
        let kind: UInt8
        let replySerial: UInt32
        let errorName: String
        let member: String
        let path: String
        /// The first argument, if it is a text.
        let text: String
        /// All arguments in the wire format.
        let body: [UInt8]
    }

    private let socket: Int32
    private var serial: UInt32 = 0
    private var outgoing: [UInt8] = []
    private var incoming: [UInt8] = []
    private var start = 0
    private var isOver = false

    /// Connects and sends Hello.
    init(_ bus: PrivateBus) {
        socket = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let path = Array(bus.folder("bus").utf8)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        let connected = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0 }
        }
        precondition(connected, "no bus at \(bus.folder("bus"))")
        let user = String(getuid()).utf8.map { String($0, radix: 16) }.joined()
        outgoing = [0] + Array("AUTH EXTERNAL \(user)\r\nBEGIN\r\n".utf8)
        call("/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", to: "org.freedesktop.DBus")
        flush()
        var line: [UInt8] = []
        while line.last != 10 {
            var byte: UInt8 = 0
            guard recv(socket, &byte, 1, 0) == 1 else { break }
            line.append(byte)
        }
        precondition(line.starts(with: "OK ".utf8), String(decoding: line, as: UTF8.self))
        precondition(read()?.kind == 2, "the bus does not answer Hello")
    }

    deinit { close(socket) }

    /// Writes a call into the buffer. `flush` sends the buffer.
    @discardableResult func call(
        _ path: String, _ interface: String, _ member: String, _ arguments: [Variant] = [], wantsReply: Bool = true,
        to destination: String = BusName.service
    ) -> UInt32 {
        var fields: [(UInt8, Variant)] = [(1, .objectPath(ObjectPath(path))), (3, .string(member)), (6, .string(destination))]
        if !interface.isEmpty { fields.append((2, .string(interface))) }
        return send(1, flags: wantsReply ? 0 : 1, fields, arguments)
    }

    /// Writes any message. `fields` are the header fields by their codes (D-Bus specification, "Header Fields").
    @discardableResult func send(_ kind: UInt8, flags: UInt8 = 0, _ fields: [(UInt8, Variant)], _ arguments: [Variant] = []) -> UInt32 {
        serial += 1
        var body = Marshalled()
        for argument in arguments { body.append(argument) }
        let signature: [(UInt8, Variant)] = arguments.isEmpty ? [] : [(8, .signature(arguments.map(\.type).joined()))]
        var header = Marshalled()
        header.bytes = [UInt8(ascii: "l"), kind, flags, 1]
        header.append(.uint32(UInt32(body.bytes.count)))
        header.append(.uint32(serial))
        header.append(.array(of: "(yv)", (fields + signature).map { .structure([.byte($0.0), .variant($0.1)]) }))
        header.align(8)
        outgoing += header.bytes + body.bytes
        if outgoing.count > 1 << 16 { flush() }
        return serial
    }

    /// Sends the buffer. False once the bus has disconnected us.
    @discardableResult func flush() -> Bool {
        var sent = 0
        while sent < outgoing.count {
            let count = outgoing.withUnsafeBytes { Glibc.send(socket, $0.baseAddress! + sent, $0.count - sent, Int32(MSG_NOSIGNAL)) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return false }
            sent += count
        }
        outgoing.removeAll(keepingCapacity: true)
        return true
    }

    /// Sends half of the buffer, and drops the rest.
    func flushHalf() {
        outgoing.removeLast(outgoing.count / 2)
        flush()
    }

    /// The next message; nil once the bus has closed the connection, or nothing has arrived for a minute.
    func read() -> Incoming? {
        guard !isOver, fill(16) else { return nil }
        let bodyLength = Int(number(4))
        let fieldsLength = Int(number(12))
        let bodyStart = (16 + fieldsLength + 7) & ~7
        guard fill(bodyStart + bodyLength) else { return nil }
        let kind = incoming[start + 1]
        var (replySerial, errorName, member, path, signature) = (0 as UInt32, "", "", "", "")
        var at = 16
        while at < 16 + fieldsLength {
            at = (at + 7) & ~7
            let (code, type) = (incoming[start + at], incoming[start + at + 2])
            at += 4
            switch type {
            case UInt8(ascii: "u"):
                if code == 5 { replySerial = number(at) }
                at += 4
            case UInt8(ascii: "g"):
                let length = Int(incoming[start + at])
                if code == 8 { signature = text(at + 1, length) }
                at += length + 2
            default:
                let length = Int(number(at))
                if code == 4 { errorName = text(at + 4, length) }
                if code == 3 { member = text(at + 4, length) }
                if code == 1 { path = text(at + 4, length) }
                at += length + 5
            }
        }
        let first = signature.hasPrefix("s") ? text(bodyStart + 4, Int(number(bodyStart))) : ""
        let body = Array(incoming[(start + bodyStart)..<(start + bodyStart + bodyLength)])
        start += bodyStart + bodyLength
        return Incoming(kind: kind, replySerial: replySerial, errorName: errorName, member: member, path: path, text: first, body: body)
    }

    /// The next answer or error; nil as for `read`.
    func readAnswer() -> Incoming? {
        while let message = read() { if message.kind != 4 { return message } }
        return nil
    }

    /// The answer to one call. Earlier messages are dropped.
    func answer(to serial: UInt32) -> Incoming? {
        flush()
        while let message = read() { if message.replySerial == serial { return message } }
        return nil
    }

    /// Writes a call that the service answers after it has looked at all earlier ones, also those that wait until the bus has said who the
    /// caller is. (`Ping` is no such call: libdbus answers it by itself, before the service sees any message.)
    @discardableResult func callLast() -> UInt32 {
        call(
            BusName.managerPath.value, Standard.properties, "Get",
            [.string(Manager.interface), .string(Manager.version.name)])
    }

    private func number(_ at: Int) -> UInt32 { (0..<4).reduce(0) { $0 | UInt32(incoming[start + at + $1]) << (8 * $1) } }
    private func text(_ at: Int, _ length: Int) -> String {
        String(decoding: incoming[(start + at)..<(start + at + length)], as: UTF8.self)
    }

    /// Waits for `count` bytes.
    private func fill(_ count: Int) -> Bool {
        if start > 1 << 20 {
            incoming.removeFirst(start)
            start = 0
        }
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while incoming.count - start < count {
            var ready = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
            let received = poll(&ready, 1, 60_000) > 0 ? recv(socket, &buffer, buffer.count, 0) : 0
            guard received > 0 else {
                isOver = true
                return false
            }
            incoming += buffer[..<received]
        }
        return true
    }
}

/// Values in the wire format, little-endian.
private struct Marshalled {
    var bytes: [UInt8] = []

    mutating func align(_ size: Int) { while !bytes.count.isMultiple(of: size) { bytes.append(0) } }

    private mutating func number<Number: FixedWidthInteger>(_ value: Number) {
        align(Number.bitWidth / 8)
        for index in 0..<(Number.bitWidth / 8) { bytes.append(UInt8(truncatingIfNeeded: value >> (8 * Number(index)))) }
    }

    private mutating func array(alignment: Int, _ write: (inout Marshalled) -> Void) {
        number(0 as UInt32)
        let place = bytes.count - 4
        align(alignment)
        let begin = bytes.count
        write(&self)
        for index in 0..<4 { bytes[place + index] = UInt8(truncatingIfNeeded: (bytes.count - begin) >> (8 * index)) }
    }

    private mutating func append(_ text: String) {
        number(UInt32(text.utf8.count))
        bytes += Array(text.utf8) + [0]
    }

    mutating func append(_ value: Variant) {
        switch value {
        case .byte(let value): bytes.append(value)
        case .bool(let value): number(value ? 1 : 0 as UInt32)
        case .int16(let value): number(value)
        case .uint16(let value): number(value)
        case .int32(let value): number(value)
        case .uint32(let value): number(value)
        case .int64(let value): number(value)
        case .uint64(let value): number(value)
        case .double(let value): number(value.bitPattern)
        case .string(let text): append(text)
        case .objectPath(let path): append(path.value)
        case .signature(let text): bytes += [UInt8(text.utf8.count)] + Array(text.utf8) + [0]
        case .array(let element, let values):
            let alignment = ["(": 8, "{": 8, "x": 8, "t": 8, "d": 8, "n": 2, "q": 2, "y": 1, "g": 1, "v": 1][element.prefix(1)] ?? 4
            array(alignment: alignment) { inner in for value in values { inner.append(value) } }
        case .dictionary(_, _, let entries):
            array(alignment: 8) { inner in
                for entry in entries {
                    inner.align(8)
                    inner.append(entry.key)
                    inner.append(entry.value)
                }
            }
        case .structure(let fields):
            align(8)
            for field in fields { append(field) }
        case .variant(let value):
            append(.signature(value.type))
            append(value)
        }
    }
}

/// Runs `body`, which may block, on its own thread.
func onThread<R: Sendable>(_ body: @escaping @Sendable () -> R) async -> R {
    await withCheckedContinuation { continuation in startThread("stranger") { continuation.resume(returning: body()) } }
}
