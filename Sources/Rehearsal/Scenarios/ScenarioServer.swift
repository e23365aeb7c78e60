internal import DownloadModel
internal import EventLoop

/// The scripted server of a rehearsal, on a free port of 127.0.0.1.
@BusActor final class ScenarioServer: Responder {
    /// Most requests that are kept for the report.
    private static let mostRequests = 10_000
    /// When the files were last changed: for conditions, and for the field `Last-Modified`.
    private static let modified = WallTime(microseconds: 784_111_777_000_000)
    private static let modifiedText = "Sun, 06 Nov 1994 08:49:37 GMT"

    private let server: LoopbackServer
    private var script: ScenarioScript
    private(set) var requests: [RehearsalReport.Request] = []
    private(set) var requestCount = 0
    /// Called when an answer stops at the place of a crash that is due: with the number of the file's byte that does not come.
    var crash: (@BusActor (UInt64) -> Void)?

    /// Takes a port, which refuses connections until `open`.
    init(_ scenario: Scenario) throws(RehearsalError) {
        server = try LoopbackServer(port: 0)
        script = ScenarioScript(scenario)
        server.responder = self
    }

    func open() throws(RehearsalError) { try server.open() }

    /// Without a slash at the end.
    var url: String { "http://127.0.0.1:\(server.port)" }
    /// How often the fault has happened at the server.
    var played: UInt64 { script.played }

    /// The service was killed at the place of a crash.
    func crashed() { script.crashed() }

    func refused(with status: Int) { note(RehearsalReport.Request(method: "-", path: "-", range: nil, status: status)) }

    func respond(to request: ServedRequest) -> ServedResponse {
        let file = request.name.flatMap { RehearsalFile.named($0) }
        let asked = file.flatMap { request.bytes(of: $0) }
        let response: ServedResponse
        let status: Int
        switch script.play(request.name, query: request.query, isHead: request.isHead, of: asked) {
        case .plain(let code, let fields, let page):
            status = code
            let all = fields.sorted { $0.key < $1.key }.map { ($0.key, $0.value) } + [("Content-Length", "\(page.utf8.count)")]
            response = ServedResponse(code, all, text: request.isHead ? "" : page, keepsAlive: request.keepsAlive)
        case .file(let play):
            let result = answer(request, play)
            (status, response) = (result.0, result.1)
        }
        let path = "/\(request.name ?? "…")" + (request.query.map { "?\($0)" } ?? "")
        note(
            RehearsalReport.Request(
                method: request.isHead ? "HEAD" : "GET", path: path, range: request.fields["range"], status: status))
        return response
    }

    private func answer(_ request: ServedRequest, _ play: ScenarioScript.FilePlay) -> (Int, ServedResponse) {
        let size = play.file.size
        let tag = "\"\(play.file.name)-\(play.version.rawValue)\""
        var fields = [("ETag", tag), ("Last-Modified", Self.modifiedText), ("Accept-Ranges", "bytes")]
        func plain(_ status: Int, _ more: [(String, String)]) -> (Int, ServedResponse) {
            (status, ServedResponse(status, fields + more, keepsAlive: request.keepsAlive))
        }
        let status: Int
        let range: Range<UInt64>
        switch request.answer(tag: tag, modified: Self.modified, size: size) {
        case .notModified: return plain(304, [])
        case .preconditionFailed: return plain(412, [("Content-Length", "0")])
        case .unsatisfiable: return plain(416, [("Content-Length", "0"), ("Content-Range", "bytes */\(size)")])
        case .whole: (status, range) = (200, 0..<size)
        case .part(let part):
            (status, range) = (206, part)
            fields.append(("Content-Range", "bytes \(part.lowerBound)-\(part.upperBound -| 1)/\(size)"))
        }
        if play.isDamaged { fields.append(("Repr-Digest", "sha-256=:\(play.file.base64):")) }
        fields += [("Content-Type", "application/octet-stream"), ("Content-Length", "\(range.byteCount)")]
        var response = ServedResponse(status, fields, keepsAlive: request.keepsAlive)
        guard !request.isHead else { return (status, response) }
        response.body = PlayedBody(play)
        response.rest = range
        response.rate = play.rate
        guard let fault = play.fault else { return (status, response) }
        response.rest = range.lowerBound..<min(range.lowerBound +| play.at, range.upperBound)
        response.halt = fault == .close ? .close : .silence
        let place = response.rest.upperBound
        if fault == .crash { response.halted = { [weak self] in if let self, script.isCrashDue { crash?(place) } } }
        return (status, response)
    }

    private func note(_ request: RehearsalReport.Request) {
        requestCount +|= 1
        if requests.count < Self.mostRequests { requests.append(request) }
    }
}

extension ServedRequest {
    /// The bytes of `file` that the request would get; nil: none, as with a condition that fails.
    fileprivate func bytes(of file: RehearsalFile) -> Range<UInt64>? {
        guard fields["if-none-match"] == nil, fields["if-modified-since"] == nil else { return nil }
        return fields["range"].flatMap { Self.range($0, of: file.size) } ?? 0..<file.size
    }
}

/// The bytes of a file in a scenario: of its version, and perhaps with one wrong byte.
@BusActor private final class PlayedBody: ServedBody {
    private let play: ScenarioScript.FilePlay

    init(_ play: ScenarioScript.FilePlay) { self.play = play }

    func read(from place: UInt64, into buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = play.file.fill(buffer, from: place, play.version)
        // The byte in the middle of the file.
        let damaged = play.file.size / 2
        if play.isDamaged, damaged >= place, damaged -| place < UInt64(clamping: count) {
            buffer[Int(clamping: damaged -| place)] ^= 0xFF
        }
        return count
    }
}
