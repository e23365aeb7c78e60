/// A batch has a number of the downloads' own sequence: no two objects ever have the same.
public typealias BatchNumber = DownloadNumber

/// What a batch holds over restarts; it decides nothing.
public struct BatchRecord: Equatable, Sendable {
    public let number: BatchNumber
    /// How many downloads were queued with it. They have the numbers that follow its own.
    public let count: UInt32
    /// The application to which all of them belong; empty: none, or several.
    public var app = ""
    /// The folder that its toast leads to.
    public var directory = ""
    /// Of the toast at its end; as in `DownloadOptions`.
    public var notify = NotifyPolicy.background
    public var title: String?
    public var body: String?
    public var icon: String?
    public var sound = DownloadOptions().sound
    /// What those ended in that are off the list, and the bytes of those among them that finished.
    public var removed = OutcomeCounts()
    public var removedBytes: ByteCount = 0
    /// When it ended, as long as it is not known that this was shown, or need not be.
    public var toastOwedSince: WallTime?

    public init(number: BatchNumber, count: UInt32) { (self.number, self.count) = (number, count) }

    /// The batch's toast is of the options that the batch was given, not of those of an item.
    public init(number: BatchNumber, count: UInt32, app: String, directory: String, options: DownloadOptions) {
        self.init(number: number, count: count)
        (self.app, self.directory) = (app, directory)
        (notify, title, body) = (options.notify, options.title, options.body)
        (icon, sound) = (options.icon, options.sound)
    }

    /// The numbers that its members were given.
    public var numbers: some RandomAccessCollection<DownloadNumber> {
        let count = UInt64(min(count, UInt32(Limits.batchItems)))  // a row may say anything
        return (0..<count).lazy.map { [number] in DownloadNumber(number.value &+ 1 &+ $0) }
    }

    package func hasNumber(_ member: DownloadNumber) -> Bool {
        member > number && member.value - number.value <= UInt64(min(count, UInt32(Limits.batchItems)))
    }
}

/// How many downloads ended in what.
public struct OutcomeCounts: Equatable, Sendable {
    public var finished: UInt32 = 0
    public var failed: UInt32 = 0
    public var cancelled: UInt32 = 0
    public init(finished: UInt32 = 0, failed: UInt32 = 0, cancelled: UInt32 = 0) {
        (self.finished, self.failed, self.cancelled) = (finished, failed, cancelled)
    }

    public var allFinished: Bool { failed == 0 && cancelled == 0 }

    /// What has not ended is not counted.
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
