internal import DownloadModel
internal import DownloadStore
internal import EventLoop
internal import Glibc
internal import Localization
internal import TodokuClient
internal import Upkeep

/// The steps of deleting or replacing the queue, in their order. Each step leaves a queue that works.
@BusActor struct StateChange {
    /// How long the service may take to end its downloads.
    private static let patience = 30
    /// How often the service is ended, if other programs start it again meanwhile.
    private static let tries = 3

    private let isJSON: Bool
    private var present: StoreExamination
    /// The registrations for pushes, as they were when the command began, or when its question was answered.
    private var pushes: PushRecords
    /// The path of a damaged database that the service has set aside for this change.
    private var damaged: String?

    private init(json: Bool, _ pushes: PushRecords) {
        isJSON = json
        present = Store.examine(folder: StateFiles.folder)
        self.pushes = pushes
    }

    /// Examines the queue.
    ///
    /// - Throws: if the running service keeps its queue in another folder. The wrong queue would be replaced.
    static func begin(json: Bool) async throws(CommandFailure) -> StateChange {
        try await refuseOtherFolder()
        return StateChange(json: json, try readPushes())
    }

    /// Reads the registrations for pushes, and says which cannot be read.
    nonisolated static func readPushes() throws(CommandFailure) -> PushRecords {
        let pushes = try store { () throws(StoreError) in try PushRecords.read() }
        for path in pushes.damaged {
            Output.complain(catalog.text("%1$s cannot be read, and is left out", TerminalText.plain(path)))
        }
        return pushes
    }

    /// Refuses if the service that runs keeps its queue in another folder: this command would read or change a queue that nobody uses.
    static func refuseOtherFolder() async throws(CommandFailure) {
        if let folder = await ServiceEnd.folder(), folder != StateFiles.folder {
            let text = catalog.text(
                "the service keeps its queue in %1$s, and this command looks into %2$s; give both the same XDG_STATE_HOME", folder,
                StateFiles.folder)
            throw CommandFailure(.refused, text)
        }
    }

    /// Runs `body` on the main thread's loop, and ends the program with its status.
    nonisolated static func run(
        json: Bool, _ body: @escaping @BusActor @Sendable () async throws(CommandFailure) -> ExitStatus
    ) -> Never {
        BusActor.runMain {
            do throws(CommandFailure) { Program.finish(try await body()) } catch { Program.finish(Program.report(error, json: json)) }
        }
        exit(ExitStatus.refused.rawValue)
    }

    nonisolated static func store<R>(_ body: () throws(StoreError) -> R) throws(CommandFailure) -> R {
        do throws(StoreError) { return try body() } catch { throw CommandFailure(.refused, catalog.sentence(error.message)) }
    }

    /// Whether there is anything to lose.
    var isNeeded: Bool { present.condition != .absent || !pushes.isEmpty }

    /// Whether all there is can be copied.
    private var canBeCopied: Bool { present.condition == .good || present.condition == .absent && !pushes.isEmpty }

    /// Whether a reset may end the registrations for pushes. A damaged queue can be copied after the service has saved what it can.
    private var mayEndPushes: Bool {
        if case .damaged = present.condition { return true }
        return canBeCopied
    }

    /// Says what will be lost, and asks. Looks again after the answer, because a person may take minutes, and apps go on meanwhile.
    ///
    /// - Parameter backup: the backup that replaces the queue; nil: nothing does.
    /// - Throws: if the answer is not yes, or nobody can answer.
    mutating func confirm(_ isConfirmed: Bool, replacingBy backup: StoreBackup?) throws(CommandFailure) {
        guard !isConfirmed else { return }
        let question =
            backup.map { catalog.text("Replace the queue by %1$s?", $0.text()) } ?? catalog.text("Delete the queue?")
        let text = losses(backup).map { "  - \($0)\n" }.joined() + "\(question) [y/N] "
        guard let answer = Terminal.line(prompt: text) else {
            throw CommandFailure(.usage, catalog.text("nobody can be asked, because there is no terminal; give --yes"))
        }
        guard ["y", "yes", "はい"].contains(answer.filter { $0 != " " }.lowercased()) else {
            throw CommandFailure(.refused, catalog.text("nothing was changed"))
        }
        present = Store.examine(folder: StateFiles.folder)
        pushes = try Self.store { () throws(StoreError) in try PushRecords.read() }
    }

    private func losses(_ backup: StoreBackup?) -> [String] {
        var lines: [String] = []
        if backup != nil {
            lines.append(catalog.text("unfinished downloads that are not in the backup are dropped, and their bytes are deleted"))
        } else if present.unfinished > 0 {
            lines.append(
                catalog.text(
                    "%1$s unfinished download is cancelled, and its bytes are deleted",
                    "%1$s unfinished downloads are cancelled, and their bytes are deleted", count: UInt64(clamping: present.unfinished)))
        }
        let ended = present.downloads -| present.unfinished
        if backup == nil, ended > 0 {
            lines.append(
                catalog.text("%1$s ended download leaves the list", "%1$s ended downloads leave the list", count: UInt64(clamping: ended)))
        }
        if backup == nil { lines.append(catalog.text("the settings, the rules for hosts and the registered assets are forgotten")) }
        if backup == nil, mayEndPushes, pushes.count > 0 {
            lines.append(
                catalog.text(
                    "%1$s registration for pushes ends", "%1$s registrations for pushes end", count: UInt64(clamping: pushes.count)))
        }
        lines.append(
            canBeCopied
                ? catalog.text("files that have arrived stay, and a copy of the queue without passwords is kept")
                : catalog.text("files that have arrived stay; the queue cannot be read, and is kept for a day"))
        return lines
    }

    /// Starts the service if the queue is damaged. The service saves all downloads that can be read, and so their part files are known.
    mutating func salvage() async {
        guard case .damaged = present.condition else { return }
        do throws(ClientError) {
            let client = try await DownloaderClient.connect()
            _ = try await client.status()
        } catch { return }  // then the queue is set aside unread
        let before = present.setAside
        present = Store.examine(folder: StateFiles.folder)
        damaged = present.setAside.first { !before.contains($0) }
    }

    /// Where a restore keeps a copy of the queue, if there is one by then; nil: the queue cannot be read.
    var backupPath: String? { [.good, .absent].contains(present.condition) ? StateFiles.backupPath() : nil }

    /// Copies the queue beside itself, before its downloads are cancelled. nil: it cannot be read.
    func backUp() throws(CommandFailure) -> StoreBackup? {
        guard canBeCopied, let path = backupPath else { return nil }
        return try Self.store { () throws(StoreError) in
            try Store.backUp(folder: StateFiles.folder, to: path, withSecrets: false, attachments: pushes.attachments)
        }
    }

    /// The attachments of a copy that is made now.
    func attachments(_ state: borrowing PushState) -> [Attachment] { pushes.adding(state.records).attachments }

    /// Has todoku-push end all registrations, so that the distributor and their downloads end, too.
    func endPushes() async {
        guard pushes.count > 0, let cause = await pushes.end() else { return }
        Output.complain(catalog.text("the distributor is not told that the registrations for pushes end: %1$s", TerminalText.plain(cause)))
    }

    /// Has todoku-push tell the distributor of registrations that are back. Else it would do so at the next login.
    func tellDistributor() async {
        guard let cause = await PushRecords.tellDistributor() else { return }
        Output.complain(
            catalog.text(
                "the distributor is told at the next login that the registrations for pushes are back: %1$s", TerminalText.plain(cause)))
    }

    /// Has the service cancel all downloads, so that their apps hear of it. Without the service, the bytes are deleted at its next start.
    func cancelAll() async {
        guard present.unfinished > 0 else { return }
        do throws(ClientError) {
            let client = try await DownloaderClient.connect()
            try await client.cancelAll()
            for _ in 0..<Self.patience {
                if try await client.status().remaining == 0 { return }
                await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
                    Poller.shared.schedule(after: .seconds(1)) { continuation.resume() }
                }
            }
        } catch {
            Output.complain(catalog.text("the service cannot cancel the downloads: %1$s", catalog.explanation(error)))
        }
    }

    /// Ends the service and todoku-push, and runs `body` while neither runs.
    ///
    /// - Parameter makes: whether `body` writes registrations for pushes, where there may be no folder of them yet.
    func withoutService<R>(
        makingPushFolder makes: Bool = false, _ body: (borrowing PushState) throws(StoreError) -> R
    ) async throws(CommandFailure) -> R {
        for attempt in 1...Self.tries {
            do throws(ServiceHolds) { try await ServiceEnd.end() } catch {
                throw CommandFailure(.refused, catalog.sentence(error.description))
            }
            do throws(StoreError) {
                let state = try PushState(making: makes)
                return try body(state)
            } catch {
                // Another program may have had the bus start the service again.
                guard error.reason == .inUse, attempt < Self.tries else { throw CommandFailure(.refused, catalog.sentence(error.message)) }
            }
        }
        throw CommandFailure(.refused, catalog.text("other programs start the service again and again; end them first"))
    }

    /// Names the copy of the queue where a later step has failed.
    static func complain(kept backup: StoreBackup?) {
        if let backup { Output.complain(catalog.text("the former queue is kept in %1$s", backup.text())) }
    }

    /// - Parameters:
    ///   - setAside: the path of a former queue that could not be copied.
    ///   - pushes: how many registrations for pushes came back.
    func report(backup: StoreBackup?, restored: StoreBackup? = nil, pushes: Int = 0, setAside: String?) {
        let aside = setAside ?? damaged
        if isJSON {
            let members: [(String, JSON)] = [
                ("restored", JSON(restored?.path)), ("restored-push-registrations", .integer(Int64(clamping: pushes))),
                ("backup", JSON(backup?.path)), ("set-aside", JSON(aside)),
            ]
            return Output.write(JSON.object(members).text + "\n")
        }
        if let restored { Output.write(catalog.text("restored %1$s", restored.text()) + "\n") }
        if pushes > 0 {
            Output.write(
                catalog.text(
                    "%1$s registration for pushes is back", "%1$s registrations for pushes are back", count: UInt64(clamping: pushes))
                    + "\n")
        }
        if let backup { Output.write(catalog.text("the former queue is kept in %1$s", backup.text()) + "\n") }
        if let aside {
            Output.write(
                catalog.text("the former queue, which cannot be read, is kept for a day in %1$s", TerminalText.plain(aside)) + "\n")
        }
    }
}

extension StoreBackup {
    /// "/home/you/queue.db (12 downloads, 1.2 MiB)".
    func text(_ catalog: Catalog = todoku.catalog) -> String {
        let count = UInt64(clamping: downloads)
        if pushRegistrations > 0 {
            let pushes = catalog.text(
                "%1$s registration for pushes", "%1$s registrations for pushes", count: UInt64(clamping: pushRegistrations))
            return catalog.text(
                "%2$s (%1$s download, %4$s, %3$s)", "%2$s (%1$s downloads, %4$s, %3$s)", count: count, TerminalText.plain(path),
                catalog.size(size), pushes)
        }
        return catalog.text(
            "%2$s (%1$s download, %3$s)", "%2$s (%1$s downloads, %3$s)", count: count, TerminalText.plain(path), catalog.size(size))
    }

    var json: [(String, JSON)] {
        [
            ("path", .string(path)), ("downloads", .integer(downloads)), ("unfinished", .integer(unfinished)),
            ("push-registrations", .integer(Int64(clamping: pushRegistrations))), ("size", .unsigned(size)),
        ]
    }
}
