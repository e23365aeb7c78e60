import TestSupport

/// A good answer to a request for `file`, or for one range of it. The file has the entity tag "v1".
struct GoodAnswer: Sendable {
    let status: Int
    let fields: [(name: String, value: String)]
    let body: [UInt8]

    init(_ file: [UInt8], to request: ScriptedServer.Request) {
        var fields = [("etag", "\"v1\""), ("accept-ranges", "bytes")]
        var range = 0..<file.count
        let isBehind = request.range.map { $0.first >= file.count } ?? false
        if isBehind {
            range = 0..<0
            fields.append(("content-range", "bytes */\(file.count)"))
        } else if let asked = request.range {
            range = asked.first..<min(file.count, (asked.last ?? file.count - 1) + 1)
            fields.append(("content-range", "bytes \(range.lowerBound)-\(range.upperBound - 1)/\(file.count)"))
        }
        (status, self.fields, body) = (request.range == nil ? 200 : isBehind ? 416 : 206, fields, Array(file[range]))
    }

    func head(hasLength: Bool = true) -> FrameStream.Frame { .head(status, fields, length: hasLength ? body.count : nil) }
}

/// nginx with HTTP/2 and HTTP/1.1, which asks `server`. The field X-Protocol of a request names the client's version.
func nginxInFront(of server: ScriptedServer, log: String = "off", http: String = "") async -> Nginx {
    await Nginx(
        extra: """
            location / {
                proxy_pass \(server.url(""));
                proxy_http_version 1.1;
                proxy_buffering off;
                proxy_read_timeout 240s;
                proxy_set_header X-Protocol $server_protocol;
                access_log \(log);
            }
            """, http: http)
}
