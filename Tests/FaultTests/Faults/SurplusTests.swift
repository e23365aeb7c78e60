internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// Serves a file on each connection, on `count` ports: a body of the announced length. `index % 6` milliseconds later it sends what would
/// answer the next request, and then creates the file `ports.INDEX`. Other paths get good answers. The file `ports` lists the ports, one on
/// a line.
private let surplusServer = """
    import socket, ssl, sys, threading, time
    count, ports, certificate = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    def answer(body): return b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\n" + body
    def serve(connection, index):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if context: connection = context.wrap_socket(connection, server_side=True)
            received = b""
            while True:
                while b"\\r\\n\\r\\n" not in received:
                    more = connection.recv(4096)
                    if not more: return
                    received += more
                head, received = received.split(b"\\r\\n\\r\\n", 1)
                if head.split()[1] == b"/first":
                    connection.sendall(answer(b"first"))
                    time.sleep(index % 6 / 1000)  # the fault itself: surplus bytes that come 0 to 5 ms late
                    connection.sendall(answer(b"WRONG"))
                    open(f"{ports}.{index}", "w").close()
                else:
                    connection.sendall(answer(b"right"))
        except OSError: pass
    def accept(listener, index):
        while True: threading.Thread(target=serve, args=(listener.accept()[0], index), daemon=True).start()
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    for index, listener in enumerate(listeners): threading.Thread(target=accept, args=(listener, index), daemon=True).start()
    with open(ports + ".next", "w") as file: file.write("".join(f"{listener.getsockname()[1]}\\n" for listener in listeners))
    import os; os.rename(ports + ".next", ports)
    threading.Event().wait()
    """

extension `The fault campaign` {
    @Suite(.timeLimit(.minutes(20))) struct `Bytes that a server sends behind an answer, a little late` {
        private static let tries = 100

        @Test(arguments: ["http", "https"])
        func `never become the next file, and no download fails for them`(scheme: String) async throws {
            let (lane, place) = (try await Lane(try await Shim.compiled()), Place())
            let folder = TemporaryFolder("todoku-surplus")
            let made = await Child.run(
                [
                    "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem",
                    "-out", "cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                ], folder: folder.path)
            #expect(made.status == 0, "\(made.errors)")
            let certificate = scheme == "https" ? [folder("cert.pem"), folder("key.pem")] : []
            let server = Child(["python3", "-c", surplusServer, "\(Self.tries)", folder("ports")] + certificate)
            #expect(await eventually { fileExists(folder("ports")) })
            let ports = String(decoding: readFile(folder("ports")) ?? [], as: UTF8.self).split(separator: "\n")
            #expect(await lane.start(place, more: ["SSL_CERT_FILE": folder("cert.pem")]) == nil)
            // One connection at a time, so that it is used again.
            try await lane.setHostRule("127.0.0.1", ["connections": .uint32(1)])
            var wrong: [String] = []
            // Each case has its own port: once a port has sent surplus bytes, no connection to that port is used twice.
            for (index, port) in ports.enumerated() {
                let wanted = [("/first", "first"), ("/next", "right"), ("/other", "right")]
                var downloads: [ObjectPath] = []
                for (path, _) in wanted {
                    // A surplus that comes while the next request is in flight looks like its answer (docs/durability.md).
                    if path == "/next" { #expect(await eventually { fileExists(folder("ports.\(index)")) }) }
                    let url = "\(scheme)://127.0.0.1:\(port)\(path)"
                    let name = "\(index)\(path.dropFirst())"
                    let options: [String: Variant] = [
                        "directory": .string(place.files), "filename": .string(name), "notify": .string("never"),
                    ]
                    downloads.append(try await lane.download(url, options))
                }
                let ends = try await lane.settle(downloads)
                for ((path, body), download) in zip(wanted, downloads) {
                    let end = ends[download.value]
                    let bytes = readFile("\(place.files)/\(index)\(path.dropFirst())").map { String(decoding: $0, as: UTF8.self) }
                    if end?.state != "finished" || bytes != body {
                        wrong.append("\(index)\(path): \(end?.state ?? "gone") \(end?.error.message ?? "") \(bytes ?? "nothing")")
                    }
                }
            }
            #expect(ports.count == Self.tries && wrong.isEmpty, "\(wrong)")
            #expect(await lane.end(SIGTERM).status == 0)
            await server.stop()
        }
    }
}
