/// Whose copy of what: one app's, of one URL, put into one folder under the name asked for.
public struct CopyKey: Hashable, Sendable {
    public var app: String
    public var url: String
    public var directory: String
    /// The option `filename`; nil: the response's name was taken.
    public var wantedName: String?

    public init(app: String, url: String, directory: String, wantedName: String?) {
        (self.app, self.url, self.directory, self.wantedName) = (app, url, directory, wantedName)
    }

    private var bytes: [ByteText?] { [ByteText(app), ByteText(url), ByteText(directory), wantedName.map { ByteText($0) }] }

    public static func == (a: CopyKey, b: CopyKey) -> Bool { a.bytes == b.bytes }

    public func hash(into hasher: inout Hasher) { hasher.combine(bytes) }
}

/// A file as it was at one moment: whether it is still that file, and nobody has written it since.
public struct FileStamp: Equatable, Sendable {
    public var identity: FileIdentity
    public var size: ByteCount
    /// Nanoseconds since the Unix epoch (`st_mtim`).
    public var modified: Int64

    public init(identity: FileIdentity, size: ByteCount, modified: Int64) {
        (self.identity, self.size, self.modified) = (identity, size, modified)
    }

    /// Whether a file that looks so now is the one that looked as `self` does. Over a restart of the machine device numbers may change, and
    /// inodes stay.
    public func isOf(_ now: FileStamp) -> Bool {
        size == now.size && modified == now.modified && identity.inode == now.identity.inode
            && (identity.boot != now.identity.boot || identity.device == now.identity.device)
    }
}

/// The last file that was fetched for a key: what the next Fetch asks the server about, and is answered with where nothing has changed.
public struct CopyHeld: Equatable, Sendable {
    public var key: CopyKey
    /// Its bare name in the key's folder.
    public var name: String
    public var stamp: FileStamp
    /// nil: the server is not asked whether it has changed; what comes is compared with it.
    public var validators: CopyValidators?
    public var mediaType: String?
    /// That it was proved by.
    public var checksum: Checksum?

    public init(
        key: CopyKey, name: String, stamp: FileStamp, validators: CopyValidators?, mediaType: String? = nil, checksum: Checksum? = nil
    ) {
        (self.key, self.name, self.stamp, self.validators) = (key, name, stamp, validators)
        (self.mediaType, self.checksum) = (mediaType, checksum)
    }

    public var path: String { "\(key.directory)/\(name)" }

    public static func == (a: CopyHeld, b: CopyHeld) -> Bool {
        a.key == b.key && a.name.isSameBytes(as: b.name) && a.stamp == b.stamp && a.validators == b.validators && a.mediaType == b.mediaType
            && a.checksum == b.checksum
    }
}

/// What a server told of a representation, for asking later whether it has changed.
public struct CopyValidators: Equatable, Sendable {
    /// With its quotes; a weak one too (RFC 9110 §13.1.2 compares weakly).
    public var entityTag: String?
    /// As the server sent it.
    public var lastModified: String?
    /// The URL that answered, which may be where redirects led: a validator is of its own URL only, and is told to nobody else.
    public var source: String

    public init(entityTag: String?, lastModified: String?, source: String) {
        (self.entityTag, self.lastModified, self.source) = (entityTag, lastModified, source)
    }

    /// From a response's fields; nil where there is none to ask by.
    ///
    /// A date counts only where §8.8.2.2 calls it strong, so that a second change within the same second is not missed, and where the
    /// response does not vary by what the request says (`Vary`): a date does not tell variants apart.
    public init?(entityTag: String?, lastModified: String?, date: String?, vary: String?, source: String) {
        let tag = entityTag.flatMap(Self.wellFormed)
        var modified: String?
        let varies = vary.map { $0.lowercased().split { ", \t".contains($0) }.contains { $0 != "accept-encoding" } } ?? false
        if !varies, case .lastModified(let field)? = Validator(entityTag: nil, lastModified: lastModified, date: date) { modified = field }
        guard tag != nil || modified != nil else { return nil }
        self.init(entityTag: tag, lastModified: modified, source: source)
    }

    /// From the strong validator of bytes that came in pieces.
    public init(_ validator: Validator, source: String) {
        switch validator {
        case .entityTag(let tag): self.init(entityTag: tag, lastModified: nil, source: source)
        case .lastModified(let date): self.init(entityTag: nil, lastModified: date, source: source)
        }
    }

    /// Whether a 304 with these fields can be about the representation asked about: a field that differs is a contradiction.
    public func matches(entityTag: String?, lastModified: String?) -> Bool {
        if let own = self.entityTag {
            // §13.2.2: where there is a tag, the date decides nothing.
            return entityTag.map { Self.opaque(Self.trimmed($0)).isSameBytes(as: Self.opaque(own)) } ?? true
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
        let tag = trimmed(field)
        guard case .entityTag? = Validator(entityTag: String(opaque(tag)), lastModified: nil, date: nil) else { return nil }
        return tag
    }

    private static func trimmed(_ field: String) -> String {
        var field = field[...].drop { $0 == " " || $0 == "\t" }
        while field.last == " " || field.last == "\t" { field.removeLast() }
        return String(field)
    }
}

extension DownloadRecord {
    /// Where its copy is kept.
    public var copyKey: CopyKey { CopyKey(app: options.app, url: url, directory: directory, wantedName: options.fileName) }

    /// Whether the file it ends with is a copy held.
    public var keepsCopy: Bool { isFetch || options.onlyIfChanged }
}
