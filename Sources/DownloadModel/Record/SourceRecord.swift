/// Why a source is not used any more. Raw values are those of the D-Bus contract.
public enum SourceFault: String, CaseIterable, Sendable {
    /// A whole file from this source alone did not have the expected digest. The source is never asked for this file again.
    case wrongBytes = "wrong-bytes"
    /// The source has a file of another size, or states a size that no file on this machine can have.
    case wrongSize = "wrong-size"
    /// The source states another digest, or its bytes do not match the digest that it states.
    case wrongDigest = "wrong-digest"
    /// The source has changed its file, or sent bytes that nobody asked for.
    case changed
    /// The source sends no ranges, and others do.
    case noRanges = "no-ranges"
    /// The source has a file of another media type.
    case wrongType = "wrong-type"
    case httpStatus = "http-status"
    /// The source was not reached, or the connection was lost.
    case network
    case timeout
    case tls
    /// A redirect was not followed.
    case redirect
    /// The source is in a network that is forbidden to the download.
    case notAllowed = "not-allowed"

    /// Whether the source contradicts bytes of other sources, or its own digest. It may still have the right file, so it is asked for the
    /// whole file after all others.
    public var isOfOthers: Bool {
        switch self {
        case .wrongSize, .wrongDigest, .changed, .noRanges: true
        default: false
        }
    }

    /// nil: the failure says nothing about the source, so no other source helps: it is of the disk, of this machine's network, of the
    /// proxy, or of a limit.
    public init?(_ failure: DownloadFailure) {
        guard failure.wait == nil else { return nil }
        switch failure.name {
        case .network, .truncated: self = .network
        case .timeout: self = .timeout
        case .tls: self = .tls
        case .httpStatus: self = .httpStatus
        case .tooManyRedirects, .unsafeRedirect: self = .redirect
        case .notAllowed: self = .notAllowed
        case .sizeMismatch: self = .wrongSize
        case .typeMismatch: self = .wrongType
        default: return nil
        }
    }
}

/// What is known of one source of a download.
public struct SourceRecord: Equatable, Sendable {
    /// `DownloadURL.text`.
    public var url: String
    /// The bytes of the file that it has brought, also those that were dropped later.
    public var received: ByteCount = 0
    /// Why the source is not used any more; nil: it may be used.
    public var left: SourceFault?

    public init(url: String, received: ByteCount = 0, left: SourceFault? = nil) {
        (self.url, self.received, self.left) = (url, received, left)
    }
}

extension [SourceRecord] {
    /// The text for the database: a line for each source, with the bytes, the fault or "-", and the URL.
    public var storedText: String { map { "\($0.received) \($0.left?.rawValue ?? "-") \($0.url)\n" }.joined() }

    /// Reads `storedText`. Unreadable lines are left out, and so are lines beyond the number of sources that a download may have: then the
    /// service has forgotten what it knew of these sources.
    public init(storedText text: String) {
        self = text.utf8.split(separator: UInt8(ascii: "\n")).prefix(Limits.mirrors + 1).compactMap { line in
            let parts = line.split(separator: UInt8(ascii: " "), maxSplits: 2, omittingEmptySubsequences: false).map { String($0) ?? "" }
            guard parts.count == 3, let received = ByteCount(parts[0]) else { return nil }
            let left = SourceFault(rawValue: parts[1])
            return left == nil && parts[1] != "-" ? nil : SourceRecord(url: parts[2], received: received, left: left)
        }
    }
}

extension DownloadRecord {
    /// Whether bytes of different servers may be joined: only something that proves the whole file allows it. Once a joined file was wrong,
    /// each source is tried alone.
    public var mixesSources: Bool { options.provesFile && !hasStartedOver }

    /// The option `mirrors`, then the mirrors that the server has named.
    public var mirrors: [String] {
        guard options.findsMirrors else { return options.mirrors }
        let found = sources.lazy.map(\.url).filter { $0 != url && !options.mirrors.contains($0) }
        return options.mirrors + found.prefix(max(0, Limits.mirrors -| options.mirrors.count))
    }

    /// The URL, then each mirror that differs from it, in the order of preference.
    public var sourceURLs: [String] { [url] + mirrors.filter { $0 != url } }

    /// What is known of each source, in the order of `sourceURLs`. Empty if the download has no mirrors.
    public var knownSources: [SourceRecord] {
        guard !mirrors.isEmpty else { return [] }
        let known = sources
        return sourceURLs.map { url in known.first { $0.url == url } ?? SourceRecord(url: url) }
    }

    /// The URL of the next transfer's first request: of the source whose bytes are held, else of the first source; neither is known to have
    /// wrong bytes.
    public var firstURL: String {
        guard !mirrors.isEmpty else { return url }
        let right = knownSources.filter { $0.left != .wrongBytes }.map(\.url)
        if let resume, !resume.ranges.isEmpty, right.isEmpty || right.contains(heldURL) { return heldURL }
        return right.first ?? url
    }

    /// The URL of the source that the bytes in the part file belong to.
    private var heldURL: String {
        let mirrors = mirrors
        guard let place = resume?.mirror, place < mirrors.count else { return url }
        return mirrors[Int(place)]
    }

    /// The bytes in the part file are whole and wrong. Notes which source is to blame, if one alone has brought them.
    ///
    /// - Returns: whether the file may be fetched again, from 0 and from one source: either the bytes came from several responses, and that
    ///   has not been tried yet; or another source is left.
    public mutating func learnFromMismatch() -> Bool {
        if isSpliced, !hasStartedOver { return true }
        var known = knownSources
        // Each time another source is to blame, so this ends.
        guard let culprit = known.firstIndex(where: { $0.url == heldURL }), known[culprit].left != .wrongBytes else { return false }
        known[culprit].left = .wrongBytes
        sources = known
        return known.contains { $0.left != .wrongBytes }
    }

    /// Somebody wants the download again. If all sources had wrong bytes, they may have been repaired.
    package mutating func forgiveSources() {
        guard !sources.isEmpty else { return }
        let isHopeless = knownSources.allSatisfy { $0.left == .wrongBytes }
        for index in sources.indices where isHopeless || sources[index].left != .wrongBytes { sources[index].left = nil }
    }
}
