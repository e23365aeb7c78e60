internal import ArgumentParser
internal import DownloadModel
internal import Localization
internal import TodokuClient

struct HostCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "host", abstract: "Show or set the limits for a host.",
        discussion: """
            A rule applies to a host and its subdomains, for all applications, batches, redirects and retries together. “*” applies to every \
            host without a rule of its own. If several rules match, the one with the longest name counts. There is a built-in rule for \
            musicbrainz.org: one request per second.

            --interval and --connections change only their own part of a rule. With --remove, a part that is not given is removed.

            The service sends fewer requests to a server that refused some (429, 503). Below the rules, the command lists such servers, since \
            when and until when. --reset ends that.

            EXAMPLES:
              todoku host
              todoku host musicbrainz.org
              todoku host example.org --interval 500ms --connections 2
              todoku host example.org --remove --connections 4
              todoku host example.org --remove
              todoku host example.org --reset
            """)

    @Argument(help: "A host's name or address, or “*”.") var host: String?
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("The shortest time between the starts of two requests; 0: none.", valueName: "time"),
        transform: Amounts.parseDuration) var interval: Duration?
    @Option(
        parsing: .unconditional, help: ArgumentHelp("Most connections at a time; 0: no limit.", valueName: "number"),
        transform: HostCommand.parseConnections) var connections: UInt32?
    @Flag(help: "Remove the rule; a built-in rule applies again.") var remove = false
    @Flag(help: "End the slow-down after refused requests.") var reset = false
    @OptionGroup var output: OutputArguments

    @Sendable static func parseConnections(_ text: String) throws -> UInt32 {
        if let count = UInt32(text) { return count }
        throw ValidationError(
            catalog.text(
                "“%1$s” is not a number of connections; write a whole number from 1 to %2$s, or 0 (no limit).", text, String(UInt32.max)))
    }

    func validate() throws {
        let sets = interval != nil || connections != nil
        if host == nil, reset { throw ValidationError(catalog.text("--reset needs a host.")) }
        if host == nil, sets || remove { throw ValidationError(catalog.text("--interval, --connections and --remove need a host.")) }
        if let host { try Self.check(host) }
    }

    func run() throws {
        Program.run(json: output.json) { client in
            if let host, interval != nil || connections != nil || remove {
                let former = try await remove ? nil : client.status().hostRules[Self.name(of: host)]
                let rule = HostRule(connections: connections, requestInterval: interval)
                try await client.setHostRule(Self.completed(rule, by: former, of: host), of: host)
                if !reset { return .success }
            }
            let (rules, slowed) = Self.concerning(host, try await client.status().hostRules, try await client.slowedHosts())
            if let host, reset {
                try await client.resetHost(host)
                if slowed.isEmpty {
                    // A slow-down by private downloads, if there was one, is over now. The service tells nobody of it.
                    Output.complain(catalog.text("%1$s was not on the list of slowed hosts, which leaves out private downloads", host))
                }
                return .success
            }
            if output.json {
                let members = rules.sorted { $0.key < $1.key }.map { ($0.key, Self.json($0.value)) }
                let others = slowed.sorted { $0.key < $1.key }.map { ($0.key, Self.json($0.value)) }
                Output.write(JSON.object(members + others).text + "\n")
            } else if !rules.isEmpty || !slowed.isEmpty {
                if !rules.isEmpty { Output.write(Self.table(rules).text(width: Terminal.current?.columns)) }
                if !rules.isEmpty, !slowed.isEmpty { Output.write("\n") }
                if !slowed.isEmpty { Output.write(Self.table(slowed).text(width: Terminal.current?.columns)) }
                if let host, let name = rules.keys.first, name != Self.name(of: host), Terminal.errorsAreSeen {
                    Output.writeError(
                        catalog.text("%1$s has no rule of its own; that of %2$s applies.", TerminalText.plain(host), name) + "\n")
                }
            } else if Terminal.errorsAreSeen {
                Output.writeError(
                    (host.map { catalog.text("%1$s has no rule of its own.", TerminalText.plain($0)) }
                        ?? catalog.text("No host has a rule."))
                        + "\n")
            }
            return .success
        }
    }

    /// The rule that applies to `host`, by the host that has it, and the slowed origins that --reset would reset. nil: all.
    static func concerning(
        _ host: String?, _ rules: [String: HostRule], _ slowed: [String: SlowedHost]
    ) -> (rules: [String: HostRule], slowed: [String: SlowedHost]) {
        guard let host else { return (rules, slowed) }
        var inEffect = HostRules()
        for (host, rule) in rules { try? inEffect.set(host, rule) }
        let name = inEffect.governing(Self.name(of: host)).name
        let key = rules[name] == nil ? HostRules.others : name
        return (rules.filter { $0.key == key }, slowed.filter { inEffect.governing(DownloadURL.host(of: $0.key)).name == name })
    }

    /// `rule`, with the values of the host's former rule that it lacks: the call replaces the whole rule. A built-in value stays without
    /// being set.
    private static func completed(_ rule: HostRule, by former: HostRule?, of host: String) -> HostRule {
        let builtIn = HostRules.builtIn[name(of: host)]
        var rule = rule
        if rule.connections == nil, former?.connections != builtIn?.connections { rule.connections = former?.connections }
        if rule.requestInterval == nil, former?.requestInterval != builtIn?.requestInterval {
            rule.requestInterval = former?.requestInterval
        }
        return rule
    }

    /// The host as the service knows it: in lower case, without the dot of the DNS root, an IPv6 address in its shortest form.
    private static func name(of host: String) -> String {
        let name = url(of: host)?.host ?? host  // “*” is no host
        return name.hasSuffix(".") ? String(name.dropLast()) : name
    }

    /// A URL of `host`; nil: `host` is neither a host name nor an address.
    private static func url(of host: String) -> DownloadURL? {
        let authority = host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host
        return try? DownloadURL("http://\(authority)/")
    }

    /// - Throws: if `host` can be no host's name, so that no rule can be found or set.
    static func check(_ host: String) throws {
        if host == HostRules.others { return }
        let fromURL = DownloadURL.host(of: host)
        guard fromURL.isEmpty else { throw ValidationError(catalog.text("“%1$s” is a URL; give only its host: %2$s", host, fromURL)) }
        guard !host.utf8.contains(where: { "/@?#[]".utf8.contains($0) }), url(of: host) != nil else {
            throw ValidationError(
                catalog.text("“%1$s” is not a host name; write it like example.org, or give * for all other hosts.", host))
        }
    }

    static func table(_ rules: [String: HostRule]) -> Table {
        var table = Table([
            .init(heading: catalog.text("HOST"), isName: true, staysInRow: true), .init(heading: catalog.text("INTERVAL"), isNumber: true),
            .init(heading: catalog.text("CONNECTIONS")),
        ])
        for (host, rule) in rules.sorted(by: { $0.key < $1.key }) {
            table.add([
                host, rule.requestInterval.map { catalog.text("%1$s ms", catalog.count($0.wholeMilliseconds)) } ?? "-",
                rule.connections.map { $0 == 0 ? catalog.text("no limit") : catalog.count($0) } ?? "-",
            ])
        }
        return table
    }

    /// A table of the origins that refused requests.
    static func table(_ slowed: [String: SlowedHost]) -> Table {
        var table = Table([
            .init(heading: catalog.text("REFUSES"), isName: true, staysInRow: true),
            .init(heading: catalog.text("INTERVAL"), isNumber: true, leftOut: 1), .init(heading: catalog.text("SINCE"), leftOut: 2),
            .init(heading: catalog.text("PAUSED UNTIL")), .init(heading: catalog.text("STATUS")),
        ])
        for (origin, host) in slowed.sorted(by: { $0.key < $1.key }) {
            table.add([
                origin, catalog.text("%1$s ms", catalog.count(host.interval.wholeMilliseconds)),
                host.since.map { Clock.brief($0) } ?? "-", host.pausedUntil.map { Clock.brief($0) } ?? "-", String(host.status),
            ])
        }
        return table
    }

    private static func json(_ host: SlowedHost) -> JSON {
        .object(
            [
                ("slowed-interval", JSON.unsigned(UInt64(clamping: host.interval.wholeMilliseconds))),
                ("http-status", JSON.unsigned(UInt64(host.status))),
            ]
                + (host.since.map { [("since", JSON.unsigned($0.microseconds))] } ?? [])
                + (host.pausedUntil.map { [("until", JSON.unsigned($0.microseconds))] } ?? []))
    }

    private static func json(_ rule: HostRule) -> JSON {
        .object(
            (rule.connections.map { [("connections", JSON.unsigned(UInt64($0)))] } ?? [])
                + (rule.requestInterval.map { [("request-interval", JSON.unsigned(UInt64(clamping: $0.wholeMilliseconds)))] } ?? []))
    }
}

struct LimitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "limit", abstract: "Show or set the speed limit of all downloads together, or of single ones.",
        discussion: """
            EXAMPLES:
              todoku limit
              todoku limit 2MiB
              todoku limit none
              todoku limit 500K 7 8
            """)

    @Argument(help: "Most bytes per second, such as 500K; “none” for no limit.", transform: LimitCommand.parseSpeed) var speed: Speed?
    @Argument(
        help: ArgumentHelp("Limit only these: number or object path of a download or batch, or APP/TOKEN.", valueName: "download"),
        completion: Target.completion, transform: TargetList.parse)
    private var lists: [TargetList] = []
    @OptionGroup var output: OutputArguments

    /// As `Amounts.parseSpeedWithUnit`. A number without a unit may also be meant as a download's.
    @Sendable static func parseSpeed(_ text: String) throws -> Speed {
        do { return try Amounts.parseSpeedWithUnit(text) } catch {
            guard UInt64(text) != nil, let reason = error as? ValidationError else { throw error }
            let place = catalog.text("A download comes after the speed: todoku limit 500K %1$s.", text)
            throw ValidationError(catalog.text("%1$s %2$s", reason.message, place))
        }
    }

    func run() throws {
        Program.run(json: output.json) { client in
            guard let speed else {
                let limit = try await client.status().settings.speedLimit
                Output.write(
                    output.json ? JSON.unsigned(limit).text + "\n" : (limit == 0 ? catalog.text("none") : catalog.speed(limit)) + "\n")
                return .success
            }
            guard !lists.isEmpty else {
                try await client.set(.speedLimit(speed))
                return .success
            }
            let limit = speed == 0 ? nil : speed
            return await Program.each(lists.targets, json: output.json) { download throws(ClientError) in
                try await client.setSpeedLimit(limit, of: download)
            } batch: { batch throws(ClientError) in
                for member in try await client.remaining(of: batch) {
                    try await unlessEnded { () throws(ClientError) in try await client.setSpeedLimit(limit, of: member.reference) }
                }
            }
        }
    }
}

struct WhyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "why", abstract: "Explain in one sentence what a download is doing, or why it waits.",
        discussion: """
            A batch stands for all its downloads.

            EXAMPLES:
              todoku why 7
              todoku why org.example.App/chapter_1
            """)

    @Argument(help: .targets, completion: Target.completion, transform: TargetList.parse) private var lists: [TargetList]
    @OptionGroup var output: OutputArguments

    func run() throws {
        let targets = lists.targets
        Program.run(json: output.json) { client in
            var limits = ServiceLimits(try await client.status())
            func explain(_ description: DownloadDescription, named isNamed: Bool) async throws(ClientError) {
                if Reason.isOfPace(description), limits.slowed == nil { limits.slowed = try await client.slowedHosts() }
                let (download, reason) = (description.reference, Reason(description, limits).sentence)
                let text = isNamed ? "\(download): \(reason)" : reason
                Output.write(
                    (output.json
                        ? JSON.object([("download", .string("\(download)")), ("reason", .string(reason))]).text : TerminalText.plain(text))
                        + "\n")
            }
            return await Program.each(targets, json: output.json) { download throws(ClientError) in
                try await explain(try await client.describe(download), named: targets.count > 1)
            } batch: { batch throws(ClientError) in
                _ = try await client.describe(batch)  // about a missing batch, the list's error names the key of the filter
                for member in try await client.describe(DownloadQuery(batch: batch)) { try await explain(member, named: true) }
            }
        }
    }
}
