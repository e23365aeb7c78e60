internal import Assets
internal import DownloadModel

private let bases = ["https://example.org/a/m.json?token=hidden", "http://example.org:8080/m.json"].compactMap { try? DownloadURL($0) }

/// A manifest, as it comes from a server with https and from one without.
func fuzzManifest(_ bytes: [UInt8]) {
    check(bases.count == 2, "the bases are refused")
    for base in bases {
        do throws(DownloadFailure) { checkManifest(try ManifestText.parse(bytes, from: base), base) } catch {
            check(error.name == .manifest && !error.isRetryable, "\(error)")
            check(error.message.utf8.count < 8192 && error.message.hasSuffix("."), error.message)
            check(!error.message.contains("hidden"), "the query is shown: \(error.message)")
            check(!error.message.unicodeScalars.contains { $0.properties.generalCategory == .control }, error.message.debugDescription)
            // The field, or the line of what is no JSON.
            check(["“", "line ", "the text "].contains { error.message.contains($0) }, "no field is named: \(error.message)")
        }
    }
}

private func checkManifest(_ manifest: AssetManifest, _ base: DownloadURL) {
    let version = manifest.version
    check(!version.isEmpty && version.utf8.count <= ManifestText.longestVersion, version)
    check(!version.unicodeScalars.contains { $0.properties.generalCategory == .control }, version.debugDescription)
    check(manifest.sha256.algorithm == .sha256 && manifest.sha256.digest.count == 32, "\(manifest.sha256)")
    check(manifest.mirrors.count <= ManifestText.mostMirrors, "\(manifest.mirrors.count) mirrors")
    check(Set(manifest.sources.map { Array($0.utf8) }).count == manifest.sources.count, "a URL is there twice: \(manifest.sources)")
    for source in manifest.sources {
        guard let url = try? DownloadURL(source) else { return check(false, "\(source) is refused when it is read again") }
        check(url.text.isSameBytes(as: source), "\(source) becomes \(url.text)")
        check(url.scheme == "https" || base.scheme == "http", "\(source) from \(base.scheme)")
        // The database keeps mirrors as lines.
        check(!source.utf8.contains { $0 <= 0x20 || $0 == 0x7F }, source.debugDescription)
    }
    check(manifest.neededRoom >= manifest.size ?? 0, "room for \(manifest.neededRoom)")
    if let timestamp = manifest.timestamp { check(timestamp.microseconds < 253_402_387_200_000_000, "\(timestamp.microseconds)") }
    // Written as a publisher may write it, it is the same.
    // UTC has no words for the last day, which a time zone may end after the year 9999.
    var manifest = manifest
    if let timestamp = manifest.timestamp, text(of: timestamp) == nil { manifest.timestamp = nil }
    let text = text(of: manifest)
    do throws(DownloadFailure) {
        let again = try ManifestText.parse(Array(text.utf8), from: base)
        check(again == manifest && again.version.isSameBytes(as: version), "\(again)\nfor\n\(manifest)")
    } catch { check(false, "\(error.message)\n\(text)") }
}

private func text(of manifest: AssetManifest) -> String {
    var fields = ["\"version\": \(quoted(manifest.version))", "\"url\": \(quoted(manifest.url))"]
    fields.append("\"sha256\": \"\(manifest.sha256.description.dropFirst("sha256:".count))\"")
    if let size = manifest.size { fields.append("\"size\": \(size)") }
    if let size = manifest.unpackedSize { fields.append("\"unpacked-size\": \(size)") }
    if let time = manifest.timestamp, let text = text(of: time) { fields.append("\"timestamp\": \"\(text)\"") }
    if !manifest.mirrors.isEmpty { fields.append("\"mirrors\": [\(manifest.mirrors.map(quoted).joined(separator: ", "))]") }
    return "{\(fields.joined(separator: ", "))}"
}

private func quoted(_ text: String) -> String {
    let escaped = text.unicodeScalars.map { scalar in
        switch scalar {
        case "\"", "\\": "\\\(scalar)"
        default: String(scalar)
        }
    }
    return "\"\(escaped.joined())\""
}

/// An instant in UTC, as RFC 3339 has it; nil: it is after 9999.
private func text(of time: WallTime) -> String? {
    let (seconds, fraction) = time.microseconds.quotientAndRemainder(dividingBy: 1_000_000)
    let (days, ofDay) = seconds.quotientAndRemainder(dividingBy: 86400)
    // https://howardhinnant.github.io/date_algorithms.html, civil_from_days
    let shifted = days + 719_468
    let (era, ofEra) = shifted.quotientAndRemainder(dividingBy: 146_097)
    let yearOfEra = (ofEra - ofEra / 1460 + ofEra / 36_524 - ofEra / 146_096) / 365
    let ofYear = ofEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let month = (5 * ofYear + 2) / 153
    let day = ofYear - (153 * month + 2) / 5 + 1
    let civil = month < 10 ? month + 3 : month - 9
    let year = yearOfEra + era * 400 + (civil <= 2 ? 1 : 0)
    guard year <= 9999 else { return nil }
    func digits(_ number: UInt64, _ count: Int) -> String { String(String(number + 1_000_000_000).suffix(count)) }
    let date = "\(digits(year, 4))-\(digits(civil, 2))-\(digits(day, 2))"
    return "\(date)T\(digits(ofDay / 3600, 2)):\(digits(ofDay / 60 % 60, 2)):\(digits(ofDay % 60, 2)).\(digits(fraction, 6))Z"
}
