internal import EventLoop

/// Which libraries are there, in which version.
enum LibraryExamination {
    @BusActor static func findings() async -> [Finding] {
        // On a thread of their own: loading reads files, whose disk may hang.
        let found = await Pool.programs.value(within: BusProbe.patience) { all() }
        return found
            ?? [
                Finding(.library, .wrong, Phrase("the libraries cannot be loaded in time"), advice: Phrase("Check the disk with /usr/lib."))
            ]
    }

    /// One line for libcurl, one for all others that are there, and one for each that is not. Blocks.
    private static func all() -> [Finding] {
        var findings = [curl(Library.curl.describe())]
        var present: [String] = []
        for library in Library.others {
            if let text = library.describe() {
                present.append(text)
            } else {
                findings.append(absent(library))
            }
        }
        findings.append(Finding(.library, .found, Phrase(foreign: present.joined(separator: ", "))))
        return findings
    }

    private static func absent(_ library: Library) -> Finding {
        Finding(
            .library, library.isNeeded ? .wrong : .missing, Phrase("without \(library.file), \(library.loss)"),
            advice: Phrase("Install \(library.package), or the package of your system with this file."))
    }

    /// The oldest libcurl that the service accepts, because older ones ignore options that keep a download safe.
    private static let oldestCurl = [7, 85, 0]

    /// - Parameter text: what curl_version(3) returns, such as "libcurl/7.88.1 OpenSSL/3.0.9 zlib/1.2.13 nghttp2/1.52.0"; nil: there is
    ///   no libcurl.
    static func curl(_ text: String?) -> Finding {
        guard let text else { return absent(.curl) }
        let words = text.split(separator: " ")
        let numbers = words.first?.split(separator: "/").last?.split(separator: ".").map { Int($0.prefix { $0.isNumber }) ?? 0 } ?? []
        if numbers.lexicographicallyPrecedes(oldestCurl) {
            return Finding(
                .library, .wrong, Phrase("\(text) is older than 7.85.0, so nothing is downloaded"), advice: Phrase("Update libcurl."))
        }
        func has(_ names: String...) -> Bool { names.contains { name in words.contains { $0.drop { $0 == "(" }.hasPrefix(name) } } }
        guard has("OpenSSL", "GnuTLS", "LibreSSL", "BoringSSL", "mbedTLS", "wolfSSL", "NSS", "quictls", "AWS-LC", "rustls") else {
            return Finding(
                .library, .wrong, Phrase("\(text) has no TLS, so no https is downloaded"), advice: Phrase("Install a libcurl with TLS."))
        }
        guard has("nghttp2") else {
            return Finding(
                .library, .missing, Phrase("\(text) has no HTTP/2, so small files of one server do not share a connection"),
                advice: Phrase("Install a libcurl with nghttp2."))
        }
        return Finding(.library, .found, Phrase(foreign: text))
    }
}
