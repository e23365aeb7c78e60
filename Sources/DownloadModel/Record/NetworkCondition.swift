/// What is known of the way to the network.
public struct NetworkCondition: Equatable, Sendable {
    public enum Reach: Sendable {
        case online
        /// There is a network, which may lead nowhere beyond: it is tried.
        case limited
        /// Nothing leads anywhere.
        case offline
        /// A captive portal answers in every server's place: a file fetched now would be its login page.
        case captive
    }

    public var reach: Reach
    /// The link costs by the byte.
    public var isMetered: Bool
    public init(reach: Reach = .online, isMetered: Bool = false) { (self.reach, self.isMetered) = (reach, isMetered) }

    /// Nothing stands in anybody's way.
    public static let open = NetworkCondition()
}
