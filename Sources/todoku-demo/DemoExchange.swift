internal import EventLoop
internal import Glibc

/// One request and its response on a connection, which is then closed.
@BusActor final class DemoExchange {
    nonisolated static let path = "/demo"
    /// 「届く-デモ.bin」, and a name for clients without `filename*` (RFC 6266).
    private static let disposition =
        "attachment; filename=\"todoku-demo.bin\"; filename*=UTF-8''%E5%B1%8A%E3%81%8F-%E3%83%87%E3%83%A2.bin"
    private static let mostRequestBytes = 16 * 1024
    private static let tick = Duration.milliseconds(50)
    private static let ticksPerSecond: UInt64 = 20
    /// Ticks without a byte received or sent before the connection is closed: 30 s.
    private static let patience = 600

    private let connection: Int32
    private let file: DemoFile
    private let rate: UInt64
    private let ended: @BusActor () -> Void
    private var request: [UInt8] = []
    private var head: [UInt8] = []
    private var body: Range<UInt64> = 0..<0
    private var idleTicks = 0
    private var watch: Poller.Token?

    /// Owns `connection`. Calls `ended` once, after closing it.
    init(on connection: Int32, file: DemoFile, rate: UInt64, ended: @escaping @BusActor () -> Void) {
        (self.connection, self.file, self.rate, self.ended) = (connection, file, rate, ended)
    }

    func start() {
        watch = Poller.shared.watch(connection, for: .readable) { [self] _ in receive() }
        wait { [self] in closeIfIdle() }
    }

    private func wait(_ action: @escaping @BusActor () -> Void) { Poller.shared.schedule(after: Self.tick, action) }

    private func finish() {
        if let watch { Poller.shared.cancel(watch) }
        watch = nil
        close(connection)
        ended()
    }

    /// Closes the connection if the request does not come in time.
    private func closeIfIdle() {
        guard watch != nil else { return }
        idleTicks += 1
        if idleTicks > Self.patience { finish() } else { wait { [self] in closeIfIdle() } }
    }

    private func receive() {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = read(connection, &buffer, buffer.count)
        if count < 0, errno == EAGAIN || errno == EINTR { return }
        guard count > 0 else { return finish() }
        idleTicks = 0
        request += buffer[..<count]
        guard request.count <= Self.mostRequestBytes else { return finish() }
        guard let end = endOfHead() else { return }
        if let watch { Poller.shared.cancel(watch) }
        watch = nil
        answer(String(decoding: request[..<end], as: UTF8.self))
        send()
    }

    /// The position after the head's last line; nil while the head is incomplete.
    private func endOfHead() -> Int? {
        guard request.count >= 4 else { return nil }
        return (0...request.count - 4).first { request[$0...].starts(with: "\r\n\r\n".utf8) }
    }

    private func answer(_ text: String) {
        let asked = text.split(whereSeparator: \.isNewline)
        let words = asked.first?.split(separator: " ") ?? []
        var fields: [String: String] = [:]
        for line in asked.dropFirst() {
            let parts = line.split(separator: ":", maxSplits: 1)
            if parts.count == 2 { fields[parts[0].lowercased()] = trimmed(parts[1]) }
        }
        let response = DemoResponse(
            method: words.first.map(String.init) ?? "", target: words.count > 1 ? String(words[1]) : "", fields: fields, file: file)
        body = response.body
        var lengthAndRange = ["Content-Length: \(response.length)"]
        if let range = response.contentRange { lengthAndRange.append("Content-Range: \(range)") }
        if response.isFile {
            lengthAndRange += [
                "Content-Type: application/octet-stream", "Content-Disposition: \(Self.disposition)", "ETag: \(file.entityTag)",
                "Accept-Ranges: bytes",
            ]
        }
        let lines = ["HTTP/1.1 \(response.status)", "Connection: close"] + lengthAndRange + ["", ""]
        head = Array(lines.joined(separator: "\r\n").utf8)
    }

    private func trimmed(_ text: Substring) -> String {
        String(text.drop { $0 == " " || $0 == "\t" }.reversed().drop { $0 == " " || $0 == "\t" }.reversed())
    }

    /// Sends the head and one tick's share of the body, then schedules itself for the next tick.
    private func send() {
        var share = max(1, rate / Self.ticksPerSecond)
        var blocked = false
        while !blocked, !head.isEmpty || share > 0 && !body.isEmpty {
            let isHead = !head.isEmpty
            let bytes = isHead ? head[...] : file.bytes(at: body.lowerBound, limit: Int(min(share, 65_536, UInt64(body.count))))
            let count = uninterrupted {
                bytes.withUnsafeBytes { Glibc.send(connection, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            }
            if count < 0, errno != EAGAIN { return finish() }
            blocked = count < bytes.count
            guard count > 0 else { continue }
            idleTicks = 0
            if isHead {
                head.removeFirst(count)
            } else {
                body = body.lowerBound + UInt64(count)..<body.upperBound
                share -= UInt64(count)
            }
        }
        idleTicks += 1
        if head.isEmpty && body.isEmpty || idleTicks > Self.patience { return finish() }
        wait { [self] in send() }
    }
}
