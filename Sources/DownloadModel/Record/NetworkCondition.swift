/// The known condition of the network connection.
public struct NetworkCondition: Equatable, Sendable {
    public enum Reach: Sendable {
        case online
        /// The machine has a network, but the network may not reach the internet. Requests are still tried.
        case limited
        /// There is no network.
        case offline
        /// A captive portal answers for every server: a file fetched now would be its login page.
        case captive
    }

    public var reach: Reach
    /// The connection is metered: the user may pay for each byte.
    public var isMetered: Bool
    public init(reach: Reach = .online, isMetered: Bool = false) { (self.reach, self.isMetered) = (reach, isMetered) }

    /// Online and not metered.
    public static let open = NetworkCondition()
}
