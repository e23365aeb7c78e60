internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Carries out clicks that arrive through the desktop: on our desktop entry, on the actions of the entry, and on toasts of an earlier
/// process.
@BusActor final class ApplicationActions {
    /// How long after a download's end `Activate`, which names no download, may open its file. Older toasts are seldom still on screen.
    static let freshFor: Duration = .seconds(12 * 3600)
    /// The number of newest files that are tried, because the newest may have been deleted.
    private static let mostLookedFor = 16

    private let list: DownloadList
    private let commands: Commands
    private let admission: Admission
    private let desktopWork: DesktopWork
    private let opener: Opener
    /// Toasts of downloads that ended before this time can reach this process only by `Activate`.
    private let begun = WallTime.now

    init(list: DownloadList, commands: Commands, admission: Admission, desktopWork: DesktopWork, opener: Opener) {
        (self.list, self.commands, self.admission) = (list, commands, admission)
        (self.desktopWork, self.opener) = (desktopWork, opener)
    }

    // MARK: org.freedesktop.Application

    /// Opens the file of the toast that was most likely clicked. Otherwise shows the newest file in its folder, or the default folder.
    func activate(_ token: String?, _ reply: Reply<Void>) throws(Refusal) {
        let (newest, isLast) = list.newestToasted(Self.mostLookedFor)
        let now = WallTime.now
        let folder = list.defaultDirectory
        try open(reply) { [self] in
            let paths = newest.map(\.path)
            guard let index = await first(of: paths) else { return await opener.openFolder(folder, activationToken: token) }
            guard index == 0, isLast, isAnswered(newest[0].number, now) else {
                return await opener.showInFolder(paths[index], activationToken: token)
            }
            return await open(newest[0].number, paths[0], token)
        }
    }

    /// Whether a call of `Activate`, which names no download, can come from the toast of this download, whose file is not opened yet.
    private func isAnswered(_ number: DownloadNumber, _ now: WallTime) -> Bool {
        guard let record = list.scheduler[number]?.record, let end = record.endedAt, end < begun, end > now + (.zero - Self.freshFor)
        else { return false }
        return record.batch == nil && record.options.activate == nil && !record.reminders.isAcknowledged
    }

    /// Downloads URLs, and opens files of finished downloads. Refuses all URIs if one is wrong.
    func open(_ uris: [String], _ token: String?, _ reply: Reply<Void>) throws {
        guard !uris.isEmpty else { throw Refusal(.invalidOption, "Open takes at least one URI.") }
        guard uris.count <= Limits.batchItems else {
            throw Refusal(.limitExceeded, "Open takes at most \(Limits.batchItems) URIs, not \(uris.count).")
        }
        var (urls, files): ([String], [ScheduledDownload]) = ([], [])
        for (index, uri) in uris.enumerated() {
            do throws(Refusal) {
                guard uri.prefix(5).lowercased() == "file:" else {
                    _ = try DownloadURL(uri)
                    urls.append(uri)
                    continue
                }
                guard let path = localPath(ofFileURI: uri), let entry = list.finished(at: path) else {
                    throw Refusal(.notAllowed, "\(shown(uri)) is not the file of a finished download.")
                }
                files.append(entry)
                guard files.count <= Limits.openedFiles else {
                    throw Refusal(.limitExceeded, "At most \(Limits.openedFiles) files are opened by one call.")
                }
            } catch { throw uris.count > 1 ? error.about(item: index) : error }
        }
        if !files.isEmpty { try desktopWork.checkRoom() }
        let options: [String: Variant] = ["app": .string(BusName.service)]
        switch urls.count {
        case 0:
            return try open(reply) { [self] in
                var outcome = Opener.Outcome.opened
                for entry in files { if await open(entry, token) == .failed { outcome = .failed } }
                return outcome
            }
        case 1: try admission.admit(url: urls[0], options: options, .path(reply.withoutValue()))
        default:
            var rest = urls[...]
            try admission.admit(
                urls.count, { rest.popFirst().map { ($0, [:]) } }, options: options, reply.withoutValue())
        }
        for entry in files { desktopWork.start { [self] in _ = await open(entry, token) } }
    }

    /// Performs an action of our entry, or of a toast.
    func perform(_ name: String, _ parameters: [Variant], _ token: String?, _ reply: Reply<Void>) throws {
        guard let action = ApplicationAction(rawValue: name) else {
            let names = ApplicationAction.allCases.map(\.rawValue).joined(separator: ", ")
            throw Refusal(.invalidOption, "There is no action “\(shown(name))”; there are \(names).")
        }
        guard action.isAboutObject else {
            guard parameters.isEmpty else { throw Refusal(.invalidOption, "The action \(name) takes no parameter.") }
            switch action {
            case .pauseAll: commands.events.decide(.pauseAll)
            case .resumeAll: commands.events.decide(.resumeAll)
            default:
                let folder = list.defaultDirectory
                return try open(reply) { [self] in await opener.openFolder(folder, activationToken: token) }
            }
            return commands.answerChange(reply)
        }
        guard parameters.count == 1, let path = objectPath(parameters[0]) else {
            throw Refusal(.invalidOption, "The action \(name) takes one parameter: the object path of a download, of the type o or s.")
        }
        if let batch = list.batch(at: path, for: reply.call.caller) {
            if action == .retry {
                guard try commands.retryFailed(of: batch.entry, for: reply.call, answer: { [commands] in commands.answerChange(reply) })
                else {
                    throw Refusal(.invalidState, "No download of the batch has failed.")
                }
                return
            }
            let folder = batch.record.directory
            return try open(reply) { [self] in await opener.openFolder(folder, activationToken: token) }
        }
        guard let download = list.download(at: path, for: reply.call.caller) else {
            throw Refusal(.noSuchObject, "There is no download \(shown(path)).")
        }
        if action == .retry { return try commands.retry(download, reply) }
        if download.record.isToDescriptor {
            throw Refusal(.invalidState, "The file is its caller’s own descriptor; Todoku has no path to it.")
        }
        let entry = download.entry
        if action == .open, download.state != .finished {
            throw Refusal(.invalidState, "A download that is \(download.shownState.name) has no finished file.")
        }
        try open(reply) { [self] in
            if action == .open { return await open(entry, token) }
            guard entry.state == .finished, let file = entry.record.path else {
                return await opener.openFolder(entry.record.directory, activationToken: token)
            }
            return await opener.showInFolder(file, activationToken: token)
        }
    }

    private func objectPath(_ parameter: Variant) -> String? {
        switch parameter {
        case .objectPath(let path): path.value
        case .string(let text): text
        case .variant(let inner): objectPath(inner)
        default: nil
        }
    }

    private func open(_ entry: ScheduledDownload, _ token: String?) async -> Opener.Outcome {
        guard let path = entry.record.path, !path.isEmpty else { return .failed }
        return await open(entry.number, path, token)
    }

    private func open(_ number: DownloadNumber, _ path: String, _ token: String?) async -> Opener.Outcome {
        let record = list.scheduler[number]?.record
        let (identity, isSandboxed) = (record?.resume?.identity, record?.options.isSandboxed ?? false)
        let outcome = await opener.open(path, activationToken: token, byPortal: isSandboxed) { Commit.proof($0, identity) != .other }
        if outcome != .failed { commands.noteOpened(number) }
        return outcome
    }

    /// The index of the first of `paths` that exists.
    private func first(of paths: [String]) async -> Int? {
        for (index, path) in paths.enumerated()
        where await DiskPool.shared.value(at: .path(path), within: Opener.patience, { access(path, F_OK) == 0 }) == true {
            return index
        }
        return nil
    }

    private func open(_ reply: Reply<Void>, _ work: @escaping @BusActor @Sendable () async -> Opener.Outcome) throws(Refusal) {
        try desktopWork.checkRoom()
        desktopWork.start {
            if await work() == .failed {
                reply.fail(
                    DBusError.failed(
                        "Nothing could open it: there is no file manager, and xdg-open (package xdg-utils) is missing or failed."))
            } else {
                reply()
            }
        }
    }
}

extension DownloadList {
    /// The newest finished downloads that had a toast, at most `most`, newest first; and whether no later download failed with a toast.
    func newestToasted(_ most: Int) -> (newest: [(number: DownloadNumber, path: String)], isLast: Bool) {
        var newest: [(number: DownloadNumber, path: String)] = []
        var isLast = true
        for number in scheduler.ended.ordered.reversed() {
            guard let record = scheduler[number]?.record, record.options.notify != .never else { continue }
            if newest.isEmpty, record.state.failure != nil { isLast = false }
            guard record.state == .finished, !record.isUnchanged, let path = record.path, !path.isEmpty else { continue }
            newest.append((number, path))
            if newest.count == most { break }
        }
        return (newest, isLast)
    }

    /// The newest finished download whose file is at `path`.
    func finished(at path: String) -> ScheduledDownload? {
        for number in scheduler.ended.ordered.reversed() {
            if let entry = scheduler[number], entry.state == .finished, entry.record.path.isSameBytes(as: path) { return entry }
        }
        return nil
    }
}
