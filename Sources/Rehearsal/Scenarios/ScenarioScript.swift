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
        /// What happens behind a number of bytes of the answer.
        enum Fault: Equatable { case silence, close, crash }

        var file: RehearsalFile
        var version = RehearsalFile.Version.first
        /// Whether the digest is stated, but one byte is another.
        var isDamaged = false
        var fault: Fault?
        /// The bytes of the answer that come before the fault.
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
    /// The same for each file.
    private var playedByName: [String: UInt64] = [:]

    init(_ scenario: Scenario) { self.scenario = scenario }

    /// - Parameter range: the bytes of the file that the request would get; nil: none.
    mutating func play(_ name: String?, query: String?, isHead: Bool, of range: Range<UInt64>?) -> Play {
        guard let name else { return .status(404) }
        if name == "login" { return page }
        guard let file = RehearsalFile.named(name) else { return .status(404) }
        var play = FilePlay(file: file)
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
        case .stall: halt(&play, .silence, name, isHead, range)
        case .truncated: halt(&play, .close, name, isHead, range)
        case .crash:
            if scenario.number("times") == 0 || played < scenario.number("times") { halt(&play, .crash, name, isHead, range) }
        case .changed:
            if playedByName[key(name)] == nil { halt(&play, .close, name, isHead, range) } else { play.version = .second }
        case .damaged:
            guard isDue(name) else { break }
            count(name, isHead)
            play.isDamaged = true
        case .expired:
            guard query != "renewed" else { break }
            if scenario.number("at") > 0, playedByName[key(name)] == nil {
                halt(&play, .close, name, isHead, range)
            } else {
                count(name, isHead)
                return .status(403)
            }
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

    private var page: Play { .plain(200, fields: ["Content-Type": "text/html; charset=utf-8"], page: Self.loginPage) }

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

    /// Has the answer halt, if it is long enough.
    private mutating func halt(_ play: inout FilePlay, _ fault: FilePlay.Fault, _ name: String, _ isHead: Bool, _ range: Range<UInt64>?) {
        let at = scenario.number("at")
        let hasTimes = fault != .crash && scenario.kind.parameters.contains { $0.key == "times" }
        guard !isHead, let range, range.byteCount > at, !hasTimes || isDue(name) else { return }
        count(name, isHead)
        (play.fault, play.at) = (fault, at)
    }
}
