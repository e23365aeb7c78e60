internal import DownloadModel
internal import EventLoop
internal import Localization
internal import TodokuClient

/// Why a download is in its state, in one sentence.
struct Reason {
    private let download: DownloadDescription
    private let limits: ServiceLimits?
    private let catalog: Catalog

    /// - Parameter limits: those of the queue and of hosts; nil: unknown, and the reason leaves them out.
    init(_ download: DownloadDescription, _ limits: ServiceLimits?, _ catalog: Catalog = todoku.catalog) {
        (self.download, self.limits, self.catalog) = (download, limits, catalog)
    }

    var sentence: String { catalog.text("%1$s: %2$s", catalog.state(download.state), detail) }

    /// The sentence without the state.
    var detail: String {
        switch download.state {
        case .queued: withAhead(queue ?? catalog.text("it starts as soon as its turn comes"))
        case .waiting: waiting
        case .active: active
        case .paused: catalog.text("“todoku resume %1$s” resumes it", "\(download.reference)")
        case .verifying: cause ?? catalog.text("all bytes are on disk and are being checked")
        case .extracting: cause ?? extracting
        case .finished: catalog.text("the file is %1$s", download.path ?? download.displayName)
        case .failed, .cancelled: cause ?? catalog.text("it was cancelled")
        default: catalog.text("nothing more is known")
        }
    }

    /// The host in the download's URL.
    private var host: String { (try? DownloadURL(download.url).host) ?? download.url }

    /// Why the download, or its last attempt, failed.
    private var cause: String? { download.error.map { catalog.explanation($0).withoutStop } }

    private var until: String? { download.waitUntil.map { Clock.brief($0) } }

    /// "…; 212 ahead".
    private func withAhead(_ reason: String) -> String {
        download.ahead > 0 ? catalog.text("%1$s; %2$s ahead", reason, catalog.count(download.ahead)) : reason
    }

    /// "…; next at 14:03:07".
    private func withTurn(_ reason: String) -> String {
        let reason = withAhead(reason)
        guard let until else { return reason }
        return download.ahead > 0
            ? catalog.text("%1$s; its turn at %2$s", reason, until) : catalog.text("%1$s; next at %2$s", reason, until)
    }

    private var extracting: String {
        download.extractedPercent.map { catalog.text("the archive is being unpacked: %1$s", catalog.percent($0)) }
            ?? catalog.text("the archive is being unpacked")
    }

    /// The limit that keeps a download queued; nil: none is known or reached.
    private var queue: String? {
        let (most, active) = (limits?.status.settings.maxActive ?? 0, limits?.status.active ?? 0)
        if most == ServiceSettings.automaticMaxActive, active > 0 {
            return catalog.text("other downloads are active, as many as their sizes allow at a time")
        }
        guard most > 0, active >= most else { return nil }
        return most == 1
            ? catalog.text("another download is active, and only one may be active at a time")
            : catalog.text("%1$s downloads are active, the most allowed at a time", catalog.count(most))
    }

    private var active: String {
        guard download.speed > 0 else { return catalog.text("%1$s has not sent anything for a moment", download.error?.host ?? host) }
        let received = download.fraction.map { catalog.percent(Int(clamping: $0 * 100)) } ?? catalog.size(download.received)
        return catalog.text("%1$s received, at %2$s", received, catalog.speed(download.speed))
    }

    private var waiting: String {
        switch download.waitReason.flatMap(WaitReason.init) {
        case .retry:
            return catalog.text(
                "%1$s; retrying at %2$s, for the %3$s time", cause ?? catalog.text("the last attempt failed"),
                until ?? catalog.text("some time"), ordinal(download.attempts +| 1))
        case .rateLimit: return withTurn(rateLimit)
        case .hostLimit: return withAhead(hostLimit)
        case .notBefore: return catalog.text("it may not start before %1$s", until ?? catalog.text("a later time"))
        case .offline: return until.map { catalog.text("%1$s, and tries again at %2$s", offline, $0) } ?? offline
        case .metered: return metered
        // The service's sentence says how many bytes are missing.
        case .diskSpace: return cause ?? catalog.text("the disk is full")
        case .destination: return cause ?? destination
        case .needsUrl: return needsUrl
        case .pausedAll: return pausedAll
        default:
            let reason = download.waitReason ?? catalog.text("the reason is not known")
            return until.map { catalog.text("%1$s, until %2$s", reason, $0) } ?? reason
        }
    }

    /// What a waiting or queued download waits for, without the time of the next try; nil: only that time is known, or a queued download
    /// starts as soon as its turn comes. What changes from moment to moment, such as the number of downloads ahead, is left out.
    var obstacle: String? {
        if download.state == .queued { return queue }
        // The service's own sentence is whole, so it keeps its full stop.
        let message = download.error.map { catalog.explanation($0) }
        switch download.waitReason.flatMap(WaitReason.init) {
        case .retry, .diskSpace: return message
        case .rateLimit: return rateLimit
        case .hostLimit: return hostLimit
        case .offline: return offline
        case .metered: return metered
        case .destination: return message ?? destination
        case .needsUrl: return needsUrl
        case .pausedAll: return pausedAll
        case .notBefore, nil: return nil
        }
    }

    /// Whether the download waits for its host. The reason of such a wait needs the service's limits.
    static func isForHost(_ download: DownloadDescription) -> Bool {
        isOfPace(download) || download.state == .waiting && download.waitReason == WaitReason.hostLimit.rawValue
    }

    /// Whether the download waits because requests to its host must keep an interval (`rate-limit`).
    static func isOfPace(_ download: DownloadDescription) -> Bool {
        download.state == .waiting && download.waitReason == WaitReason.rateLimit.rawValue
    }

    private var offline: String {
        catalog.text("there is no network, or only one that asks for a login; it resumes as soon as there is one")
    }
    private var metered: String { catalog.text("the connection is metered; waiting for an unmetered one") }
    private var destination: String { catalog.text("its folder cannot be written") }
    private var needsUrl: String {
        catalog.text("its link has expired; “todoku renew %1$s URL” gives it a fresh one", "\(download.reference)")
    }
    private var pausedAll: String { catalog.text("everything is paused; “todoku resume --all” resumes it") }

    /// The rule that the service applies to the host.
    private var rule: (name: String, rule: HostRule)? {
        guard let limits else { return nil }
        var rules = HostRules()
        for (host, rule) in limits.status.hostRules { try? rules.set(host, rule) }
        let (name, rule) = rules.governing(host)
        return rule.isEmpty ? nil : (name, rule)
    }

    private var rateLimit: String {
        let (name, rule) = self.rule ?? (name: host, rule: HostRule())
        let interval = rule.requestInterval ?? .zero
        if let slowed = limits?.slowed?[DownloadURL.origin(of: download.url)],
            slowed.interval > interval || slowed.pausedUntil.map({ $0.microseconds > wallClock() }) ?? false
        {
            return catalog.text(
                "%1$s answered %2$s, so it gets fewer requests; “todoku host %1$s --reset” ends this", host, String(slowed.status))
        }
        guard interval > .zero else {
            return catalog.text("requests to %1$s are spaced out, by --request-interval or because the server refused some", host)
        }
        return catalog.text("%1$s allows one request %2$s", name, Self.every(interval, catalog))
    }

    private var hostLimit: String {
        guard let most = rule?.rule.connections ?? limits?.status.settings.maxPerHost else {
            return catalog.text("the most downloads allowed from %1$s at a time are active", host)
        }
        return catalog.text("the most downloads allowed from %1$s at a time are active (%2$s)", host, catalog.count(most))
    }

    /// "a second", "every 250 ms".
    static func every(_ interval: Duration, _ catalog: Catalog = todoku.catalog) -> String {
        let milliseconds = interval.wholeMilliseconds
        switch milliseconds {
        case 1000: return catalog.text("a second")
        case 60_000: return catalog.text("a minute")
        case 3_600_000: return catalog.text("an hour")
        default:
            let time = milliseconds % 1000 == 0 ? catalog.duration(interval) : catalog.text("%1$s ms", catalog.count(milliseconds))
            return catalog.text("every %1$s", time)
        }
    }

    private func ordinal(_ number: UInt32) -> String {
        let text = catalog.count(number)
        guard !(11...13).contains(number % 100) else { return catalog.text("%1$sth", text) }
        return switch number % 10 {
        case 1: catalog.text("%1$sst", text)
        case 2: catalog.text("%1$snd", text)
        case 3: catalog.text("%1$srd", text)
        default: catalog.text("%1$sth", text)
        }
    }
}
