/// What a manifest says: the latest version of an asset, and where it is.
public struct AssetManifest: Equatable, Sendable {
    /// The publisher's name of the version. Versions are compared byte by byte, for equality only.
    public var version: String
    /// The URL of the archive, absolute.
    public var url: String
    /// The SHA-256 digest of the archive.
    public var sha256: Checksum
    /// The size of the archive; nil: unknown.
    public var size: ByteCount?
    /// The size of all files of the archive together; nil: unknown.
    public var unpackedSize: ByteCount?
    /// When the version was published; nil: unknown.
    public var timestamp: WallTime?
    /// Further URLs of the same bytes, absolute, in order of preference.
    public var mirrors: [String]

    public init(
        version: String, url: String, sha256: Checksum, size: ByteCount? = nil, unpackedSize: ByteCount? = nil, timestamp: WallTime? = nil,
        mirrors: [String] = []
    ) {
        (self.version, self.url, self.sha256, self.size) = (version, url, sha256, size)
        (self.unpackedSize, self.timestamp, self.mirrors) = (unpackedSize, timestamp, mirrors)
    }

    /// The URLs of the archive, in the order in which they are tried.
    public var sources: [String] { [[url], mirrors].flatMap { $0 } }

    /// The URL at `place` of `sources`; the first if there is none.
    public func source(at place: Int) -> String { sources.indices.contains(place) ? sources[place] : url }

    /// The room that the archive and its files take on a disk, as far as it is known.
    public var neededRoom: ByteCount { (size ?? 0) +| (unpackedSize ?? size ?? 0) }

    /// Whether both name the same bytes as the same version. URLs do not count.
    public func isSameVersion(as other: AssetManifest) -> Bool { version.isSameBytes(as: other.version) && sha256 == other.sha256 }
}

/// What a folder holds, folders in it included.
public struct FolderSize: Equatable, Sendable {
    /// Files, links and folders.
    public var entries: UInt64
    /// The bytes of all files, as `stat` tells them.
    public var bytes: ByteCount

    public init(entries: UInt64, bytes: ByteCount) { (self.entries, self.bytes) = (entries, bytes) }

    /// Whether this folder has at least as many entries and bytes as `other`.
    public func covers(_ other: FolderSize) -> Bool { entries >= other.entries && bytes >= other.bytes }
}

/// A version of an asset that is on the disk.
public struct AssetVersion: Equatable, Sendable {
    public var version: String
    /// The name of its folder in the asset's directory.
    public var folder: String
    /// The digest of the archive it came from; nil: unknown.
    public var sha256: Checksum?
    public var timestamp: WallTime?
    /// What was unpacked; nil: unknown.
    public var size: FolderSize?

    public init(version: String, folder: String, sha256: Checksum? = nil, timestamp: WallTime? = nil, size: FolderSize? = nil) {
        (self.version, self.folder, self.sha256, self.timestamp, self.size) = (version, folder, sha256, timestamp, size)
    }

    public init(_ update: PendingUpdate) {
        self.init(
            version: update.manifest.version, folder: update.folder, sha256: update.manifest.sha256, timestamp: update.manifest.timestamp,
            size: update.unpacked)
    }
}
