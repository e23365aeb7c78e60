internal import EventLoop
internal import Glibc

/// A TLS server of openssl(1) on 127.0.0.1 for one test, with a certificate for that address as the test describes it. To a request over a
/// connection that it accepts, it answers with a page about the connection (s_server -www).
///
/// It ends with its last reference.
public final class SecureServer: Sendable {
    private let folder: TemporaryFolder
    private let daemon: Child
    private let reserved = ReservedPort()
    public var port: UInt16 { reserved.number }
    /// The certificate (PEM) of the authority that signed the server's, unless it signed its own.
    public var authority: String { folder("ca.pem") }

    /// - Parameters:
    ///   - names: the certificate's subjectAltName.
    ///   - years: the first and the last year of its validity.
    ///   - signsItself: whether no authority signs it.
    ///   - rival: a file that begins with the certificate (PEM) of an authority with an RSA key. The server's authority has the same name,
    ///     and a key of its own; nil: it has another name.
    ///   - arguments: more arguments of `openssl s_server`.
    public init(
        names: String = "IP:127.0.0.1", years: ClosedRange<Int> = 2020...2090, signsItself: Bool = false, rival: String? = nil,
        arguments: [String] = []
    ) async {
        let folder = TemporaryFolder("todoku-tls")
        let key: [String] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        func openssl(_ arguments: [String]) async {
            let exit = await Child.run(["openssl"] + arguments, folder: folder.path)
            precondition(exit.status == 0, "openssl \(arguments): \(exit.errors)")
        }
        writeFile(folder("server.ext"), "subjectAltName=\(names)\nbasicConstraints=CA:FALSE\n".utf8)
        writeFile(
            folder("ca.conf"),
            """
            [ca]
            default_ca = own
            [own]
            database = index.txt
            serial = serial
            new_certs_dir = .
            default_md = sha256
            policy = any
            [any]
            commonName = supplied

            """.utf8)
        writeFile(folder("index.txt"), "".utf8)
        writeFile(folder("serial"), "01\n".utf8)
        if let rival {
            await openssl(["genrsa", "-out", "ca.key", "2048"])
            await openssl(["x509", "-in", rival, "-signkey", "ca.key", "-days", "2", "-out", "ca.pem"])
        } else {
            await openssl(["req", "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Todoku Test CA"] + key)
        }
        await openssl(["req", "-new", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server"] + key)
        let (start, end) = ("\(years.lowerBound)0101000000Z", "\(years.upperBound)1231000000Z")
        let signer: [String] = signsItself ? ["-selfsign", "-keyfile", "server.key"] : ["-cert", "ca.pem", "-keyfile", "ca.key"]
        let request: [String] = [
            "ca", "-batch", "-notext", "-config", "ca.conf", "-in", "server.csr", "-out", "server.pem", "-extfile", "server.ext",
            "-startdate", start, "-enddate", end,
        ]
        await openssl(request + signer)
        let serve: [String] = [
            "openssl", "s_server", "-accept", "127.0.0.1:\(reserved.number)", "-cert", "server.pem", "-key", "server.key", "-www",
        ]
        let daemon = Child(serve + arguments, folder: folder.path)
        // s_server writes this once it listens.
        let isUp = await eventually { !daemon.isRunning || daemon.output.contains("ACCEPT") }
        precondition(isUp && daemon.isRunning, "openssl did not start: \(daemon.errors)")
        (self.folder, self.daemon) = (folder, daemon)
    }

    deinit { daemon.signal(SIGTERM) }

    public func url(_ path: String = "/", host: String = "127.0.0.1") -> String { "https://\(host):\(port)\(path)" }
}
