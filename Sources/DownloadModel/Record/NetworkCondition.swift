/// What we know about the network connection.
public struct NetworkCondition: Equatable, Sendable {
    public enum Reach: Sendable {
        case online
        /// There is a network, but it may not reach the internet. Requests are still tried.
        case limited
        /// There is no network.
        case offline
        /// A captive portal answers for every server: a file fetched now would be its login page.
        case captive
    }

    public var reach: Reach
    /// The connection is metered: it costs by the byte.
    public var isMetered: Bool
    public init(reach: Reach = .online, isMetered: Bool = false) { (self.reach, self.isMetered) = (reach, isMetered) }

    /// Online and not metered.
    public static let open = NetworkCondition()
}
