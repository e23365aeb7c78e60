internal import DownloadModel

/// Decides what the server does with each request. Pure: no socket, no clock.
struct ScenarioScript {
    /// An answer.
    enum Play: Equatable {
        /// Without the file.
        case plain(Int, fields: [String: String], page: String)
        case file(FilePlay)

        static func status(_ status: Int, _ fields: [String: String] = [:]) -> Play { .plain(status, fields: fields, page: "") }
    }

    /// An answer that brings the file, or bytes of it.
    struct FilePlay: Equatable {
        /// What happens after a number of bytes of the answer.
        enum Fault: Equatable { case silence, close, crash }

        var file: RehearsalFile
        var version = RehearsalFile.Version.first
        /// Whether one byte differs from the file whose digest is stated.
        var isDamaged = false
        var fault: Fault?
        /// The bytes of the answer before the fault.
        var at: UInt64 = 0
        /// Bytes per second; nil: no limit.
        var rate: UInt64?
    }

    /// Most names of files whose requests are counted; further names share one count.
    private static let mostNames = 10_000
    static let loginPage = "<!DOCTYPE html><html><title>Log in</title><body><h1>Welcome to the free Wi-Fi</h1></body></html>\n"

    private let scenario: Scenario
    /// How often the fault has happened.
    private(set) var played: UInt64 = 0
    /// The same for each name.
    private var playedByName: [String: UInt64] = [:]

    init(_ scenario: Scenario) { self.scenario = scenario }

    /// Decides about one request, and counts the fault if it happens.
    ///
    /// - Parameter range: the bytes of the file that the request would get without a fault; nil: none.
    mutating func play(_ name: String?, query: String?, isHead: Bool, of range: Range<UInt64>?) -> Play {
        guard let name else { return .status(404) }
        if name == "login" { return page }
        guard let file = RehearsalFile.named(name) else { return .status(404) }
        var play = FilePlay(file: file)
        let body = isHead ? nil : range
        switch scenario.kind {
        case .none, .unreachable, .fullDisk: break
        case .busy:
            guard isDue(name) else { break }
            count(name, isHead)
            return .status(Int(clamping: scenario.number("status")), ["Retry-After": "\(scenario.number("retry-after"))"])
        case .missing:
            count(name, isHead)
            return .status(404)
        case .slow:
            count(name, isHead)
            play.rate = scenario.number("rate")
        case .stall: if isDue(name), stop(&play, .silence, body) { count(name, isHead) }
        case .truncated: if isDue(name), stop(&play, .close, body) { count(name, isHead) }
        case .crash: if isCrashDue { _ = stop(&play, .crash, body) }  // `crashed` counts, because one crash may end several answers
        case .changed:
            if playedByName[key(name)] != nil {
                play.version = .second
            } else if stop(&play, .close, body) {
                count(name, isHead)
            }
        case .damaged:
            guard isDue(name) else { break }
            count(name, isHead)
            play.isDamaged = true
        case .expired:
            guard query != "renewed" else { break }
            guard scenario.number("at") > 0, playedByName[key(name)] == nil else {
                count(name, isHead)
                return .status(403)
            }
            if stop(&play, .close, body) { count(name, isHead) }
        case .portal:
            guard isDue(name) else { break }
            count(name, isHead)
            return scenario.number("redirect") == 1 ? .status(302, ["Location": "/login"]) : page
        case .redirectLoop:
            count(name, isHead)
            return .status(302, ["Location": "/\(percentEncoded(path: name))?hop=\(played)"])
        }
        return .file(play)
    }

    /// The service was killed.
    mutating func crashed() { played +|= 1 }

    private var page: Play { .plain(200, fields: ["Content-Type": "text/html; charset=utf-8"], page: Self.loginPage) }

    /// Whether the service has not been killed as often as `times` says. An answer that began before a kill may reach its place after it.
    var isCrashDue: Bool {
        let times = scenario.number("times")
        return times == 0 || played < times
    }

    /// Whether the fault has not happened to this file as often as `times` says.
    private func isDue(_ name: String) -> Bool {
        let times = scenario.number("times")
        return times == 0 || (playedByName[key(name)] ?? 0) < times
    }

    private func key(_ name: String) -> String { playedByName[name] != nil || playedByName.count < Self.mostNames ? name : "" }

    private mutating func count(_ name: String, _ isHead: Bool) {
        guard !isHead else { return }
        played +|= 1
        playedByName[key(name), default: 0] +|= 1
    }

    /// Makes an answer stop after `at` bytes, if it has more.
    ///
    /// - Parameter body: the bytes of the file in the answer; nil: none.
    /// - Returns: whether the answer stops.
    private func stop(_ play: inout FilePlay, _ fault: FilePlay.Fault, _ body: Range<UInt64>?) -> Bool {
        let at = scenario.number("at")
        guard let body, body.byteCount > at else { return false }
        (play.fault, play.at) = (fault, at)
        return true
    }
}
