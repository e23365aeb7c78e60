/// Named limits of what a caller can make us hold; beyond them a call is refused with `LimitExceeded`.
public enum Limits {
    public static let downloadsNotEnded = 100_000
    /// Of these, an app in a sandbox may have.
    public static let downloadsNotEndedOfSandboxedApp = 50_000
    /// What all downloads of an app in a sandbox, ended ones too, may hold of URLs, headers, metadata and other texts, the first KiB of
    /// each aside.
    public static let heldBytesOfSandboxedApp = 32 << 20
    /// Most downloads that one call queues as a batch.
    public static let batchItems = 10_000
    public static let urlBytes = 8 * 1024
    public static let headerBytes = 64 * 1024
    public static let metadataBytes = 64 * 1024
    /// Milliseconds; a hundred years. A longer deadline is as good as this one.
    public static let longestDeadline: UInt64 = 100 * 366 * 24 * 3600 * 1000
    /// A toast that waits for its time keeps the service.
    public static let longestNotifyDelay: Duration = .seconds(3600)
    public static let waitingCallsPerConnection = 256
    public static let hostRules = 1000
    /// Files of which we know what the server said of them, for conditional requests; the oldest are forgotten.
    public static let copiesHeld = 10_000
    /// Descriptors of callers that we write into: of one connection (of one app, where it is in a sandbox), and of all together.
    public static let descriptorsPerCaller = 64
    public static let descriptors = 256
    /// Descriptors of files that lie in memory without a limit of their own (memfd_create(2)): of one caller, and of all together.
    public static let memoryDescriptorsPerCaller = 4
    public static let memoryDescriptors = 8
    /// Most bytes of such a file.
    public static let memoryFileBytes: ByteCount = 256 << 20
    /// Downloads that the calls of `WaitAll` of one connection have singled out by their state, all together.
    public static let waitedByStatePerConnection = 100_000
    /// Applications that one connection says are in front.
    public static let foregroundAppsPerConnection = 64
    /// Owners that are called at a time (option `activate`), each for one of its downloads.
    public static let ownerCalls = 8
    /// How often an app in a sandbox is started in an hour because a download of its has ended.
    public static let ownerStarts = 6
    /// Clicks (`org.freedesktop.Application`) and moves to the trash that are under way, each waiting for a program of the desktop.
    public static let desktopWork = 64
    /// Files that one call of `Open` opens.
    public static let openedFiles = 16
    /// Icons in a dock that carry count and progress at a time.
    public static let dockIcons = 16
    /// Jobs that a desktop shows at a time.
    public static let desktopJobs = 8
    /// Ended downloads are kept for 30 days, at most this many; the application that has most of them makes room.
    public static let endedDownloads = 10_000
    public static let endedAge: Duration = .seconds(30 * 24 * 3600)
    /// Most of one `List` or `Describe` answer, and its default.
    public static let listed = 1000
    /// After a failure or a cancellation, password and request headers are kept this long for a retry.
    public static let secretsAge: Duration = .seconds(24 * 3600)
    /// An owner that has not acknowledged an end is called by each start of the service until the end is this old.
    public static let remindedAge: Duration = .seconds(7 * 24 * 3600)
    /// An end that is older when the service starts is not shown any more.
    public static let toastAge: Duration = .seconds(12 * 3600)
}
