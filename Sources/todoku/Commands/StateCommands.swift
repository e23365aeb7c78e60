internal import ArgumentParser
internal import DownloadModel
internal import DownloadStore
internal import EventLoop
internal import Localization
internal import Upkeep

struct BackupCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup", abstract: "Copy the queue to a file.",
        discussion: """
            The copy has the downloads with their outcomes, the settings, the rules for hosts and the registered assets, as they are at one \
            moment. It also has the registrations for pushes with their keys, which they cannot do without. The service need not run, and \
            may. The file is for you alone (mode 0600). It has no passwords, user names, request headers, cookies and bodies of requests, \
            unless you give --secrets. It always has the URLs with their queries. Private downloads are left out. ‘todoku restore’ reads it.

            EXAMPLES:
              todoku backup queue.db
              todoku backup --secrets ~/safe/queue.db
            """)

    @Argument(help: "The new file; nothing may be there.", completion: .file()) var file: String
    @Flag(help: "Also copy passwords, user names, request headers, cookies and bodies of requests.") var secrets = false
    @OptionGroup var output: OutputArguments

    func validate() throws { try LocalPath.refuseStandardOutput(file, for: "todoku backup") }

    func run() throws {
        let (withSecrets, isJSON) = (secrets, output.json)
        let path = Program.require(json: isJSON) { () throws(CommandFailure) in try LocalPath.absolute(file) }
        StateChange.run(json: isJSON) { () async throws(CommandFailure) -> ExitStatus in
            try await StateChange.refuseOtherFolder()
            let pushes = try StateChange.readPushes()
            let backup = try StateChange.store { () throws(StoreError) in
                try Store.backUp(folder: StateFiles.folder, to: path, withSecrets: withSecrets, attachments: pushes.attachments)
            }
            if isJSON {
                Output.write(JSON.object(backup.json + [("secrets", .bool(withSecrets))]).text + "\n")
            } else {
                Output.write(backup.text() + "\n")
            }
            return .success
        }
    }
}

struct ResetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reset", abstract: "Delete the queue and all settings, and keep a copy.",
        discussion: """
            Cancels the downloads that have not ended, and deletes the queue with its outcomes, the settings, the rules for hosts, the \
            registered assets and the cached copies. Ends the registrations for pushes. Apps get pushes again once they have registered \
            again, as most do at their start. Files that have arrived stay, and so do unpacked assets. A copy of the queue without passwords \
            is kept beside it; ‘todoku restore’ reads it. The command asks before, unless you give --yes.

            EXAMPLES:
              todoku reset
              todoku reset --yes
            """)

    @Flag(name: .shortAndLong, help: "Do not ask.") var yes = false
    @OptionGroup var output: OutputArguments

    func run() throws {
        let (isConfirmed, isJSON) = (yes, output.json)
        StateChange.run(json: isJSON) { () async throws(CommandFailure) -> ExitStatus in
            var change = try await StateChange.begin(json: isJSON)
            guard change.isNeeded else {
                if isJSON {
                    change.report(backup: nil, setAside: nil)
                } else {
                    Output.complain(catalog.text("there is no queue, so there is nothing to reset"))
                }
                return .success
            }
            try change.confirm(isConfirmed, replacingBy: nil)
            await change.salvage()
            let earlier = try change.backUp()
            if earlier != nil { await change.endPushes() }
            await change.cancelAll()
            let end: (backup: StoreBackup?, setAside: String?)
            do throws(CommandFailure) {
                end = try await change.withoutService { (pushes: borrowing PushState) throws(StoreError) in
                    let end = try Store.reset(
                        folder: StateFiles.folder, settingAside: earlier == nil, refreshing: earlier?.path,
                        attachments: change.attachments(pushes))
                    // Without a copy, these files are the only ones.
                    if earlier != nil { try pushes.delete() }
                    return end
                }
            } catch {
                StateChange.complain(kept: earlier)
                throw error
            }
            change.report(backup: end.backup, setAside: end.setAside)
            return .success
        }
    }
}

struct RestoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "restore", abstract: "Replace the queue by a backup.",
        discussion: """
            The present queue is lost; a copy of it without passwords is kept beside it. Downloads that were unfinished at the time of the \
            backup continue, from their beginning if their bytes are gone. What has arrived since is downloaded again. Registered assets stay \
            as they are now. So do registrations for pushes; those that are gone come back. The command asks before, unless you give --yes.

            EXAMPLES:
              todoku restore queue.db
              todoku restore --yes ~/.local/state/todoku/backup-20261128-101500.db
            """)

    @Argument(help: "A file of ‘todoku backup’ or ‘todoku reset’.", completion: .file()) var file: String
    @Flag(name: .shortAndLong, help: "Do not ask.") var yes = false
    @OptionGroup var output: OutputArguments

    func run() throws {
        let (file, isConfirmed, isJSON) = (file, yes, output.json)
        StateChange.run(json: isJSON) { () async throws(CommandFailure) -> ExitStatus in
            let path = try LocalPath.absolute(file)
            // Before anything is lost.
            let restored = try StateChange.store { () throws(StoreError) in try Store.inspect(backup: path) }
            let pushes = try StateChange.store { () throws(StoreError) in try PushRecords(restored.attachments, of: path) }
            var change = try await StateChange.begin(json: isJSON)
            if change.isNeeded { try change.confirm(isConfirmed, replacingBy: restored) }
            await change.salvage()
            let end = try await change.withoutService(makingPushFolder: !pushes.isEmpty) {
                (state: borrowing PushState) throws(StoreError) in
                let missing = try state.missing(from: pushes)
                let copy = change.backupPath
                let end = try Store.restore(
                    folder: StateFiles.folder, from: path, keeping: copy, settingAside: copy == nil,
                    attachments: change.attachments(state))
                do throws(StoreError) { try state.restore(missing, from: pushes) } catch {
                    StateChange.complain(kept: end.backup)
                    throw error
                }
                return (end: end, pushes: missing.count)
            }
            change.report(backup: end.end.backup, restored: end.end.restored, pushes: end.pushes, setAside: end.end.setAside)
            if end.pushes > 0 { await change.tellDistributor() }
            return .success
        }
    }
}
