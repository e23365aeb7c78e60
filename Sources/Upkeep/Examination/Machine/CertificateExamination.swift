internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Transport

/// Whether there are certificates to check https servers by.
enum CertificateExamination {
    /// Most bytes of a file that are looked at, and most names in a folder.
    private static let mostBytes = 1 << 16
    private static let mostNames = 4096
    private static let install = Phrase("Install ca-certificates, or name a file by SSL_CERT_FILE in the environment of the service.")

    private static let correct = Phrase("Correct the variable in the environment of the service, or remove it.")

    /// - Parameter environment: that of the service.
    @BusActor static func finding(_ environment: [String: String]) async -> Finding {
        let found = await Pool.programs.value(within: BusProbe.patience) { finding(CertificateStore.builtIn(), environment) }
        return found
            ?? Finding(
                .certificates, .wrong, Phrase("the certificates cannot be read in time"), advice: Phrase("Check the disk with /etc/ssl."))
    }

    /// Blocks.
    ///
    /// - Parameter builtIn: the store of libcurl; nil: there is no libcurl.
    static func finding(_ builtIn: CertificateStore?, _ environment: [String: String]) -> Finding {
        let store = (builtIn ?? CertificateStore()).replaced(by: environment)
        // libcurl fails if it is given a file that it cannot read, whatever the folder has.
        if let file = environment["SSL_CERT_FILE"], !file.isEmpty, !hasCertificate(file: file) {
            return Finding(
                .certificates, .wrong, Phrase("SSL_CERT_FILE names \(file), which has no certificate, so no https server can be trusted"),
                advice: correct)
        }
        guard builtIn != nil else {
            return Finding(
                .certificates, .missing, Phrase("without libcurl nobody tells where the certificates are"),
                advice: Phrase("Install libcurl first."))
        }
        if let file = store.file, hasCertificate(file: file) {
            return Finding(.certificates, .found, Phrase("https servers are checked by the certificates in \(file)"))
        }
        if let folder = store.folder, hasCertificate(folder: folder) {
            return Finding(.certificates, .found, Phrase("https servers are checked by the certificates in \(folder)"))
        }
        let places: Phrase
        switch (store.file, store.folder) {
        case (let file?, let folder?): places = Phrase("\(file) or \(folder)")
        case (let place?, nil), (nil, let place?): places = Phrase(foreign: place)
        case (nil, nil):
            return Finding(.certificates, .found, Phrase("https servers are checked by the certificates of libcurl’s TLS library"))
        }
        return Finding(
            .certificates, .wrong, Phrase("there is no certificate in \(places), so no https server can be trusted"),
            advice: store == builtIn ? install : correct)
    }

    /// Whether the file begins with a certificate (PEM, RFC 7468), perhaps behind comments.
    private static func hasCertificate(file: String) -> Bool {
        let head = firstBytes(of: file, atMost: mostBytes) ?? []
        return ["-----BEGIN CERTIFICATE-----", "-----BEGIN TRUSTED CERTIFICATE-----"].contains { head.firstRange(of: $0.utf8) != nil }
    }

    /// Whether the folder, or one of several that colons separate, has a file named by the hash of a certificate, as OpenSSL looks it up:
    /// "002c0b4f.0".
    private static func hasCertificate(folder: String) -> Bool {
        folder.split(separator: ":").contains { hasHashedCertificate(String($0)) }
    }

    private static func hasHashedCertificate(_ folder: String) -> Bool {
        for name in folderNames(folder, atMost: mostNames) ?? [] {
            let parts = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
            guard parts.count == 2, parts[0].count == 8, UInt32(name.prefix(8), radix: 16) != nil, UInt8(String(parts[1]) ?? "") != nil
            else { continue }
            if access("\(folder)/\(name)", R_OK) == 0 { return true }
        }
        return false
    }
}
