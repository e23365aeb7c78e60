import DownloadModel
import TestSupport

@testable internal import TransferEngine

extension TransferRequest {
    /// - Parameter mixes: whether a checksum proves the whole file.
    mutating func use(_ mirrors: [String], mixes: Bool = false) {
        sources = [TransferSource(url)]
        for (place, mirror) in mirrors.compactMap({ try? DownloadURL($0) }).enumerated() {
            sources.append(TransferSource(mirror, mirror: UInt32(place)))
        }
        (hasChecksum, mixesSources) = (mixes, mixes)
    }
}

extension EventLog {
    /// The sources as last reported.
    var sources: [SourceRecord] {
        events.compactMap { if case .sources(_, let sources) = $0 { sources } else { nil } }.last ?? []
    }
    var moves: [DownloadFailure] { events.compactMap { if case .moved(_, let failure) = $0 { failure } else { nil } } }
}

/// A server that sends the first bytes of `file`, then ends the connection. It answers 404 to every later request.
func breakingServer(_ file: [UInt8], after count: Int, entityTag: String? = "\"v1\"") -> ScriptedServer {
    ScriptedServer { request, reply in
        guard request.number == 0 else { return reply.respond(404) }
        reply.head(200, ["ETag": entityTag ?? "W/\"weak\"", "Accept-Ranges": "bytes"], length: file.count)
        reply.send(file[..<count])
        reply.close()
    }
}
