internal import DownloadModel
package import EventLoop
internal import Glibc

/// Serves the regular files right in one folder on 127.0.0.1, to rehearse an update: with entity tags, conditional requests and ranges.
@BusActor package final class FolderServer: Responder {
    /// Called with each answer: the request's line, and the status.
    private let report: (String, Int) -> Void
    /// Reads of files on a local disk are short; they are done on the loop.
    private let folder: Int32
    private let server: LoopbackServer
    package var port: UInt16 { server.port }

    /// - Parameters:
    ///   - path: the folder.
    ///   - port: 0: any that is free.
    package init(_ path: String, port: UInt16, report: @escaping (String, Int) -> Void) throws(RehearsalError) {
        self.report = report
        server = try LoopbackServer(port: port)
        folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw .of(path, "cannot be opened", errno) }
        server.responder = self
        try server.open()
    }

    isolated deinit { close(folder) }

    func refused(with status: Int) { report("-", status) }

    func respond(to request: ServedRequest) -> ServedResponse {
        let line = "\(request.isHead ? "HEAD" : "GET") /\(request.name ?? "…")"
        func plain(_ status: Int, _ fields: [(String, String)]) -> ServedResponse {
            report(line, status)
            return ServedResponse(status, fields, keepsAlive: request.keepsAlive)
        }
        let nothing = [("Content-Length", "0")]
        guard let name = request.name else { return plain(404, nothing) }
        let descriptor = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else { return plain(errno == EMFILE || errno == ENFILE ? 503 : 404, nothing) }
        let file = OpenFile(descriptor)
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return plain(404, nothing) }
        let size = UInt64(clamping: status.st_size)
        let numbers = [
            UInt64(clamping: status.st_ino), size, UInt64(clamping: status.st_mtim.tv_sec), UInt64(clamping: status.st_mtim.tv_nsec),
        ]
        let tag = "\"\(numbers.map { String($0, radix: 16) }.joined(separator: "-"))\""
        let modified = WallTime(microseconds: UInt64(clamping: status.st_mtim.tv_sec) *| 1_000_000)
        var fields = [("ETag", tag), ("Last-Modified", httpDate(status.st_mtim.tv_sec)), ("Accept-Ranges", "bytes")]
        let body: Range<UInt64>
        let code: Int
        switch request.answer(tag: tag, modified: modified, size: size) {
        case .notModified: return plain(304, fields)
        case .preconditionFailed: return plain(412, nothing)
        case .unsatisfiable: return plain(416, [("Content-Length", "0"), ("Content-Range", "bytes */\(size)")])
        case .whole: (body, code) = (0..<size, 200)
        case .part(let range):
            (body, code) = (range, 206)
            fields.append(("Content-Range", "bytes \(range.lowerBound)-\(range.upperBound -| 1)/\(size)"))
        }
        fields.append(("Content-Type", name.hasSuffix(".json") ? "application/json" : "application/octet-stream"))
        fields.append(("Content-Length", "\(body.byteCount)"))
        var response = plain(code, fields)
        if request.isHead { return response }
        response.body = file
        response.rest = body
        return response
    }
}

/// An open file, closed with its last reference.
@BusActor private final class OpenFile: ServedBody {
    private let descriptor: Int32

    /// Adopts the descriptor.
    init(_ descriptor: Int32) { self.descriptor = descriptor }

    isolated deinit { close(descriptor) }

    func read(from place: UInt64, into buffer: UnsafeMutableRawBufferPointer) -> Int {
        pread(descriptor, buffer.baseAddress, buffer.count, off_t(clamping: place))
    }
}
