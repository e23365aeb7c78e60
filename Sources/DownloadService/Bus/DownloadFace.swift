internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// `org.todoku.Download1`: one download on the bus.
enum DownloadFace {
    static let face = Face<ManagedDownload>(
        Download.interface, xml: { InterfaceXML.element(of: Download.interface) }, methods: methods, properties: properties,
        signals: [
            Download.resumedAt.name: Download.resumedAt.signature, Download.progress.name: Download.progress.signature,
            Download.finished.name: Download.finished.signature, Download.completed.name: Download.completed.signature,
        ], permits: { DocumentedErrors.permits($1, of: $0, in: Download.interface) })

    private static let methods: [Row<ManagedDownload>] = [
        Row(Download.pause) { download, _, reply in try apply(.pause, download, reply) },
        Row(Download.resume) { download, _, reply in
            try reply.refuseWithoutNetwork()
            try reply.refuseSandboxedPlace(of: download)
            try apply(.resume, download, reply)
        },
        Row(Download.cancel) { download, _, reply in try apply(.cancel, download, reply) },
        Row(Download.retry) { download, _, reply in try retry(download, reply) },
        Row(Download.remove) { download, deleteFile, reply in try download.downloader.remove(download, deletingFile: deleteFile, reply) },
        Row(Download.trash) { download, _, reply in try download.downloader.trash(download, reply) },
        Row(Download.wait) { download, options, reply in
            if let key = options.keys.sorted().first { throw Refusal(.invalidOption, "Wait has no option “\(shown(key))”.") }
            // Through the journal: an end that is not on disk yet has not been announced.
            let journal = download.downloader.journal
            if let failure = download.state.endFailure { return journal.post(reply.message(failing: failure)) }
            if download.state == .finished { return journal.post(reply.message(download.record.path ?? "")) }
            try download.downloader.callers.wait(reply, for: download)
        },
        Row(Download.acknowledge) { download, _, reply in
            guard download.downloader.decide({ ledger, _ in ledger.acknowledge(download.entry) }) else {
                throw Refusal(.invalidState, "A download that is \(download.state.name) has not ended and cannot be acknowledged.")
            }
            download.downloader.answerChange(reply)
        },
        Row(Download.replaceUrl) { download, arguments, reply in
            try reply.refuseWithoutNetwork()
            let link = try FreshLink(arguments.0, decoding: arguments.1)
            try SandboxRules.checkRenewal(of: download.record.options, by: link.url, from: reply.call.caller, download.downloader.settings)
            try refuseUnreadable(download)
            if download.state.hasEnded { try refuseWithoutDescriptor(download) }
            try download.downloader.admission.checkRoom(for: Admission.Load(renewing: link, from: reply.call.caller))
            try reply.refuseSandboxedPlace(of: download)
            try download.downloader.decide { ledger, now throws(IllegalTransition) in
                try ledger.replaceUrl(download.entry, link, isFromSandbox: reply.call.caller != .user, now: now)
            }
            download.downloader.answerChange(reply)
        },
        Row(Download.getUrl) { download, _, reply in reply(download.record.url) },
        Row(Download.getMetadata) { download, _, reply in
            reply(download.record.options.metadata.isEmpty ? [:] : Message.value(from: download.record.options.metadata) ?? [:])
        },
        Row(Download.moveTo) { download, place, reply in
            // A sandboxed app may change the order of its own downloads, but not whose turn it is.
            try download.downloader.move(download, to: place, takesTurn: reply.call.caller == .user)
            download.downloader.journal.answer(reply, ())
        },
        Row(Download.openFile) { download, _, reply in
            if download.record.isToDescriptor {
                throw Refusal(.invalidState, "The file is its caller’s own descriptor; Todoku has no path to it.")
            }
            guard download.state == .finished, let path = download.record.path else {
                throw Refusal(.invalidState, "A download that is \(download.state.name) has no finished file.")
            }
            // Another file may have the name by now (option `skip`, or moved there since). A sandboxed app must not read that file.
            openFile(path, download.record.resume?.identity, isAny: reply.call.caller == .user, reply)
        },
    ]

    @BusActor static func retry(_ download: ManagedDownload, _ reply: Reply<Void>) throws {
        try reply.refuseWithoutNetwork()
        try refuseUnreadable(download)
        try refuseWithoutDescriptor(download)
        try reply.refuseSandboxedPlace(of: download)
        try apply(.retry, download, reply)
    }

    @BusActor private static func apply(_ event: DownloadEvent, _ download: ManagedDownload, _ reply: Reply<Void>) throws {
        try download.downloader.decide { ledger, now throws(IllegalTransition) in
            try ledger.apply(event, to: download.entry, now: now)
            ledger.schedule(now: now)
        }
        download.downloader.answerChange(reply)
    }

    /// - Parameter isAny: whether the file may be another than the one with `identity`.
    @BusActor private static func openFile(_ path: String, _ identity: FileIdentity?, isAny: Bool, _ reply: Reply<FileDescriptor>) {
        DiskPool.shared.perform(at: .path(path), within: DiskPatience.file, late: closeLate) {
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

    /// Nobody waits for the opened descriptor any more.
    @Sendable private static func closeLate(_ result: Result<Int32, Refusal>) {
        if case .success(let descriptor) = result { DiskPool.shared.close(descriptor) }
    }

    private static func openFailed(_ path: String, _ code: Int32) -> Refusal {
        code == ENOENT || code == ELOOP
            ? Refusal(.noSuchObject, "\(path) is not there any more.")
            : Refusal(.permissionDenied, "\(path) cannot be opened: \(String(cString: strerror(code))).")
    }

    private static let properties: [PropertyRow<ManagedDownload>] = [
        PropertyRow(Download.url) { $0.redactedUrl },
        PropertyRow(Download.app) { $0.record.options.app },
        PropertyRow(Download.tag) { $0.record.options.tag },
        PropertyRow(Download.state) { $0.shownState.name },
        PropertyRow(Download.waitReason) { download in
            if case .waiting(let reason, _) = download.shownState { reason.rawValue } else { "" }
        },
        PropertyRow(Download.waitUntil) { download in
            if case .waiting(_, let until?) = download.shownState { until.microseconds } else { 0 }
        },
        PropertyRow(Download.ahead) { UInt32(clamping: $0.downloader.ledger.ahead(of: $0.entry, now: .now)) },
        PropertyRow(Download.received) { $0.received },
        PropertyRow(Download.total) { $0.total.wireTotal },
        PropertyRow(Download.speed) { $0.speed },
        PropertyRow(Download.fraction) { wireFraction(received: $0.received, total: $0.total) },
        // The folder of a caller's own file is unknown.
        PropertyRow(Download.directory) { $0.record.isToDescriptor ? "" : $0.record.directory },
        PropertyRow(Download.fileName) { $0.record.fileName ?? $0.record.options.fileName ?? "" },
        PropertyRow(Download.mediaType) { $0.record.mediaType ?? "" },
        PropertyRow(Download.path) { $0.record.path ?? "" },
        PropertyRow(Download.error) { download in
            EndError(of: download.record)
        },
        PropertyRow(Download.attempts) { $0.record.attempts },
        PropertyRow(Download.connections) { $0.state == .active ? 1 : 0 },
        PropertyRow(Download.queuedAt) { $0.record.queuedAt.microseconds },
        PropertyRow(Download.startedAt) { $0.record.startedAt?.microseconds ?? 0 },
        PropertyRow(Download.endedAt) { $0.record.endedAt?.microseconds ?? 0 },
        PropertyRow(Download.batch) { $0.record.batch.map { BusName.path(ofBatch: $0) } ?? ObjectPath("/") },
        PropertyRow(Download.priority, { $0.record.options.priority }) { download, priority, reply in
            try changeable(download)
            if priority > 0 { try reply.refuseSandboxed(Sandbox.mayNotGoFirst) }
            download.downloader.decide { ledger, _ in ledger.setPriority(download.entry, priority) }
            download.downloader.journal.answer(reply, ())
        },
        PropertyRow(Download.speedLimit, { $0.record.options.speedLimit ?? 0 }) { download, limit, reply in
            try changeable(download)
            download.downloader.setSpeedLimit(download, limit == 0 ? nil : limit)
            download.downloader.journal.answer(reply, ())
        },
    ]

    /// Refuses a download whose record could not be read back: its unknown options, such as the checksum, would be ignored.
    @BusActor private static func refuseUnreadable(_ download: ManagedDownload) throws(Refusal) {
        if download.state.failure?.name == .storage {
            throw Refusal(.invalidState, "What was asked for could not be read back; queue the download anew.")
        }
    }

    @BusActor private static func refuseWithoutDescriptor(_ download: ManagedDownload) throws(Refusal) {
        if download.record.isToDescriptor, download.state.failure != nil || download.state == .cancelled {
            throw Refusal(.invalidState, "Its descriptor is closed; call DownloadToFd again.")
        }
    }

    @BusActor private static func changeable(_ download: ManagedDownload) throws(Refusal) {
        guard !download.state.hasEnded else { throw Refusal(.invalidState, "A download that is \(download.state.name) cannot be changed.") }
    }
}
