public import DBus
public import DownloadModel

/// The filter of `List` and `Describe`. All keys must match; an empty one matches every download.
public struct DownloadFilter: Equatable, Sendable {
    public var app: String?
    public var tag: String?
    /// Names of states; nil: any.
    public var states: Set<String>?
    /// Only the members of this batch.
    public var batch: ObjectPath?
    /// Only what comes after this download in queue order.
    public var after: ObjectPath?
    /// The order turned round: what ended last comes first.
    public var isNewestFirst = false
    /// Most answers, 1 to `Limits.listed`.
    public var limit = Limits.listed

    public static let stateNames = ["queued", "waiting", "active", "paused", "verifying", "finished", "failed", "cancelled"]

    public init() {}

    /// - Throws: `InvalidOption` naming the key that is unknown or has the wrong type.
    public init(decoding dictionary: [String: Variant]) throws(Refusal) {
        for (key, value) in dictionary.sorted(by: { $0.key < $1.key }) {
            func wrongType(_ signature: String) -> Refusal {
                Refusal(.invalidOption, "Filter key \(key) takes the type \(signature), not \(value.type.prefix(64)).")
            }
            func known(_ names: [String]) throws(Refusal) -> Set<String> {
                for name in names where !Self.stateNames.contains(name) {
                    throw Refusal(
                        .invalidOption,
                        "Filter key \(key): “\(shown(name))” is no state; they are \(Self.stateNames.joined(separator: ", ")).")
                }
                return Set(names)
            }
            switch key {
            case "app":
                guard let text = value.string else { throw wrongType("s") }
                app = text
            case "tag":
                guard let text = value.string else { throw wrongType("s") }
                tag = text
            case "state":
                guard let text = value.string else { throw wrongType("s") }
                states = try known([text]).union(states ?? [])
            case "states":
                guard let texts = value.strings else { throw wrongType("as") }
                states = try known(texts).union(states ?? [])
            case "batch":
                guard let path = value.objectPath else { throw wrongType("o") }
                batch = path
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
                    .invalidOption,
                    "There is no filter key “\(shown(key))”; they are app, tag, state, states, batch, after, newest-first, limit.")
            }
        }
    }

    /// The dictionary for a call.
    public var dictionary: [String: Variant] {
        var dictionary: [String: Variant] = ["limit": .uint32(UInt32(clamping: limit))]
        if let app { dictionary["app"] = .string(app) }
        if let tag { dictionary["tag"] = .string(tag) }
        if let states { dictionary["states"] = .strings(states.sorted()) }
        if let batch { dictionary["batch"] = .objectPath(batch) }
        if let after { dictionary["after"] = .objectPath(after) }
        if isNewestFirst { dictionary["newest-first"] = .bool(true) }
        return dictionary
    }
}
