internal import DownloadModel

/// A request of a transfer, until the transfer ends.
struct PlacedRequest {
    enum Phase: Equatable {
        /// Waits for its host, and takes no slot.
        case waiting
        case underWay
        /// The server has sent nothing since.
        case silent(since: WallTime)
        /// The transfer has been stopped or has ended, so no host counts the request. The server's answer still counts.
        case left
    }

    let host: String
    /// `DownloadURL.origin` of the request's URL.
    let origin: String
    let app: String
    /// The download's own request interval, as the host distinguishes it from others; zero: none.
    let requestInterval: Duration
    /// A caller wants the download at once: no pause or pace of the origin delays the request.
    var isUrgent = false
    /// The request is of a private download: no row, and no list of hosts, may tell its host.
    var isPrivate = false
    /// When the request was started or permitted; while it waits, when it began to wait.
    var startedAt: WallTime
    var phase: Phase
    /// The number of the engine's question for this request; 0: the request is the first of its transfer, which asks no question.
    var question: UInt64 = 0
    /// The request fetches another part of the file while an earlier request of its transfer fetches one, too. It goes after every other
    /// request and download of its host. A transfer has one request that is not a further one.
    var isFurther = false
    /// The request keeps an interval: the engine must report when the request has gone out.
    var isPaced = false
    /// The request was started without a place at its host, so it must share an HTTP/2 connection, or ask again.
    var isPresumedToShare = false
    /// The request gets a connection of its own.
    var ownsConnection = false
    /// The HTTP/2 connection that the request shares with others, as the engine names it.
    var connection: UInt32?

    /// The connection with its origin, while a host counts the request.
    var shared: SharedConnection? {
        guard let connection, !isWaiting, !hasLeft, !isFurther else { return nil }
        return SharedConnection(origin: origin, connection: connection)
    }

    /// Whether the request can share a connection, if there is one. `size` is that of its file.
    func canShare(_ size: FileSize?) -> Bool { !isFurther && !ownsConnection && size != .large }

    var isWaiting: Bool { phase == .waiting }
    var hasLeft: Bool { phase == .left }
    var silentSince: WallTime? { if case .silent(let time) = phase { time } else { nil } }
    /// Whether the request makes no progress.
    var isIdle: Bool { isWaiting || silentSince != nil }

    /// The next request of the same transfer, which waits for `host`.
    func next(to host: String, origin: String, question: UInt64, now: WallTime) -> PlacedRequest {
        PlacedRequest(
            host: host, origin: origin, app: app, requestInterval: requestInterval, isUrgent: isUrgent, isPrivate: isPrivate,
            startedAt: now, phase: .waiting, question: question, isFurther: isFurther)
    }
}

/// An HTTP/2 connection, which many requests to its origin share.
struct SharedConnection: Hashable {
    let origin: String
    let connection: UInt32
}
