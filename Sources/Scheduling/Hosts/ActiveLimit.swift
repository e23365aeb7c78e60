public import DownloadModel

/// How large the file of a download is, as far as its size decides how many downloads may be active.
public enum FileSize: Int, CaseIterable, Sendable {
    case small, unknown, large

    /// From this size on, a file is large. A file of unknown size is large once this many bytes of it have arrived.
    public static let leastLarge: ByteCount = 1 << 20

    public init(_ size: ByteCount) { self = size < Self.leastLarge ? .small : .large }
}

extension DownloadRecord {
    /// The size of the file, by a response; else by the option `size`; else by the bytes that have arrived.
    var fileSize: FileSize { (total ?? options.size).map(FileSize.init) ?? (received < FileSize.leastLarge ? .unknown : .large) }
}

/// The automatic `MaxActive`: few large files at a time, and many small ones beside them.
///
/// A file of unknown size takes one of the slots for large files, because it may be large. The allowance lets further files of unknown size
/// run. It grows with each small file that finishes, and halves with each file that turns out large.
struct ActiveLimit {
    /// Most large files that are active.
    static let mostLarge = 4
    /// Most small files that are active beside the large ones.
    static let mostSmall = 60
    static let most = mostLarge + mostSmall

    /// How many files of unknown size may be active without a slot for large files.
    private(set) var allowance = 0

    /// The number of active transfers, by the size of their files.
    struct Counts: Equatable {
        var small = 0
        var unknown = 0
        var large = 0

        var all: Int { small + unknown + large }

        subscript(size: FileSize) -> Int {
            get {
                switch size {
                case .small: small
                case .unknown: unknown
                case .large: large
                }
            }
            set {
                switch size {
                case .small: small = newValue
                case .unknown: unknown = newValue
                case .large: large = newValue
                }
            }
        }
    }

    /// Whether a file of this size may become active beside the files of `counts`.
    func admits(_ size: FileSize, beside counts: Counts) -> Bool {
        counts.all < Self.most && placesTaken(with: size, beside: counts) <= Self.mostLarge
    }

    /// How many slots for large files are taken if a file of this size becomes active, too. 0 for a small file, which needs no such slot.
    func placesTaken(with size: FileSize, beside counts: Counts) -> Int {
        switch size {
        case .small: 0
        case .unknown: counts.large + max(0, counts.unknown + 1 - allowance)
        case .large: counts.large + max(0, counts.unknown - allowance) + 1
        }
    }

    mutating func smallFileFinished() { allowance = min(allowance + 1, Self.mostSmall) }

    mutating func fileTurnedLarge() { allowance /= 2 }
}
