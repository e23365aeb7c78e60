internal import EventLoop
internal import Glibc

/// A real nginx for one test: http and https (with HTTP/2), its own folder, configuration, ports and certificate authority.
///
///     let nginx = await Nginx(limitRate: "64k")
///     nginx.put("file.bin", patternBytes(1_000_000))
///     … nginx.url("/file.bin"), nginx.secureURL("/file.bin") with SSL_CERT_FILE=nginx.authority …
///
/// It ends with its last reference, or by `stop`.
public final class Nginx: Sendable {
    public let folder: TemporaryFolder
    public let port: UInt16
    public let securePort: UInt16
    /// The certificate (PEM) of the CA that signed the server's certificate for "127.0.0.1" and "localhost".
    public var authority: String { process.authority }
    private let process: NginxProcess

    /// - Parameters:
    ///   - limitRate: nginx's `limit_rate` for each response, such as "64k"; nil: none.
    ///   - extra: more lines for the configuration's `server` blocks.
    ///   - http: more lines for its `http` block.
    public init(limitRate: String? = nil, extra: String = "", http: String = "") async {
        process = await NginxProcess { folder, ports in
            folder.makeFolder("root")
            folder.makeFolder("tmp")
            return Nginx.configuration(folder, ports, limitRate, extra, http)
        }
        (folder, port, securePort) = (process.folder, process.ports.0, process.ports.1)
    }

    public func stop() async { await process.stop() }

    /// Puts a file under the document root.
    public func put(_ name: String, _ bytes: some Sequence<UInt8>) { writeFile(folder("root/\(name)"), bytes) }

    public func url(_ path: String) -> String { "http://127.0.0.1:\(port)\(path)" }
    public func secureURL(_ path: String) -> String { "https://127.0.0.1:\(securePort)\(path)" }

    /// The access log's lines so far: "PROTOCOL STATUS REQUEST-URI RANGE".
    public var log: [String] {
        String(decoding: readFile(folder("access.log")) ?? [], as: UTF8.self).split(separator: "\n").map(String.init)
    }

    private static func configuration(
        _ folder: TemporaryFolder, _ ports: (UInt16, UInt16), _ limitRate: String?, _ extra: String, _ http: String
    ) -> String {
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map { "\($0)_temp_path \(folder("tmp"))/\($0);" }
        return """
            http {
                \(paths.joined(separator: "\n    "))
                log_format short '$server_protocol $status $request_uri $http_range';
                access_log \(folder("access.log")) short;
                types { application/zip zip; text/plain txt; }
                default_type application/octet-stream;
                sendfile on;
                \(http)
                server {
                    listen 127.0.0.1:\(ports.0);
                    root \(folder("root"));
                    \(limitRate.map { "limit_rate \($0);" } ?? "")
                    \(extra)
                }
                server {
                    listen 127.0.0.1:\(ports.1) ssl http2;
                    \(NginxProcess.certificate(in: folder))
                    root \(folder("root"));
                    \(limitRate.map { "limit_rate \($0);" } ?? "")
                    \(extra)
                }
            }

            """
    }
}

/// An nginx with a configuration of its own, and a certificate for "127.0.0.1" and "localhost". It ends with its last reference.
final class NginxProcess: Sendable {
    let folder: TemporaryFolder
    /// The ports of 127.0.0.1 on which the configuration makes nginx listen.
    let ports: (UInt16, UInt16)
    private let reserved = (ReservedPort(), ReservedPort())
    /// The certificate (PEM) of the CA that signed the server's.
    var authority: String { folder("ca.pem") }
    private let daemon: Child

    /// - Parameters:
    ///   - modules: the file names of the modules that the configuration needs. nginx may have some of them built in.
    ///   - configuration: the blocks of the configuration, for a folder and two ports.
    init(modules: [String] = [], _ configuration: (TemporaryFolder, (UInt16, UInt16)) -> String) async {
        let folder = TemporaryFolder("todoku-nginx")
        chmod(folder.path, 0o755)
        await NginxProcess.makeCertificates(folder)
        let paths = modules.map { "/usr/lib/nginx/modules/\($0)" }.filter(fileExists)
        let head = """
            \(paths.map { "load_module \($0);" }.joined(separator: "\n"))
            daemon off;
            master_process off;
            pid \(folder("nginx.pid"));
            error_log stderr;
            events { worker_connections 512; }

            """
        let ports = (reserved.0.number, reserved.1.number)
        writeFile(folder("nginx.conf"), (head + configuration(folder, ports)).utf8)
        let daemon = Child(["nginx", "-p", folder.path, "-c", folder("nginx.conf"), "-e", "stderr"], environment: processEnvironment())
        // nginx writes this file once it listens.
        let isUp = await eventually { !daemon.isRunning || fileExists(folder("nginx.pid")) }
        precondition(isUp && daemon.isRunning, "nginx did not start: \(daemon.errors)")
        (self.folder, self.daemon, self.ports) = (folder, daemon, ports)
    }

    deinit { daemon.signal(SIGTERM) }

    func stop() async { await daemon.stop() }

    /// The lines of a `server` block that name the certificate.
    static func certificate(in folder: TemporaryFolder) -> String {
        "ssl_certificate \(folder("server.pem")); ssl_certificate_key \(folder("server.key"));"
    }

    private static func makeCertificates(_ folder: TemporaryFolder) async {
        writeFile(folder("server.ext"), "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n".utf8)
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        await openssl(
            folder, ["req", "-x509"] + key + ["-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Todoku Test CA"])
        await openssl(folder, ["req", "-new"] + key + ["-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1"])
        await openssl(
            folder,
            [
                "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile",
                "server.ext", "-out", "server.pem",
            ])
    }

    private static func openssl(_ folder: TemporaryFolder, _ arguments: [String]) async {
        let exit = await Child.run(["openssl"] + arguments, folder: folder.path)
        precondition(exit.status == 0, "openssl \(arguments): \(exit.errors)")
    }
}
