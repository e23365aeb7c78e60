internal import DownloadModel
internal import TodokuClient

/// Why a download does what it does, or nothing, in one sentence.
struct Reason {
    private let download: DownloadDescription
    private let status: ServiceStatus

    init(_ download: DownloadDescription, _ status: ServiceStatus) { (self.download, self.status) = (download, status) }

    var sentence: String {
        let text =
            switch download.state {
            case .queued: queued
            case .waiting: waiting
            case .active: active
            case .paused: "‘todoku resume \(download.reference)’ lets it go on"
            case .verifying: "all bytes are there, and are being checked"
            case .finished: "the file is \(download.path ?? download.displayName)"
            case .failed, .cancelled: (download.error?.message ?? "it was cancelled").withoutStop
            default: "nothing more is known"
            }
        return "\(download.state.name): \(text)"
    }

    /// The host of its URL.
    private var host: String { (try? DownloadURL(download.url).host) ?? download.url }

    /// "; 212 ahead".
    private var ahead: String { download.ahead > 0 ? "; \(download.ahead) ahead" : "" }

    /// "; next at 14:03:07".
    private var turn: String { download.waitUntil.map { "; \(download.ahead > 0 ? "its turn" : "next") at \(Clock.brief($0))" } ?? "" }

    private var queued: String {
        let most = status.settings.maxActive
        return most > 0 && status.active >= most
            ? "\(most == 1 ? "another download is" : "\(most) others are") active, and no more may be at a time\(ahead)"
            : "it starts as soon as its turn comes\(ahead)"
    }

    private var active: String {
        guard download.speed > 0 else { return "\(download.error?.host ?? host) has not sent anything for a moment" }
        return
            "\(download.fraction.map { "\(Int($0 * 100)) % are" } ?? "\(HumanText.size(download.received)) are") here, at \(HumanText.speed(download.speed))"
    }

    private var waiting: String {
        let until = download.waitUntil.map { Clock.brief($0) }
        let cause = download.error.map { "\($0.message.withoutStop)" }
        return switch download.waitReason {
        case WaitReason.retry.rawValue:
            "\(cause ?? "the last attempt failed"); it is tried again at \(until ?? "some time"), for the \(ordinal(download.attempts + 1)) time"
        case WaitReason.rateLimit.rawValue: rateLimit
        case WaitReason.hostLimit.rawValue: "as many downloads from \(host) are active as may be at a time\(connections)\(ahead)"
        case WaitReason.notBefore.rawValue: "it is to start at \(until ?? "a later time"), and not before"
        case WaitReason.offline.rawValue:
            "there is no network; it goes on as soon as there is one\(until.map { ", and is tried at \($0)" } ?? "")"
        case WaitReason.metered.rawValue: "the network costs by the byte, and this download may not use such a one; it waits for another"
        case WaitReason.diskSpace.rawValue:
            "\(cause ?? "the disk is full")\(download.error?.missingBytes.map { "; \(HumanText.size($0)) more have to be free" } ?? "")"
        case WaitReason.destination.rawValue: cause ?? "its folder cannot be written"
        case WaitReason.needsUrl.rawValue: "its link has expired; ‘todoku renew \(download.reference) URL’ gives it a fresh one"
        case WaitReason.pausedAll.rawValue: "everything is paused; ‘todoku resume --all’ lets it go on"
        case let other: "\(other ?? "nobody knows what for")\(until.map { ", until \($0)" } ?? "")"
        }
    }

    /// As the service finds it.
    private var rule: (name: String, rule: HostRule)? {
        var rules = HostRules()
        for (host, rule) in status.hostRules { try? rules.set(host, rule) }
        let (name, rule) = rules.governing(host)
        return rule.isEmpty ? nil : (name, rule)
    }

    private var rateLimit: String {
        guard let (name, rule) = rule, let interval = rule.requestInterval, interval > .zero else {
            return "\(host) is asked for less at a time, as it wants, or as the option request-interval says\(ahead)\(turn)"
        }
        return "\(name) allows one request \(Self.every(interval))\(ahead)\(turn)"
    }

    private var connections: String { rule?.rule.connections.map { " (\($0))" } ?? " (\(status.settings.maxPerHost))" }

    /// "a second", "every 250 ms".
    static func every(_ interval: Duration) -> String {
        let milliseconds = interval.wholeMilliseconds
        return switch milliseconds {
        case 1000: "a second"
        case 60_000: "a minute"
        case 3_600_000: "an hour"
        default: milliseconds % 1000 == 0 ? "every \(HumanText.duration(interval))" : "every \(milliseconds) ms"
        }
    }

    private func ordinal(_ number: UInt32) -> String {
        let ending = (11...13).contains(number % 100) ? "th" : [1: "st", 2: "nd", 3: "rd"][number % 10] ?? "th"
        return "\(number)\(ending)"
    }
}

extension String {
    fileprivate var withoutStop: String { hasSuffix(".") ? String(dropLast()) : self }
}
