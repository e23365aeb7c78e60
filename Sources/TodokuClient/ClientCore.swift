internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// The client's side of the bus: one connection with its calls and watches.
@BusActor final class ClientCore {
    /// Most time for an answer: the bus may have to start the service, and the service may have to read in a long list.
    private static let callTimeout: Duration = .seconds(60)
    /// How many times in a row a call is repeated if the service goes away before it answers.
    static let mostLosses = 6
    /// A service that ran for this long before it went away does not fail at each start.
    static let steadyTime: Duration = .seconds(30)

    let connection: Connection
    private var watches: [UInt64: WatchState] = [:]
    private var presences: [UInt64: Presence] = [:]
    private var assetWatches: [UInt64: AssetWatch] = [:]
    private var nextWatch: UInt64 = 0
    private var isBusGone = false
    /// Calls that may take long, of the type `LongCall`, by `key`.
    var longCalls: [[UInt8]: any JoinableCall] = [:]
    /// The applications that this client reports as being in front.
    private var inFront: Set<String> = []
    private var foregroundWatch: Connection.Subscription?
    /// As `DownloaderClient.reportSlowAnswers` sets it.
    var slowAnswers: (delay: Duration, report: @Sendable () -> Void)?

    private init(_ connection: Connection) { self.connection = connection }

    static func connect(to address: String?) async throws(ClientError) -> ClientCore {
        do throws(DBusError) {
            let connection = if let address { try Connection.open(address: address) } else { try Connection.session() }
            let core = ClientCore(connection)
            core.connection.onDisconnect = { [weak core] in core?.busWentAway() }
            return core
        } catch {
            throw .busUnavailable(error)
        }
    }

    /// The client was released. Only watches, and tasks that wait, keep the connection open from now on.
    func clientReleased() { for call in longCalls.values { call.endJoining() } }

    // MARK: Calls

    /// - Parameter repeatable: whether the call may be repeated if the service goes away before it answers.
    func call<In, Out>(_ method: MethodOf<In, Out>, _ arguments: In, repeatable: Bool = false) async throws(ClientError) -> Out {
        try await call(method, arguments, at: BusName.managerPath, repeatable: repeatable)
    }

    func call<In, Out>(
        _ method: MethodOf<In, Out>, _ arguments: In, at download: DownloadReference, repeatable: Bool = false
    ) async throws(ClientError) -> Out {
        try await call(method, arguments, at: download.objectPath, repeatable: repeatable)
    }

    func call<In, Out>(
        _ method: MethodOf<In, Out>, _ arguments: In, at path: ObjectPath, repeatable: Bool
    ) async throws(ClientError) -> Out {
        let begun = SuspendingClock.now  // the clock of the timeout
        let alarm = setSlowAlarm()
        defer { endSlowAlarm(alarm) }
        do throws(DBusError) {
            return try await connection.call(method, on: BusName.service, at: path, arguments, timeout: Self.callTimeout)
        } catch {
            guard repeatable, error.isNoReply, .now - begun < Self.callTimeout else { throw ClientError(error) }
        }
        do throws(DBusError) {
            return try await connection.call(method, on: BusName.service, at: path, arguments, timeout: Self.callTimeout)
        } catch { throw ClientError(error) }
    }

    /// Reports that the service does not answer, unless `endSlowAlarm` comes first.
    private func setSlowAlarm() -> Poller.Token? {
        slowAnswers.map { slow in Poller.shared.scheduleAwake(after: slow.delay) { slow.report() } }
    }

    private func endSlowAlarm(_ alarm: Poller.Token?) { if let alarm { Poller.shared.cancel(alarm) } }

    func set<V>(_ property: PropertyOf<V>, _ value: V, at path: ObjectPath) async throws(ClientError) {
        try await call(Standard.set, (property.interface, property.name, value.variant), at: path, repeatable: true)
    }

    func waitAll(_ filter: DownloadFilter) async throws -> OutcomeCounts {
        let dictionary = filter.dictionary.filter { $0.key != "limit" && $0.key != "after" }
        let (finished, failed, cancelled) = try await untilAnswered(Manager.waitAll, at: BusName.managerPath, dictionary).answer
        return OutcomeCounts(finished: finished, failed: failed, cancelled: cancelled)
    }

    func fetch(_ url: String, _ options: [String: Variant]) async throws -> FetchedFile {
        // The service, too, gives one answer to such calls at the same time.
        let key = Self.key(Manager.fetch.name, at: BusName.managerPath, url: url, options)
        let ((outcome, path), wasLost) = try await untilAnswered(Manager.fetch, at: BusName.managerPath, (url, options), sharedBy: key)
        // The first call's answer may have been lost with the service. So report the file as new: a client would rather process a file
        // twice than never.
        return FetchedFile(isNew: wasLost || outcome != FetchOutcome.noData.rawValue, path: path)
    }

    func setForeground(_ app: String, _ isInFront: Bool) async throws(ClientError) {
        if isInFront { inFront.insert(app) } else { inFront.remove(app) }
        try await call(Manager.setForeground, (app, isInFront), repeatable: true)
        // Watch the owner only after the call, because the call itself may have started the service.
        if inFront.isEmpty, let subscription = foregroundWatch {
            connection.unsubscribe(subscription)
            foregroundWatch = nil
        } else if !inFront.isEmpty, foregroundWatch == nil {
            foregroundWatch = connection.watchOwner(of: BusName.service) { [weak self] owner in
                guard let self, owner != nil else { return }
                BusActor.spawn { await self.sayForegroundAgain() }
            }
        }
    }

    /// A restarted service knows of no application in front, so report them again.
    private func sayForegroundAgain() async {
        // While a call waits for its answer, `setForeground` may report that another application is no longer in front.
        for app in inFront where inFront.contains(app) { try? await call(Manager.setForeground, (app, true)) }
    }

    /// The delay before the service is called again: none, then 1, 2, 4 … seconds.
    static func pause(after losses: Int) -> Duration { losses <= 1 ? .zero : .seconds(1 << min(losses - 2, 16)) }

    func sleep(for delay: Duration) async {
        guard delay > .zero else { return }
        await withCheckedContinuation { continuation in Poller.shared.schedule(after: delay) { continuation.resume() } }
    }

    /// A call that does not start the service.
    ///
    /// - Throws: with the cause `serviceUnavailable` if the service does not run.
    private func ask<In, Out>(_ method: MethodOf<In, Out>, _ arguments: In) async throws(ClientError) -> Out {
        let alarm = setSlowAlarm()
        defer { endSlowAlarm(alarm) }
        do throws(DBusError) {
            return try await connection.call(
                method, on: BusName.service, at: BusName.managerPath, arguments, timeout: Self.callTimeout, starts: false)
        } catch { throw ClientError(error) }
    }

    // MARK: Descriptions

    func overview(current: Int, recent: Int) async throws(ClientError) -> ServiceOverview? {
        do throws(ClientError) {
            var overview = ServiceOverview(status: ServiceStatus(try await ask(Standard.getAll, Manager.interface)))
            // Ask for at most the number of active downloads. Otherwise the service would search its whole queue for more.
            let running = min(current, Int(overview.status.active))
            overview.current = try await page([.active], limit: running)
            let rest = min(current, Int(overview.status.remaining)) - overview.current.count
            // A download that stopped since the first page is in both pages.
            let known = Set(overview.current.map(\.reference))
            overview.current += try await page([.queued, .waiting, .paused, .verifying, .extracting], limit: rest)
                .filter { !known.contains($0.reference) }
            overview.recent = try await page([.finished, .failed], limit: recent, isNewestFirst: true)
            return overview
        } catch {
            guard error.cause == .serviceUnavailable else { throw error }
            return nil
        }
    }

    /// One page of `Describe`, without starting the service. It has fewer downloads than `limit` if the answer would be too long.
    private func page(
        _ states: Set<DownloadDescription.State>, limit: Int, isNewestFirst: Bool = false
    ) async throws(ClientError) -> [DownloadDescription] {
        guard limit > 0 else { return [] }
        var filter = DownloadQuery(states: states).filter
        (filter.limit, filter.isNewestFirst) = (limit, isNewestFirst)
        while true {
            do throws(ClientError) {
                return try await ask(Manager.describe, (filter.dictionary, [])).map { structure in
                    DownloadDescription(DownloadReference(structure.fields.0), structure.fields.1)
                }
            } catch {
                guard error.errorName == .limitExceeded, filter.shrink() else { throw error }
            }
        }
    }

    /// As `DownloaderClient.namesIfRunning`.
    func namesIfRunning() async throws(ClientError) -> (downloads: [DownloadReference], batches: [BatchReference])? {
        do throws(ClientError) {
            var paths: [ObjectPath] = []
            for (query, isNewestFirst) in [(DownloadQuery.remaining, false), (.ended, true)] {
                var filter = query.filter
                filter.isNewestFirst = isNewestFirst
                paths += try await ask(Manager.list, filter.dictionary)
            }
            var batches = BatchFilter()
            batches.isNewestFirst = true
            return (paths.map { DownloadReference($0) }, try await ask(Manager.listBatches, batches.dictionary).map { BatchReference($0) })
        } catch {
            guard error.cause == .serviceUnavailable else { throw error }
            return nil
        }
    }

    /// As `DownloaderClient.assetsIfRunning`.
    func assetsIfRunning() async throws(ClientError) -> [AssetReference]? {
        do throws(ClientError) { return try await ask(Manager.assets, "").compactMap { AssetReference(named: $0) } } catch {
            guard error.cause == .serviceUnavailable else { throw error }
            return nil
        }
    }

    func status() async throws(ClientError) -> ServiceStatus {
        ServiceStatus(try await call(Standard.getAll, Manager.interface, at: BusName.managerPath, repeatable: true))
    }

    func describe(_ download: DownloadReference) async throws(ClientError) -> DownloadDescription {
        DownloadDescription(download, try await call(Standard.getAll, Download.interface, at: download, repeatable: true))
    }

    // MARK: Watches

    func watch(_ downloads: [DownloadReference]?, _ receive: @escaping @Sendable (DownloadUpdate) -> Void) async throws(ClientError)
        -> UInt64
    {
        let state = WatchState(downloads, receive)
        nextWatch += 1
        let number = nextWatch
        watches[number] = state
        // Subscribe first, then read the state: a change between the two is reported twice rather than never.
        state.subscriptions = subscribe(state)
        do throws(ClientError) {
            try await tellAll(state, isFirst: true)
        } catch {
            stopWatch(number)
            throw error
        }
        return number
    }

    /// Adds a download to a watch. A missing download is reported as removed.
    func add(_ download: DownloadReference, toWatch number: UInt64) async throws(ClientError) {
        guard let state = watches[number] else { return }
        state.want(download)
        do throws(ClientError) { state.tell(try await describe(download)) } catch {
            guard error.cause == .unknownDownload else { throw error }
            state.remove(download)
        }
    }

    func watchService(_ receive: @escaping @Sendable (ServiceNews) -> Void) -> UInt64 {
        nextWatch += 1
        if isBusGone { receive(.lost) } else { presences[nextWatch] = Presence(on: connection, receive) }
        return nextWatch
    }

    func watchAssets(
        _ assets: [AssetReference]?, _ receive: @escaping @Sendable (AssetNews) -> Void
    ) async throws(ClientError) -> UInt64 {
        let watch = AssetWatch(assets, on: connection, receive)
        nextWatch += 1
        let number = nextWatch
        assetWatches[number] = watch
        do throws(ClientError) {
            try await watch.begin { [weak self] () async throws(ClientError) in
                try await self?.askIfPresent(Manager.assets, "", at: BusName.managerPath)?.map { AssetReference($0) }
            } describe: { [weak self] asset async throws(ClientError) in
                try await self?.askIfPresent(Standard.getAll, Asset.interface, at: asset.objectPath)
            }
        } catch {
            stopWatch(number)
            throw error
        }
        return number
    }

    /// A call that does not start the service; nil if the service does not run, or has no such object.
    ///
    /// - Throws: with the cause `serviceUnavailable` if the service runs and does not answer, or goes away before it answers.
    private func askIfPresent<In, Out>(
        _ method: MethodOf<In, Out>, _ arguments: In, at path: ObjectPath
    ) async throws(ClientError) -> Out? {
        let alarm = setSlowAlarm()
        defer { endSlowAlarm(alarm) }
        do throws(DBusError) {
            return try await connection.call(
                method, on: BusName.service, at: path, arguments, timeout: Self.callTimeout, starts: false)
        } catch {
            let isSilent = error.isNoReply
            let error = ClientError(error)
            guard !isSilent, error.cause == .serviceUnavailable || error.cause == .unknownDownload else { throw error }
            return nil
        }
    }

    func stopWatch(_ number: UInt64) {
        presences.removeValue(forKey: number)?.stop()
        assetWatches.removeValue(forKey: number)?.stop()
        guard let state = watches.removeValue(forKey: number) else { return }
        state.isStopped = true
        for subscription in state.subscriptions { connection.unsubscribe(subscription) }
    }

    private func subscribe(_ state: WatchState) -> [Connection.Subscription] {
        var properties = MatchRule(sender: BusName.service, interface: Standard.properties, member: Standard.propertiesChanged.name)
        properties.argument0 = Download.interface
        return [
            connection.subscribe(MatchRule(sender: BusName.service, interface: Download.interface)) { [weak state] message in
                state?.take(message)
            },
            connection.subscribe(properties) { [weak self, weak state] message in
                guard let self, let state, let (_, changed, _) = Standard.propertiesChanged.read(message) else { return }
                let paths = state.knownPaths(ofSignalFrom: message.path)
                for path in paths { state.change(path) { $0.apply(changed) } }
                guard paths.isEmpty, state.wantsNew, let name = changed[Download.state.name]?.string else { return }
                if !DownloadDescription.State(name).hasEnded {
                    // An ended download has started again.
                    let download = DownloadReference(ObjectPath(message.path))
                    BusActor.spawn { await self.tell(download, to: state) }
                }
            },
            connection.subscribe(MatchRule(sender: BusName.service, interface: Manager.interface)) { [weak self, weak state] message in
                guard let self, let state else { return }
                if let path = Manager.downloadRemoved.read(message) { state.remove(DownloadReference(path)) }
                if let path = Manager.downloadAdded.read(message), state.wantsNew {
                    BusActor.spawn { await self.tell(DownloadReference(path), to: state) }
                }
            },
            connection.watchOwner(of: BusName.service) { [weak self, weak state] owner in
                guard let self, let state else { return }
                state.owners += 1
                // Idle exit and a crash look the same. Start the service again only for downloads that would continue by themselves.
                guard owner != nil || state.goesOn else { return }
                BusActor.spawn { await self.tellAgain(state, wasLost: owner == nil) }
            },
        ]
    }

    /// Reports the present state of each download to its watch.
    ///
    /// - Parameter isFirst: whether a missing download is an error. Later, a download may be missing because it was removed.
    private func tellAll(_ state: WatchState, isFirst: Bool = false) async throws(ClientError) {
        if let wanted = state.wanted {
            for download in wanted.sorted(by: { $0.path < $1.path }) {
                do throws(ClientError) {
                    state.tell(try await describe(download))
                } catch {
                    guard error.cause == .unknownDownload, !isFirst || state.knows(download) else { throw error }
                    if state.knows(download) { state.remove(download) }
                }
            }
        } else {
            // Tell a page before the next one is awaited: else a download could end in between, and would be told as it was before.
            let present = try await describe(DownloadQuery.remaining.filter, properties: []) { page in
                for description in page { state.tell(description) }
            }
            for gone in state.notEnded.subtracting(present.map(\.reference)) { await tell(gone, to: state) }
        }
    }

    private func tell(_ download: DownloadReference, to state: WatchState) async {
        guard state.beginAsking(download) else { return }
        while !state.isStopped {
            let owners = state.owners
            do throws(ClientError) {
                let description = try await describe(download)
                if state.endAsking(download) { state.tell(description) }
                return
            } catch {
                guard error.isNoReply, owners == state.owners else {
                    // If the service is gone, `watchOwner` reports its next owner. If the download is gone and was never reported, the
                    // signal of its removal reports that. The signal may come after this answer, because it waits for the disk.
                    if state.endAsking(download), error.cause == .unknownDownload, state.knows(download) { state.remove(download) }
                    return
                }
                // The service runs, and has not answered in time.
                await sleep(for: .seconds(1))
            }
        }
    }

    /// Reads the state again after the service went away or came back, with a few retries.
    private func tellAgain(_ state: WatchState, wasLost: Bool) async {
        if wasLost { countLoss(of: state) }
        guard !state.isAsking else {
            // The lost service may have ended a download after its answer, and before its signals.
            if wasLost { state.asksAgain = true }
            return
        }
        state.isAsking = true
        defer { state.isAsking = false }
        var pauses = wasLost
        while !state.isStopped {
            if pauses { await sleep(for: Self.pause(after: state.losses)) }
            (pauses, state.asksAgain) = (true, false)
            do throws(ClientError) {
                try await tellAll(state)
                if !state.asksAgain { return }
            } catch {
                guard error.cause == .serviceUnavailable else { return state.lose(error) }
                countLoss(of: state, error)
            }
        }
    }

    private func countLoss(of state: WatchState, _ error: ClientError? = nil) {
        state.losses = state.lastLoss.map { .now - $0 > Self.steadyTime } ?? true ? 1 : state.losses + 1
        state.lastLoss = .now
        guard state.losses > Self.mostLosses else { return }
        let message = "\(BusName.service) keeps exiting; its messages are in the session's journal"
        state.lose(error ?? ClientError(.serviceUnavailable, name: noReply, message: message))
    }

    private func busWentAway() {
        isBusGone = true
        let error = ClientError(DBusError.disconnected("the bus ended the connection"))
        for state in watches.values { state.lose(error) }
        for presence in presences.values { presence.lose() }
        for watch in assetWatches.values { watch.lose() }
    }
}

private let noReply = "org.freedesktop.DBus.Error.NoReply"

extension DBusError {
    /// The called program went away, or took too long.
    var isNoReply: Bool { name == noReply }
}

extension ClientError {
    /// The service went away, or took too long.
    fileprivate var isNoReply: Bool { name == noReply }
}
