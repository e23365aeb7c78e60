/// Identifies a cached copy: one app, one URL, one folder and the requested name.
public struct CopyKey: Hashable, Sendable {
    public var app: String
    public var url: String
    public var directory: String
    /// The option `filename`; nil if the response names the file.
    public var wantedName: String?

    public init(app: String, url: String, directory: String, wantedName: String?) {
        (self.app, self.url, self.directory, self.wantedName) = (app, url, directory, wantedName)
    }

    private var bytes: [ByteText?] { [ByteText(app), ByteText(url), ByteText(directory), wantedName.map { ByteText($0) }] }

    public static func == (a: CopyKey, b: CopyKey) -> Bool { a.bytes == b.bytes }

    public func hash(into hasher: inout Hasher) { hasher.combine(bytes) }
}

/// A file's state at one moment. Shows whether a file is still the same one and has not been written since.
public struct FileStamp: Equatable, Sendable {
    public var identity: FileIdentity
    public var size: ByteCount
    /// Nanoseconds since the Unix epoch (`st_mtim`).
    public var modified: Int64

    public init(identity: FileIdentity, size: ByteCount, modified: Int64) {
        (self.identity, self.size, self.modified) = (identity, size, modified)
    }

    /// Whether a file with the stamp `now` is the file of this stamp. After a reboot device numbers may differ; inodes do not.
    public func isOf(_ now: FileStamp) -> Bool {
        size == now.size && modified == now.modified && identity.inode == now.identity.inode
            && (identity.boot != now.identity.boot || identity.device == now.identity.device)
    }
}

/// The last file fetched for a key. The next Fetch revalidates it, and returns it if the server has nothing newer.
public struct CachedCopy: Equatable, Sendable {
    public var key: CopyKey
    /// The file's bare name in the key's folder.
    public var name: String
    public var stamp: FileStamp
    /// nil: the copy cannot be revalidated; the bytes of a new response are compared with it.
    public var validators: CopyValidators?
    public var mediaType: String?
    /// The checksum that verified the copy.
    public var checksum: Checksum?
    /// What proved the copy when it was downloaded.
    public var proof: FileProof?

    public init(
        key: CopyKey, name: String, stamp: FileStamp, validators: CopyValidators?, mediaType: String? = nil, checksum: Checksum? = nil,
        proof: FileProof? = nil
    ) {
        (self.key, self.name, self.stamp, self.validators) = (key, name, stamp, validators)
        (self.mediaType, self.checksum, self.proof) = (mediaType, checksum, proof)
    }

    public var path: String { "\(key.directory)/\(name)" }

    public static func == (a: CachedCopy, b: CachedCopy) -> Bool {
        a.key == b.key && a.name.isSameBytes(as: b.name) && a.stamp == b.stamp && a.validators == b.validators && a.mediaType == b.mediaType
            && a.checksum == b.checksum && a.proof == b.proof
    }
}

/// A representation's validators, for a later conditional request.
public struct CopyValidators: Equatable, Sendable {
    /// With its quotes; may be weak (RFC 9110 §13.1.2 compares weakly).
    public var entityTag: String?
    /// As the server sent it.
    public var lastModified: String?
    /// The URL that answered, possibly after redirects. A validator belongs to this URL only and is sent to no other.
    public var source: String

    public init(entityTag: String?, lastModified: String?, source: String) {
        (self.entityTag, self.lastModified, self.source) = (entityTag, lastModified, source)
    }

    /// From a response's fields; nil if they hold no usable validator.
    ///
    /// A date counts only if §8.8.2.2 calls it strong; otherwise a second change within the same second would be missed. It does not count
    /// if the response has `Vary`, because a date cannot tell variants apart; `Vary: Accept-Encoding` alone is ignored.
    public init?(entityTag: String?, lastModified: String?, date: String?, vary: String?, source: String) {
        let tag = entityTag.flatMap(Self.wellFormed)
        var modified: String?
        if !Self.varies(vary), case .lastModified(let field)? = Validator(entityTag: nil, lastModified: lastModified, date: date) {
            modified = field
        }
        guard tag != nil || modified != nil else { return nil }
        self.init(entityTag: tag, lastModified: modified, source: source)
    }

    /// From the strong validator of bytes that came in several responses; nil if the validator is a date, and the last response varies.
    public init?(_ validator: Validator, vary: String?, source: String) {
        switch validator {
        case .entityTag(let tag): self.init(entityTag: tag, lastModified: nil, source: source)
        case .lastModified(let date):
            guard !Self.varies(vary) else { return nil }
            self.init(entityTag: nil, lastModified: date, source: source)
        }
    }

    /// Whether a response with this field has variants that a date cannot tell apart.
    private static func varies(_ vary: String?) -> Bool {
        vary.map { $0.lowercased().split { ", \t".contains($0) }.contains { $0 != "accept-encoding" } } ?? false
    }

    /// Whether a 304 with these fields can be about the representation in question; a different field is a contradiction.
    public func matches(entityTag: String?, lastModified: String?) -> Bool {
        if let own = self.entityTag {
            // §13.2.2: if there is a tag, the date is ignored.
            return entityTag.map { Self.opaque(String($0.trimmingBlanks)).isSameBytes(as: Self.opaque(own)) } ?? true
        }
        guard let own = self.lastModified else { return false }
        return Validator.lastModified(own).matches(entityTag: nil, lastModified: lastModified)
    }

    private static func opaque(_ tag: String) -> Substring {
        guard tag.utf8.starts(with: "W/".utf8) else { return tag[...] }
        return tag[tag.utf8.index(tag.startIndex, offsetBy: 2)...]
    }

    /// `[ "W/" ] DQUOTE *etagc DQUOTE` (§8.8.3).
    private static func wellFormed(_ field: String) -> String? {
        let tag = String(field.trimmingBlanks)
        guard case .entityTag? = Validator(entityTag: String(opaque(tag)), lastModified: nil, date: nil) else { return nil }
        return tag
    }
}

extension DownloadRecord {
    /// The key of this download's cached copy.
    public var copyKey: CopyKey { CopyKey(app: options.app, url: url, directory: directory, wantedName: options.fileName) }

    /// Whether the finished file is kept as a cached copy.
    public var keepsCopy: Bool { (isFetch || options.onlyIfChanged) && options.extract == nil }
}
