/// The data of a download that outlast a restart. It makes no decisions.
///
/// A queued record is small: records with equal options share them, and values that only a started download has are stored apart.
public struct DownloadRecord: Equatable, Sendable {
    public let number: DownloadNumber
    /// Absolute, http or https, with its query. Without user, password and fragment.
    public var url: String
    @usableFromInline var sharedOptions: Shared<DownloadOptions>
    @inlinable public var options: DownloadOptions {
        _read { yield sharedOptions.value }
        _modify { yield &sharedOptions.value }
    }
    /// The folder of the part file and of the final file. Absolute; exists when the download is added. Empty if `isToDescriptor`.
    public var directory: String
    public var state: DownloadState
    public var queuedAt: WallTime
    /// Bytes in the part file at the last save.
    public var received: ByteCount = 0
    /// Complete size; nil while unknown.
    public var total: ByteCount?
    /// Order among the downloads of one priority; lower first.
    public var position: Int64
    /// The batch to which the download belongs.
    public var batch: DownloadNumber?
    /// A call of `Fetch` added it.
    public var isFetch = false
    /// nil: the download has neither started nor ended.
    private var course: Shared<Course>?

    private mutating func change(_ change: (inout Course) -> Void) {
        if course == nil { course = Shared(Course()) }
        change(&course!.value)
    }

    public var startedAt: WallTime? {
        get { course?.value.startedAt }
        set { if newValue != startedAt { change { $0.startedAt = newValue } } }
    }
    public var endedAt: WallTime? {
        get { course?.value.endedAt }
        set { if newValue != endedAt { change { $0.endedAt = newValue } } }
    }
    /// Attempts begun since the download was added.
    public var attempts: UInt32 {
        get { course?.value.attempts ?? 0 }
        set { if newValue != attempts { change { $0.attempts = newValue } } }
    }
    /// Failed attempts in a row without progress that count. Compared with `options.retries`.
    public var retriesUsed: UInt32 {
        get { course?.value.retriesUsed ?? 0 }
        set { if newValue != retriesUsed { change { $0.retriesUsed = newValue } } }
    }
    /// A safe bare name, once it is known.
    public var fileName: String? {
        get { course?.value.fileName?.text }
        set { if !newValue.isSameBytes(as: fileName) { change { $0.fileName = newValue.map { ByteText($0) } } } }
    }
    public var mediaType: String? {
        get { course?.value.mediaType }
        set { if newValue != mediaType { change { $0.mediaType = newValue } } }
    }
    /// The URL after redirects, without credentials and query, if it differs from `url`.
    public var source: String? {
        get { course?.value.source }
        set { if newValue != source { change { $0.source = newValue } } }
    }
    /// The final path of a finished download.
    public var path: String? {
        get { course?.value.path?.text }
        set { if !newValue.isSameBytes(as: path) { change { $0.path = newValue.map { ByteText($0) } } } }
    }
    public var resume: ResumeData? {
        get { course?.value.resume }
        set { if newValue != resume { change { $0.resume = newValue } } }
    }
    /// No retry before this instant: the back-off, or the server's `Retry-After`. A pause does not clear it.
    public var retryAt: WallTime? {
        get { course?.value.retryAt }
        set { if newValue != retryAt { change { $0.retryAt = newValue } } }
    }
    /// When `options.deadline` expires; nil while its time does not run.
    public var expiresAt: WallTime? {
        get { course?.value.expiresAt }
        set { if newValue != expiresAt { change { $0.expiresAt = newValue } } }
    }
    /// The rest of `options.deadline` when a pause stopped its time.
    public var timeLeft: Duration? {
        get { course?.value.timeLeft }
        set { if newValue != timeLeft { change { $0.timeLeft = newValue } } }
    }
    /// The server no longer accepts the link, and the owner has not given a fresh one.
    public var awaitsUrl: Bool {
        get { course?.value.awaitsUrl ?? false }
        set { if newValue != awaitsUrl { change { $0.awaitsUrl = newValue } } }
    }
    /// The bytes come from several responses. Only a checksum can prove that they belong together.
    public var isSpliced: Bool {
        get { course?.value.isSpliced ?? false }
        set { if newValue != isSpliced { change { $0.isSpliced = newValue } } }
    }
    /// The download has restarted from 0 once, because a spliced file did not match its checksum.
    public var hasStartedOver: Bool {
        get { course?.value.hasStartedOver ?? false }
        set { if newValue != hasStartedOver { change { $0.hasStartedOver = newValue } } }
    }
    /// The part file is whole. Trusted only while `resume` names the same file of the same boot.
    public var isWhole: Bool {
        get { course?.value.isWhole ?? false }
        set { if newValue != isWhole { change { $0.isWhole = newValue } } }
    }
    /// By what the bytes are proved, once the part file is verified. Before that, only whether their number is known (`length`). nil: by
    /// nothing, or the file was not downloaded.
    public var proof: FileProof? {
        get { course?.value.proof }
        set { if newValue != proof { change { $0.proof = newValue } } }
    }
    /// The failure of the last attempt, which is why the download waits.
    public var lastFailure: DownloadFailure? {
        get { course?.value.lastFailure }
        set { if newValue != lastFailure { change { $0.lastFailure = newValue } } }
    }
    /// The download ended with the cached copy, because the server has nothing newer. Also true for a Fetch that ended with an existing
    /// file (`skip`).
    public var isUnchanged: Bool {
        get { course?.value.isUnchanged ?? false }
        set { if newValue != isUnchanged { change { $0.isUnchanged = newValue } } }
    }
    /// The download writes into its caller's descriptor. It has no folder, no part file and no path, and it ends with the process that
    /// holds the descriptor.
    public var isToDescriptor: Bool {
        get { course?.value.isToDescriptor ?? false }
        set { if newValue != isToDescriptor { change { $0.isToDescriptor = newValue } } }
    }
    /// The calls to the owner (`options.activate`) since the download ended.
    public var reminders: OwnerReminders {
        get { course?.value.reminders ?? OwnerReminders() }
        set { if newValue != reminders { change { $0.reminders = newValue } } }
    }
    /// What is known of the sources. Empty: nothing yet, or the download has no mirrors.
    public var sources: [SourceRecord] {
        get { course?.value.sources ?? [] }
        set { if newValue != sources { change { $0.sources = newValue } } }
    }
    /// The completion toast is not yet known to be shown or not needed.
    public var owesToast: Bool {
        get { course?.value.owesToast ?? false }
        set { if newValue != owesToast { change { $0.owesToast = newValue } } }
    }

    public init(
        number: DownloadNumber, url: String, options: DownloadOptions, directory: String, state: DownloadState, queuedAt: WallTime,
        position: Int64
    ) {
        (self.number, self.url, sharedOptions, self.directory) = (number, url, Shared(options), directory)
        (self.state, self.queuedAt, self.position) = (state, queuedAt, position)
    }

    /// A record that shares the options of `other`, by the same pointer.
    public init(
        number: DownloadNumber, url: String, like other: DownloadRecord, directory: String, state: DownloadState, queuedAt: WallTime,
        position: Int64
    ) {
        (self.number, self.url, sharedOptions, self.directory) = (number, url, other.sharedOptions, directory)
        (self.state, self.queuedAt, self.position) = (state, queuedAt, position)
    }

    public static func == (a: DownloadRecord, b: DownloadRecord) -> Bool {
        func course(_ record: DownloadRecord) -> Course { record.course?.value ?? Course() }
        return (a.number, a.url, a.queuedAt, a.position) == (b.number, b.url, b.queuedAt, b.position)
            && a.directory.isSameBytes(as: b.directory)
            && (a.state, a.received, a.total, a.batch, a.isFetch) == (b.state, b.received, b.total, b.batch, b.isFetch)
            && a.sharedOptions == b.sharedOptions && (a.sharesOptions(with: b) || a.options.isSameText(as: b.options))
            && course(a) == course(b)
    }

    /// Whether the download has neither started nor ended, so that it has no `Course`.
    public var isUntouched: Bool { course == nil }

    /// Whether both records share their options by the same pointer.
    public func sharesOptions(with other: DownloadRecord) -> Bool { sharedOptions.isIdentical(to: other.sharedOptions) }

    /// Shares the options and the directory with `other` where they are equal.
    package mutating func join(_ other: DownloadRecord) {
        if options.isSameText(as: other.options) { sharedOptions.join(other.sharedOptions) }
        // Compare by bytes: two folders may have names that Unicode calls equivalent.
        if directory.isSameBytes(as: other.directory) { directory = other.directory }
    }

    /// Whether this record already shares its options and directory with `other`.
    package func isJoined(_ other: DownloadRecord) -> Bool {
        sharedOptions.isIdentical(to: other.sharedOptions) && directory.isSameBytes(as: other.directory)
    }

    /// The values that only a started or ended download has.
    private struct Course: Equatable, Sendable {
        var startedAt: WallTime?
        var endedAt: WallTime?
        var attempts: UInt32 = 0
        var retriesUsed: UInt32 = 0
        var fileName: ByteText?
        var mediaType: String?
        var source: String?
        var path: ByteText?
        var resume: ResumeData?
        var retryAt: WallTime?
        var expiresAt: WallTime?
        var timeLeft: Duration?
        var awaitsUrl: Bool = false
        var isSpliced: Bool = false
        var hasStartedOver: Bool = false
        var isWhole: Bool = false
        var proof: FileProof?
        var lastFailure: DownloadFailure?
        var isUnchanged: Bool = false
        var isToDescriptor: Bool = false
        var reminders = OwnerReminders()
        var owesToast: Bool = false
        var sources: [SourceRecord] = []
    }

    /// The name of the final file, as chosen from the response. A row without that name falls back to a name that needs no response.
    ///
    /// Always a name in the folder: a stored row may contain anything.
    public var finalName: String {
        for name in [fileName, options.fileName].compactMap(\.self) {
            if FileName.isBare(name) { return name }
            if let name = FileName.safe(name) { return name }
        }
        guard let url = try? DownloadURL(url) else { return "download" }
        return FileName.chosen(contentDisposition: nil, url: url) { _, _ in nil }
    }
}

extension DownloadRecord {
    /// The name of the folder into which the archive is unpacked; nil: the file is not unpacked.
    public var folderName: String? { isToDescriptor ? nil : options.extract?.name(for: finalName) }
    /// Whether the outcome is an unpacked folder.
    public var isUnpacked: Bool { state == .finished && options.extract != nil && !isToDescriptor }
    /// The digest that the server stated, if the whole file must be compared with it. Right pieces prove more than the server's statement.
    public var statedDigest: Checksum? { options.usablePieceHashes == nil ? resume?.digest : nil }
    /// By what the part file is proved if its verification succeeds. The checksum decides, even if the server states another digest.
    public var proofOfVerification: FileProof? {
        if options.checksum != nil { return .checksum }
        if options.usablePieceHashes != nil { return .pieces }
        return resume?.digest != nil ? .reprDigest : options.size != nil ? .length : proof
    }
}

/// The data from which a later transfer resumes.
public struct ResumeData: Equatable, Sendable {
    /// The bytes of the part file that are known to be on disk (a checkpoint).
    public var ranges: ByteRanges
    /// Complete size of the representation; nil while unknown.
    public var total: ByteCount?
    /// A strong validator of the representation. nil: a resume must start from 0, or be proved by a checksum or `digest`.
    public var validator: Validator?
    /// The digest that the server stated of the representation; nil: it stated none.
    public var digest: Checksum?
    /// The mirror that the representation belongs to, by its place in `DownloadOptions.mirrors`; nil: the URL of the download. Validator
    /// and digest are of this source.
    public var mirror: UInt32?
    /// The part file's identity, and the boot in which it was written. The written map is trusted only if all these values still match.
    public var identity: FileIdentity

    /// The number of bytes in `ranges`.
    public var written: ByteCount { ranges.byteCount }

    public init(
        ranges: ByteRanges, total: ByteCount?, validator: Validator?, identity: FileIdentity, digest: Checksum? = nil, mirror: UInt32? = nil
    ) {
        (self.ranges, self.total, self.validator, self.identity, self.digest) = (ranges, total, validator, identity, digest)
        self.mirror = mirror
    }

    /// The first `written` bytes are on disk.
    public init(
        written: ByteCount, total: ByteCount?, validator: Validator?, identity: FileIdentity, digest: Checksum? = nil, mirror: UInt32? = nil
    ) {
        self.init(
            ranges: ByteRanges(prefix: written), total: total, validator: validator, identity: identity, digest: digest, mirror: mirror)
    }
}

/// Identifies a file: device and inode (stat(2)), mount id and birth (statx(2)), and the boot id (`/proc/sys/kernel/random/boot_id`).
public struct FileIdentity: Equatable, Sendable {
    public var device: UInt64
    /// Some file systems (ext4) reuse the number of a deleted file at once.
    public var inode: UInt64
    public var mount: UInt64
    public var boot: String
    /// The file's creation time, in nanoseconds since the Unix epoch (`stx_btime`). nil if the file system does not record it.
    public var born: Int64?

    public init(device: UInt64, inode: UInt64, mount: UInt64, boot: String, born: Int64? = nil) {
        (self.device, self.inode, self.mount, self.boot, self.born) = (device, inode, mount, boot, born)
    }

    /// Whether both identify one file, as far as the file system can tell. Mount and device may differ, because the file system may have
    /// been mounted again.
    public func isSameFile(as other: FileIdentity) -> Bool {
        inode == other.inode && (born == nil || other.born == nil || born == other.born)
    }

    /// Whether both identify one file, on one boot of the machine and one mount.
    public func isSameFileAndMount(as other: FileIdentity) -> Bool {
        isSameFile(as: other) && (boot, mount, device) == (other.boot, other.mount, other.device)
    }
}

/// A strong validator (RFC 9110 §8.8): what makes a resume safe.
public enum Validator: Hashable, Sendable {
    /// An entity tag with its quotes, never weak.
    case entityTag(String)
    /// A `Last-Modified` that §8.8.2.2 calls strong, as the server sent it.
    case lastModified(String)

    /// The field value for `If-Range`.
    public var ifRange: String {
        switch self {
        case .entityTag(let value), .lastModified(let value): value
        }
    }
}

/// A representation that a source has stated instead of that of the held bytes.
public struct OtherRepresentation: Hashable, Sendable {
    public var validator: Validator
    /// The source, as in `ResumeData.mirror`.
    public var mirror: UInt32?

    public init(_ validator: Validator, mirror: UInt32?) { (self.validator, self.mirror) = (validator, mirror) }
}
