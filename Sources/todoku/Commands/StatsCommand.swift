internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Localization
internal import TodokuClient

struct StatsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stats", abstract: "Count ended downloads by outcome, host and day.",
        discussion: """
            Counts the downloads that are on the list and have ended. The list keeps them for 30 days, 10,000 at most. Downloads that were \
            removed are not counted. A terminal also shows a bar for the bytes of each day.

            EXAMPLES:
              todoku stats
              todoku stats --since 7d
              todoku stats --since 2026-11-01 --json
            """)

    @Option(
        help: ArgumentHelp("Only downloads that ended since then: a date, or how long ago, such as 12h or 7d.", valueName: "time"),
        transform: StatsCommand.parseSince)
    var since: WallTime?
    @Option(help: ArgumentHelp("Only downloads of this application.", valueName: "id")) var app: String?
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json) { client in
            var query = DownloadQuery.ended
            query.app = app
            let statistics = Statistics(try await client.describe(query).compactMap { Statistics.Entry($0) }, since: since)
            if output.json {
                Output.write(statistics.json(since: since).text + "\n")
            } else {
                Output.write(
                    statistics.text(
                        since: since, app: app, width: Terminal.current?.columns, isUTF8: Terminal.isUTF8,
                        now: WallTime(microseconds: wallClock())))
            }
            return .success
        }
    }

    /// "12h", "7d": so long ago; "2026-11-01": that day; or as `Amounts.instant`.
    @Sendable static func parseSince(_ text: String) throws -> WallTime {
        if let instant = instant(text, now: WallTime(microseconds: wallClock())) { return instant }
        throw ValidationError(
            catalog.text("“%1$s” is not a time; write it like 12h, 7d, 2026-11-01 or 2026-11-01T12:00.", text))
    }

    /// nil: malformed.
    static func instant(_ text: String, now: WallTime) -> WallTime? {
        if text.hasSuffix("d"), let days = UInt16(text.dropLast()) { return now + .seconds(-Int64(days) * 24 * 3600) }
        // A number without a unit could be days as well as seconds.
        if let last = text.last, last.isLetter, let past = Amounts.duration(text) { return now + (.zero - past) }
        guard text.contains("-") || text.hasPrefix("@") else { return nil }
        return Amounts.instant(text) ?? Amounts.instant("\(text)T00:00")
    }
}
