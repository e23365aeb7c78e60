/// A batch takes its number from the downloads' sequence, so no batch and download share a number.
public typealias BatchNumber = DownloadNumber

/// The data of a batch that outlast a restart. It makes no decisions.
public struct BatchRecord: Equatable, Sendable {
    public let number: BatchNumber
    /// How many downloads were queued with the batch. Their numbers follow the batch's own.
    public let count: UInt32
    /// The application that owns all members; empty: none, or several.
    public var app = ""
    /// The folder that the batch's toast opens.
    public var directory = ""
    /// Options of the completion toast, as in `DownloadOptions`.
    public var notify = NotifyPolicy.background
    public var title: String?
    public var body: String?
    public var icon: String?
    public var sound = DownloadOptions().sound
    /// The outcomes of members that are no longer in the list, and the bytes of those that finished.
    public var removed = OutcomeCounts()
    public var removedBytes: ByteCount = 0
    /// When the batch ended, until its toast is known to be shown or not needed.
    public var toastOwedSince: WallTime?

    public init(number: BatchNumber, count: UInt32) { (self.number, self.count) = (number, count) }

    /// `options` are the batch's own, not those of a member: they describe the batch's toast.
    public init(number: BatchNumber, count: UInt32, app: String, directory: String, options: DownloadOptions) {
        self.init(number: number, count: count)
        (self.app, self.directory) = (app, directory)
        (notify, title, body) = (options.notify, options.title, options.body)
        (icon, sound) = (options.icon, options.sound)
    }

    /// Bytes of texts that the service stores for the batch itself, without its members. As for a download, the first KiB does not count.
    public var heldBytes: Int {
        let texts = [title, body, icon, sound].reduce(0) { $0 +| ($1?.utf8.count ?? 0) }
        return max(0, texts -| 1024)
    }

    /// The numbers of the batch's members.
    public var numbers: some RandomAccessCollection<DownloadNumber> {
        let count = UInt64(min(count, UInt32(Limits.batchItems)))  // bounded, because a database row may hold any number
        return (0..<count).lazy.map { [number] in DownloadNumber(number.value &+ 1 &+ $0) }
    }

    package func hasNumber(_ member: DownloadNumber) -> Bool {
        member > number && member.value - number.value <= UInt64(min(count, UInt32(Limits.batchItems)))
    }
}

/// How many downloads ended with each outcome.
public struct OutcomeCounts: Equatable, Sendable {
    public var finished: UInt32 = 0
    public var failed: UInt32 = 0
    public var cancelled: UInt32 = 0
    public init(finished: UInt32 = 0, failed: UInt32 = 0, cancelled: UInt32 = 0) {
        (self.finished, self.failed, self.cancelled) = (finished, failed, cancelled)
    }

    public var allFinished: Bool { failed == 0 && cancelled == 0 }

    /// Ignores a state that is no outcome.
    package mutating func insert(_ state: DownloadState) { change(state) { $0 &+= 1 } }
    package mutating func remove(_ state: DownloadState) { change(state) { $0 &-= 1 } }

    private mutating func change(_ state: DownloadState, _ body: (inout UInt32) -> Void) {
        switch state {
        case .finished: body(&finished)
        case .failed: body(&failed)
        case .cancelled: body(&cancelled)
        default: break
        }
    }

    package static func + (a: OutcomeCounts, b: OutcomeCounts) -> OutcomeCounts {
        OutcomeCounts(finished: a.finished +| b.finished, failed: a.failed +| b.failed, cancelled: a.cancelled +| b.cancelled)
    }
}
