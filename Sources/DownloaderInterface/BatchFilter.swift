public import DBus
public import DownloadModel

/// The filter of `ListBatches`. All keys must match; an empty one matches every batch.
public struct BatchFilter: Equatable, Sendable {
    public var app: String?
    /// Only those that have ended; false: only those that have not.
    public var hasEnded: Bool?
    /// Only what was added after this batch; with `isNewestFirst` before it.
    public var after: ObjectPath?
    public var isNewestFirst = false
    /// Most answers, 1 to `Limits.listed`.
    public var limit = Limits.listed

    public init() {}

    /// - Throws: `InvalidOption` naming the key that is unknown or has the wrong type.
    public init(decoding dictionary: [String: Variant]) throws(Refusal) {
        for (key, value) in dictionary.sorted(by: { $0.key < $1.key }) {
            func wrongType(_ signature: String) -> Refusal {
                Refusal(.invalidOption, "Filter key \(key) takes the type \(signature), not \(value.type.prefix(64)).")
            }
            switch key {
            case "app":
                guard let text = value.string else { throw wrongType("s") }
                app = text
            case "ended":
                guard let flag = value.bool else { throw wrongType("b") }
                hasEnded = flag
            case "after":
                guard let path = value.objectPath else { throw wrongType("o") }
                after = path
            case "newest-first":
                guard let flag = value.bool else { throw wrongType("b") }
                isNewestFirst = flag
            case "limit":
                guard let number = value.uint32 else { throw wrongType("u") }
                guard number > 0, number <= Limits.listed else {
                    throw Refusal(.invalidOption, "Filter key limit is 1 to \(Limits.listed).")
                }
                limit = Int(number)
            default:
                throw Refusal(
                    .invalidOption, "There is no filter key “\(shown(key))”; they are app, ended, after, newest-first, limit.")
            }
        }
    }
}
