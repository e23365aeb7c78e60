internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient

struct ListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List downloads.",
        discussion: """
            Lists unfinished downloads in queue order, then downloads that ended within the last day, and below them the batches that have \
            not ended. The list says why a download waits, stays queued or has failed: below its line at a terminal, and at the end of \
            its line elsewhere. All queued downloads have the same reason, so a terminal shows it once. On a narrow terminal, columns are \
            left out. If the total size is not known, the size is the number of bytes received so far.

            With --json the list is an array: an object for each download, then one for each batch, without the member “download”.

            EXAMPLES:
              todoku list
              todoku list --state failed --state cancelled
              todoku list --all --json
              todoku list --json | jq '.[] | select(.download).state'
            """)

    /// How long ended downloads are listed by default, in microseconds.
    private static let recent: UInt64 = 24 * 3600 * 1_000_000

    @Option(help: ArgumentHelp("Only downloads in this state; may be repeated.", valueName: "state")) var state:
        [DownloadDescription.State] =
            []
    @Option(help: ArgumentHelp("Only downloads of this application.", valueName: "id")) var app: String?
    @Option(help: "Only downloads with this tag.") var tag: String?
    @Option(
        help: ArgumentHelp("Only downloads of this batch, whenever they ended.", valueName: "batch"),
        completion: BatchReference.completion, transform: BatchReference.parse)
    var batch: BatchReference?
    @Flag(name: .shortAndLong, help: "Also downloads that ended more than a day ago, and batches that have ended.") var all = false
    @OptionGroup var output: OutputArguments

    /// The list omits downloads that ended before this instant, unless `--all` is given. Saturates at 0, because an unset clock starts in
    /// 1970.
    static func oldest(now: UInt64) -> UInt64 { now -| recent }

    /// The message in place of an empty list.
    ///
    /// - Parameter older: how many downloads match that ended too long ago for the list.
    static func nothing(_ query: DownloadQuery, older: Int, _ catalog: Catalog = todoku.catalog) -> String {
        if older > 0 {
            return catalog.text(
                "Nothing is queued, and nothing ended within the last day. With --all, %1$s older download is listed.",
                "Nothing is queued, and nothing ended within the last day. With --all, %1$s older downloads are listed.",
                count: UInt64(older))
        }
        return query == DownloadQuery() ? catalog.text("There are no downloads.") : catalog.text("There are no such downloads.")
    }

    /// The downloads, then the batches, which have no member `download`.
    static func json(_ downloads: [DownloadDescription], _ batches: [BatchDescription]) -> JSON {
        var objects = downloads.map { JSON.object($0.json) }
        objects.append(contentsOf: batches.map { JSON.object($0.json) })
        return .array(objects)
    }

    func run() throws {
        Program.run(json: output.json) { client in
            if let batch {
                do throws(ClientError) { _ = try await client.describe(batch) } catch { throw CommandFailure(error, about: .batch(batch)) }
            }
            let query = DownloadQuery(app: app, tag: tag, states: state.isEmpty ? nil : Set(state), batch: batch)
            var downloads = try await client.describe(query)
            let count = downloads.count
            if !all, state.isEmpty, batch == nil {
                let oldest = Self.oldest(now: wallClock())
                downloads.removeAll { $0.state.hasEnded && ($0.endedAt?.microseconds ?? 0) < oldest }
            }
            var batches: [BatchDescription] = []
            if query == DownloadQuery() {
                for batch in try await client.batches(hasEnded: all ? nil : false) {
                    do throws(ClientError) { batches.append(try await client.describe(batch)) } catch {
                        guard error.cause == .unknownDownload else { throw error }  // otherwise it was removed meanwhile
                    }
                }
            }
            if output.json {
                Output.write(Self.json(downloads, batches).text + "\n")
                return .success
            }
            let width = Terminal.current?.columns
            let limits = try await ServiceLimits.needed(by: downloads, client)
            if !downloads.isEmpty { Output.write(Table.of(downloads, limits).text(width: width)) }
            if !batches.isEmpty { Output.write((downloads.isEmpty ? "" : "\n") + Table.of(batches).text(width: width)) }
            if downloads.isEmpty, batches.isEmpty, Terminal.errorsAreSeen {
                Output.writeError(Self.nothing(query, older: count) + "\n")
            }
            return .success
        }
    }
}

struct ShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show all details of downloads, or a batch with its downloads.",
        discussion: """
            The URL is shown without its query, which may contain secrets. --url prints the whole URL and nothing else.

            EXAMPLES:
              todoku show 7
              todoku show org.example.App/chapter_1
              todoku show --url 7
              todoku show --json 7 8
            """)

    @Argument(help: .targets, completion: Target.completion, transform: TargetList.parse) private var lists: [TargetList]
    @Flag(help: "Print only the whole URL; for a batch, those of all its downloads.") var url = false
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json) { client in
            var isFirst = true
            func write(_ json: [(String, JSON)], _ text: String) {
                Output.write(output.json ? JSON.object(json).text + "\n" : (isFirst ? "" : "\n") + text)
                isFirst = false
            }
            func writeURL(_ download: DownloadReference) async throws(ClientError) {
                let text = try await client.url(of: download)
                Output.write((output.json ? JSON.string(text).text : text) + "\n")
            }
            return await Program.each(lists.targets, json: output.json) { download throws(ClientError) in
                if url { return try await writeURL(download) }
                let description = try await client.describe(download)
                write(description.json, Self.text(description))
            } batch: { batch throws(ClientError) in
                let description = try await client.describe(batch)
                let members = try await client.describe(DownloadQuery(batch: batch))
                let hasReasons = !output.json && !url
                let limits = hasReasons ? try await ServiceLimits.needed(by: members, client) : nil
                if url {
                    for member in members { try await writeURL(member.reference) }
                } else {
                    write(
                        description.json + [("downloads", .array(members.map { .object($0.json) }))],
                        Self.text(description) + "\n" + Table.of(members, limits).text(width: Terminal.current?.columns))
                }
            }
        }
    }

    /// A line for each known fact of a batch.
    static func text(_ batch: BatchDescription, _ catalog: Catalog = todoku.catalog) -> String {
        var lines = [(catalog.text("Batch"), batch.reference.description)]
        if !batch.title.isEmpty { lines.append((catalog.text("Title"), batch.title)) }
        lines += [
            (catalog.text("State"), BatchFollower.text(batch, catalog)), (catalog.text("Object"), batch.reference.path),
        ]
        return text(lines)
    }

    private static func text(_ lines: [(String, String)]) -> String {
        let width = max(13, (lines.map { TerminalText.width($0.0) }.max() ?? 0) + 2)
        return lines.map { TerminalText.padded($0.0 + ":", to: width) + TerminalText.plain($0.1) + "\n" }.joined()
    }

    /// A line for each known fact.
    static func text(_ download: DownloadDescription, _ catalog: Catalog = todoku.catalog) -> String {
        var lines: [(String, String)] = [
            (catalog.text("Download"), download.reference.description), (catalog.text("Name"), download.displayName),
            (catalog.text("URL"), download.url),
        ]
        var state = catalog.state(download.state)
        if let reason = download.waitReason.map({ catalog.waitReason($0) }) {
            state =
                download.waitUntil.map { catalog.text("%1$s (%2$s, until %3$s)", state, reason, Clock.text($0)) }
                ?? catalog.text("%1$s (%2$s)", state, reason)
        }
        lines.append((catalog.text("State"), state))
        if let error = download.error { lines.append((catalog.text("Error"), "\(catalog.explanation(error)) (\(error.name))")) }
        if let path = download.path { lines.append((catalog.text("Path"), path)) }
        if let proof = download.provedBy { lines.append((catalog.text("Proved by"), catalog.proof(proof))) }
        var received = catalog.size(download.received, of: download.total)
        if let fraction = download.fraction { received += " (\(catalog.percent(Int(clamping: fraction * 100))))" }
        lines.append((catalog.text("Received"), received))
        let isActive = download.state == .active
        for source in download.sources { lines.append((catalog.text("Source"), catalog.source(source, isActive: isActive))) }
        if let percent = download.extractedPercent { lines.append((catalog.text("Unpacked"), catalog.percent(percent))) }
        if download.state == .active { lines.append((catalog.text("Speed"), catalog.speed(download.speed))) }
        if let type = download.mediaType { lines.append((catalog.text("Media type"), type)) }
        if !download.app.isEmpty { lines.append((catalog.text("App"), download.app)) }
        if !download.tag.isEmpty { lines.append((catalog.text("Tag"), download.tag)) }
        if let batch = download.batch.flatMap({ BatchReference($0) }) { lines.append((catalog.text("Batch"), batch.description)) }
        if let time = download.queuedAt { lines.append((catalog.text("Queued"), Clock.text(time))) }
        if let time = download.startedAt { lines.append((catalog.text("Started"), Clock.text(time))) }
        if let time = download.endedAt { lines.append((catalog.text("Ended"), Clock.text(time))) }
        lines.append((catalog.text("Attempts"), catalog.count(download.attempts)))
        if download.priority != 0 { lines.append((catalog.text("Priority"), String(download.priority))) }
        if let limit = download.speedLimit { lines.append((catalog.text("Speed limit"), catalog.speed(limit))) }
        lines.append((catalog.text("Object"), download.reference.path))
        return text(lines)
    }
}

/// The wall clock.
enum Clock {
    /// "14:05:09" for a time less than half a day away, otherwise as `text`.
    static func brief(_ time: WallTime) -> String {
        let text = text(time)
        let distance = time - WallTime(microseconds: wallClock())
        return distance < .seconds(12 * 3600) && distance > .seconds(-12 * 3600) ? String(text.suffix(8)) : text
    }

    /// "2025-01-31 14:05:09" in the local time zone.
    static func text(_ time: WallTime) -> String {
        var seconds = time_t(time.microseconds / 1_000_000)
        var parts = tm()
        localtime_r(&seconds, &parts)
        var buffer = [CChar](repeating: 0, count: 64)
        let count = strftime(&buffer, buffer.count, "%Y-%m-%d %H:%M:%S", &parts)
        return String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
