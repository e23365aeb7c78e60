internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// A download on the bus, with the commands that its calls use.
@BusActor final class DownloadObject {
    let download: ManagedDownload
    let commands: Commands

    init(_ download: ManagedDownload, _ commands: Commands) { (self.download, self.commands) = (download, commands) }
}

/// `org.todoku.Download1`: one download on the bus.
enum DownloadFace {
    /// The properties, for reading them outside a call to the download's object.
    static let readable = Face<ManagedDownload>(
        Download.interface, xml: { InterfaceXML.element(of: Download.interface) }, methods: [], properties: properties)

    static let face = Face<DownloadObject>(
        Download.interface, xml: { InterfaceXML.element(of: Download.interface) }, methods: methods,
        properties: properties.map { row in writable.first { $0.name == row.name } ?? row.of { $0.download } },
        signals: [
            Download.resumedAt.name: Download.resumedAt.signature, Download.progress.name: Download.progress.signature,
            Download.finished.name: Download.finished.signature, Download.completed.name: Download.completed.signature,
        ], permits: { DocumentedErrors.permits($1, of: $0, in: Download.interface) })

    private static let methods: [Row<DownloadObject>] = [
        Row(Download.pause) { object, _, reply in try object.commands.steer(object.download, .pause, reply) },
        Row(Download.resume) { object, _, reply in
            try reply.refuseWithoutNetwork()
            try object.commands.refuseSandboxedPlace(of: object.download, reply)
            try object.commands.steer(object.download, .resume, reply)
        },
        Row(Download.cancel) { object, _, reply in try object.commands.steer(object.download, .cancel, reply) },
        Row(Download.retry) { object, _, reply in try object.commands.retry(object.download, reply) },
        Row(Download.remove) { object, deleteFile, reply in try object.commands.remove(object.download, deletingFile: deleteFile, reply) },
        Row(Download.trash) { object, _, reply in try object.commands.trash(object.download, reply) },
        Row(Download.wait) { object, options, reply in
            if let key = options.keys.sorted().first { throw Refusal(.invalidOption, "Wait has no option “\(shown(key))”.") }
            let (download, journal) = (object.download, object.commands.journal)
            guard download.state.hasEnded else { return try object.commands.callers.wait(reply, for: download) }
            journal.answerEnd(
                reply, isHeld: journal.gate.isWaiting(download.number),
                download.state.endFailure.map { reply.message(failing: $0) } ?? reply.message(download.record.path ?? ""))
        },
        Row(Download.acknowledge) { object, _, reply in
            guard object.download.state.hasEnded else {
                throw Refusal(.invalidState, "A download that is \(object.download.state.name) has not ended and cannot be acknowledged.")
            }
            object.commands.events.decide(.acknowledge(object.download.entry))
            object.commands.answerChange(reply)
        },
        Row(Download.replaceUrl) { object, arguments, reply in
            try reply.refuseWithoutNetwork()
            let options = object.download.record.options
            guard options.postData == nil, !options.isPostSent else {
                throw Refusal(.invalidState, "A request with a body (option post-data) takes no fresh link; queue a new download.")
            }
            let link = try FreshLink(arguments.0, decoding: arguments.1)
            try SandboxRules.checkRenewal(
                of: options, by: link.url, from: reply.call.caller, object.commands.list.settings)
            try object.download.refuseUnreadable()
            if object.download.state.hasEnded { try object.download.refuseWithoutDescriptor() }
            try object.commands.admission.checkRoom(for: Admission.Load(renewing: link, from: reply.call.caller))
            // Another manifest could bring anything into the folder of an asset that the user has registered for the app.
            try reply.refuseSandboxedPlace(of: [object.download.entry], default: object.commands.list.defaultDirectory)
            try object.commands.executor.ask(.replaceUrl(object.download.entry, link, isFromSandbox: reply.call.caller != .user))
            object.commands.answerChange(reply)
        },
        Row(Download.getUrl) { object, _, reply in reply(object.download.record.url) },
        Row(Download.getMetadata) { object, _, reply in
            let metadata = object.download.record.options.metadata
            reply(metadata.isEmpty ? [:] : Message.value(from: metadata) ?? [:])
        },
        Row(Download.setMetadata) { object, metadata, reply in try object.commands.setMetadata(object.download, metadata, reply) },
        Row(Download.moveTo) { object, place, reply in
            // A sandboxed app may change the order of its own downloads, but not whose turn it is.
            try object.commands.move(object.download, to: place, takesTurn: reply.call.caller == .user)
            object.commands.journal.answer(reply, ())
        },
        Row(Download.openFile) { object, _, reply in
            if object.download.record.isToDescriptor {
                throw Refusal(.invalidState, "The file is its caller’s own descriptor; Todoku has no path to it.")
            }
            if object.download.record.isUnpacked {
                throw Refusal(.invalidState, "The archive was unpacked: the property Path names its folder, which has no file of its own.")
            }
            guard object.download.state == .finished, let path = object.download.record.path else {
                throw Refusal(.invalidState, "A download that is \(object.download.state.name) has no finished file.")
            }
            // Another file may have the name by now: an existing file (`if-exists` `skip`), or a file that was moved there later. A
            // sandboxed app must not read that file.
            let identity = object.download.record.resume?.identity
            openFile(path, identity, isAny: reply.call.caller == .user, object.commands.diskCalls, reply)
        },
    ]

    /// - Parameter isAny: whether a file without this `identity` is accepted, too.
    @BusActor private static func openFile(
        _ path: String, _ identity: FileIdentity?, isAny: Bool, _ diskCalls: DiskCalls, _ reply: Reply<FileDescriptor>
    ) {
        diskCalls.perform(at: .path(path), within: DiskPatience.file, late: closeLate) {
            let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
            guard descriptor >= 0 else { return Result<Int32, Refusal>.failure(openFailed(path, errno)) }
            guard isAny || Commit.isFinished(descriptor, identity) else {
                close(descriptor)
                return .failure(
                    Refusal(.notAllowed, "\(path) is not the file that was downloaded; an app in a sandbox may open that only."))
            }
            return .success(descriptor)
        } then: { result in
            switch result ?? .failure(.silentDisk(of: path)) {
            case .success(let descriptor):
                reply(FileDescriptor(descriptor))
                DiskPool.shared.close(descriptor)  // libdbus has its own duplicate
            case .failure(let refusal): reply.fail(refusal)
            }
        }
    }

    /// Closes a descriptor that was opened after its caller had stopped waiting.
    @Sendable private static func closeLate(_ result: Result<Int32, Refusal>) {
        if case .success(let descriptor) = result { DiskPool.shared.close(descriptor) }
    }

    private static func openFailed(_ path: String, _ code: Int32) -> Refusal {
        code == ENOENT || code == ELOOP
            ? Refusal(.noSuchObject, "\(path) no longer exists.")
            : Refusal(.permissionDenied, "\(path) cannot be opened: \(String(cString: strerror(code))).")
    }

    private static let properties: [PropertyRow<ManagedDownload>] = [
        PropertyRow(Download.url) { $0.redactedUrl },
        PropertyRow(Download.app) { $0.record.options.app },
        PropertyRow(Download.token) { $0.record.options.token ?? "" },
        PropertyRow(Download.tag) { $0.record.options.tag },
        PropertyRow(Download.state) { $0.shownState.name },
        PropertyRow(Download.waitReason) { download in
            if case .waiting(let reason, _) = download.shownState { reason.rawValue } else { "" }
        },
        PropertyRow(Download.waitUntil) { download in
            if case .waiting(_, let until?) = download.shownState { until.microseconds } else { 0 }
        },
        PropertyRow(Download.ahead) { UInt32(clamping: $0.ahead) },
        PropertyRow(Download.received) { $0.received },
        PropertyRow(Download.total) { $0.total.wireTotal },
        PropertyRow(Download.speed) { $0.speed },
        PropertyRow(Download.fraction) { wireFraction(received: $0.received, total: $0.total) },
        PropertyRow(Download.extracted) { $0.state == .extracting ? $0.extracted ?? 0 : -1 },
        PropertyRow(Download.directory) { $0.shownDirectory },
        PropertyRow(Download.fileName) { $0.record.fileName ?? $0.record.options.fileName ?? "" },
        PropertyRow(Download.mediaType) { $0.record.mediaType ?? "" },
        PropertyRow(Download.path) { $0.record.path ?? "" },
        PropertyRow(Download.provedBy) { $0.state == .finished ? $0.record.proof?.rawValue ?? "" : "" },
        PropertyRow(Download.error) { download in
            EndError(of: download.record)
        },
        PropertyRow(Download.attempts) { $0.record.attempts },
        PropertyRow(Download.connections) { $0.state == .active ? max(1, $0.connections) : 0 },
        PropertyRow(Download.sources) { SourceList($0.shownSources.map { SourceStatus($0.source, speed: $0.speed) }) },
        PropertyRow(Download.acknowledged) { $0.record.reminders.isAcknowledged },
        PropertyRow(Download.queuedAt) { $0.record.queuedAt.microseconds },
        PropertyRow(Download.startedAt) { $0.record.startedAt?.microseconds ?? 0 },
        PropertyRow(Download.endedAt) { $0.record.endedAt?.microseconds ?? 0 },
        PropertyRow(Download.batch) { $0.record.batch.map { BusName.path(ofBatch: $0) } ?? ObjectPath("/") },
        PropertyRow(Download.priority) { $0.record.options.priority },
        PropertyRow(Download.speedLimit) { $0.record.options.speedLimit ?? 0 },
        PropertyRow(Download.allowMetered) { $0.record.options.allowsMetered },
    ]

    private static let writable: [PropertyRow<DownloadObject>] = [
        PropertyRow(Download.priority, { $0.download.record.options.priority }) { object, priority, reply in
            try changeable(object.download)
            if priority > 0 { try reply.refuseSandboxed(Sandbox.mayNotGoFirst) }
            object.commands.events.decide(.setPriority(object.download.entry, priority))
            object.commands.journal.answer(reply, ())
        },
        PropertyRow(Download.speedLimit, { $0.download.record.options.speedLimit ?? 0 }) { object, limit, reply in
            try changeable(object.download)
            object.commands.setSpeedLimit(object.download, limit == 0 ? nil : limit)
            object.commands.journal.answer(reply, ())
        },
        PropertyRow(Download.allowMetered, { $0.download.record.options.allowsMetered }) { object, allows, reply in
            try changeable(object.download)
            object.commands.events.decide(.setAllowsMetered(object.download.entry, allows))
            object.commands.answerChange(reply)
        },
        PropertyRow(Download.directory, { $0.download.shownDirectory }) { object, directory, reply in
            try object.commands.setDirectory(object.download, directory, reply)
        },
    ]

    @BusActor private static func changeable(_ download: ManagedDownload) throws(Refusal) {
        guard !download.state.hasEnded else { throw Refusal(.invalidState, "A download that is \(download.state.name) cannot be changed.") }
    }
}

extension ManagedDownload {
    /// The folder to show. Empty for a caller's descriptor, whose folder is unknown.
    fileprivate var shownDirectory: String { record.isToDescriptor ? "" : record.directory }

    /// Refuses a download whose record could not be read back, because its lost options, such as the checksum, would be ignored.
    func refuseUnreadable() throws(Refusal) {
        if state.failure?.name == .storage {
            throw Refusal(.invalidState, "The download’s options could not be read back from the database; queue the download again.")
        }
    }

    func refuseWithoutDescriptor() throws(Refusal) {
        if record.isToDescriptor, state.failure != nil || state == .cancelled {
            throw Refusal(.invalidState, "The caller’s descriptor is closed; call DownloadToFd again.")
        }
    }
}
