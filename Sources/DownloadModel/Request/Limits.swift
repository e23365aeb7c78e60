/// Limits of what callers can make the service store. A call beyond a limit is refused with `LimitExceeded`.
public enum Limits {
    public static let downloadsNotEnded = 100_000
    /// The part of `downloadsNotEnded` that an app in a sandbox may have.
    public static let downloadsNotEndedOfSandboxedApp = 50_000
    /// Most bytes of URLs, headers, metadata and other texts that all downloads and batches of an app in a sandbox may hold, ended ones
    /// included. The first KiB of each download and batch is not counted.
    public static let heldBytesOfSandboxedApp = 32 << 20
    /// Most downloads that one call queues as a batch.
    public static let batchItems = 10_000
    /// Most Metalink documents that are read at a time: of one connection (in a sandbox, of one app), and in total.
    public static let documentsPerCaller = 4
    public static let documents = 8
    /// Most bytes of such a document.
    public static let documentBytes = 16 << 20
    public static let urlBytes = 8 * 1024
    public static let headerBytes = 64 * 1024
    /// Most bytes of a request's body.
    public static let postBytes = 1 << 20
    /// Most cookies of one download, and most bytes of their lines.
    public static let cookies = 1000
    public static let cookieBytes = 64 * 1024
    /// Most bytes of cookies that the servers of one transfer set, with the memory for each. When they set more, the transfer begins anew
    /// with the cookies that it was given.
    public static let setCookieBytes = 256 * 1024
    /// Most bytes of cookies that a retry keeps from the transfer before, and the most downloads for which the service keeps them.
    public static let keptCookieBytes = 16 * 1024
    public static let keptCookies = 1000
    /// Most mirrors of one download.
    public static let mirrors = 32
    /// Most bytes of the URLs that servers name as mirrors of one download.
    public static let foundMirrorBytes = 4096
    public static let metadataBytes = 64 * 1024
    /// Most bytes of the piece hashes of one download: 32,768 pieces by SHA-256.
    public static let pieceHashBytes = 1 << 20
    /// In milliseconds: a hundred years. A longer deadline is cut to this.
    public static let longestDeadline: UInt64 = 100 * 366 * 24 * 3600 * 1000
    /// Bounded, because a toast that waits for its time keeps the service running.
    public static let longestNotifyDelay: Duration = .seconds(3600)
    public static let waitingCallsPerConnection = 256
    /// Most long answers, such as those of `List`, that wait to be written: of one connection (in a sandbox, of one app), and in total. One
    /// connection may have as many calls of `WaitAll`, and the downloads of each are gathered like a long answer.
    public static let longAnswersPerCaller = waitingCallsPerConnection
    public static let longAnswers = 1000
    /// Most calls that change many downloads, such as `CancelAll` or `Pause` of a batch, and wait until all are changed: of one connection
    /// (in a sandbox, of one app), and in total.
    public static let bulkChangesPerCaller = 64
    public static let bulkChanges = 256
    public static let hostRules = 1000
    /// Most cached copies that we keep validators of, for conditional requests; the oldest are forgotten.
    public static let copiesHeld = 10_000
    /// Most callers' descriptors that we write into: for one connection (in a sandbox, for one app), and in total.
    public static let descriptorsPerCaller = 64
    public static let descriptors = 256
    /// Most descriptors of memory files without a size limit of their own (memfd_create(2)): for one caller, and in total.
    public static let memoryDescriptorsPerCaller = 4
    public static let memoryDescriptors = 8
    /// Most bytes of such a memory file.
    public static let memoryFileBytes: ByteCount = 256 << 20
    /// Most downloads that the `WaitAll` calls of one connection select by their state, in total.
    public static let waitedByStatePerConnection = 100_000
    /// Most applications that one connection may report as being in front.
    public static let foregroundAppsPerConnection = 64
    /// Most owners that are called at a time (option `activate`), each for one of its downloads. An app in a sandbox is one owner,
    /// whichever of its names is called.
    public static let ownerCalls = 8
    /// How often in an hour an app in a sandbox is started because one of its downloads has ended.
    public static let ownerStarts = 6
    /// Most clicks (`org.freedesktop.Application`) and moves to the trash in flight, each waiting for a program of the desktop.
    public static let desktopWork = 64
    /// Most files that one call of `Open` opens.
    public static let openedFiles = 16
    /// Most dock icons that show count and progress at a time, beside our own: in total, and of an app in a sandbox.
    public static let dockIcons = 16
    public static let dockIconsOfSandboxedApp = 4
    /// Most jobs that a desktop shows at a time.
    public static let desktopJobs = 8
    /// Ended downloads are kept for 30 days, at most this many. Beyond that, the application with the most loses its own first.
    public static let endedDownloads = 10_000
    public static let endedAge: Duration = .seconds(30 * 24 * 3600)
    /// Most downloads in one `List` or `Describe` answer, and its default.
    public static let listed = 1000
    /// Most bytes of a `Describe` answer. A full answer with all properties may have more, because each download has up to 33 URLs.
    public static let answerBytes = 48 << 20
    /// After a failure or a cancellation, password, request headers, cookies and body are kept this long for a retry.
    public static let secretsAge: Duration = .seconds(24 * 3600)
    /// A private download leaves the list so long after its end. Until then, callers who were told of it late learn its outcome.
    public static let privateAge: Duration = .seconds(10)
    /// An owner that has not acknowledged an outcome is called at each start of the service, until the outcome is this old.
    public static let remindedAge: Duration = .seconds(7 * 24 * 3600)
    /// An outcome that is older than this when the service starts gets no toast.
    public static let toastAge: Duration = .seconds(12 * 3600)
}
