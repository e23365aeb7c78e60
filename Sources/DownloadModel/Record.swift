/// What a download holds over restarts; it decides nothing.
public struct DownloadRecord: Equatable, Sendable {
    public let number: DownloadNumber
    /// Without user, password and fragment; with its query. Absolute, http or https.
    public var url: String
    public var options: DownloadOptions
    /// Absolute, existing when added; where the part file grows and the file will be.
    public var directory: String
    public var state: DownloadState
    public var queuedAt: WallTime
    public var startedAt: WallTime?
    public var endedAt: WallTime?
    /// Attempts begun since it was added.
    public var attempts: UInt32 = 0
    /// Attempts without progress since the last byte; compared with `options.retries`.
    public var retriesUsed: UInt32 = 0
    /// Bytes in the part file, as last saved.
    public var received: ByteCount = 0
    /// Complete size; nil while unknown.
    public var total: ByteCount?
    /// Safe bare name, once known.
    public var fileName: String?
    public var mediaType: String?
    /// The final path, once finished.
    public var path: String?
    public var resume: ResumeData?
    /// Not tried again before this instant: the back-off, or what the server asked for. It outlasts a pause.
    public var retryAt: WallTime?
    /// When `options.deadline` strikes, while its time runs.
    public var expiresAt: WallTime?
    /// What was left of `options.deadline` when its time was stopped by a pause.
    public var timeLeft: Duration?
    /// The server takes the link no more, and no fresh one has come.
    public var awaitsUrl = false
    /// The bytes come from more than one response: only a checksum can prove that they belong together.
    public var isSpliced = false
    /// It has started once from 0 because a spliced file did not match its checksum.
    public var hasStartedOver = false
    /// The part file is whole; trusted only while `resume` names the same file of the same boot.
    public var isWhole = false
    /// Why it waits: the failure of the last attempt.
    public var lastFailure: DownloadFailure?
    /// The batch that it belongs to.
    public var batch: DownloadNumber?
    /// A call of `Fetch` added it.
    public var isFetch = false
    /// It ended with the copy that was held: the server has nothing newer.
    public var isUnchanged = false
    /// It writes into its caller's descriptor: it has no folder, no part file and no path, and ends with the process that holds the descriptor.
    public var isToDescriptor = false
    /// The owner has taken what ended: `options.activate` is called no more.
    public var isAcknowledged = false
    /// How often the owner was called since it ended, starts of ours after the first call aside.
    public var activations: UInt32 = 0
    /// When the owner is called next.
    public var activateAt: WallTime?
    /// Order among those of one priority; lower first.
    public var position: Int64

    public init(
        number: DownloadNumber, url: String, options: DownloadOptions, directory: String, state: DownloadState, queuedAt: WallTime,
        position: Int64
    ) {
        (self.number, self.url, self.options, self.directory) = (number, url, options, directory)
        (self.state, self.queuedAt, self.position) = (state, queuedAt, position)
    }

    /// The name of the part file in `directory`.
    public var partName: String { Self.partName(of: number) }
    public static func partName(of number: DownloadNumber) -> String { ".todoku-\(number).part" }
}

/// What is saved so that a transfer can go on from its bytes.
public struct ResumeData: Equatable, Sendable {
    /// The prefix of the part file that is known to be on disk, in bytes (a checkpoint).
    public var written: ByteCount
    /// Complete size of the representation; nil while unknown.
    public var total: ByteCount?
    /// A strong validator of the representation; nil: a resume must start from 0, or be proved by a checksum.
    public var validator: Validator?
    /// The part file's identity and the boot in which it was written; the written map is trusted only if all still match.
    public var identity: FileIdentity

    public init(written: ByteCount, total: ByteCount?, validator: Validator?, identity: FileIdentity) {
        (self.written, self.total, self.validator, self.identity) = (written, total, validator, identity)
    }
}

/// Which file this is: device and inode (stat(2)), mount id (statx(2)) and the boot's id (`/proc/sys/kernel/random/boot_id`).
public struct FileIdentity: Equatable, Sendable {
    public var device: UInt64
    public var inode: UInt64
    public var mount: UInt64
    public var boot: String
    public init(device: UInt64, inode: UInt64, mount: UInt64, boot: String) {
        (self.device, self.inode, self.mount, self.boot) = (device, inode, mount, boot)
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
