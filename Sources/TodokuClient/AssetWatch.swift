internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// News of watched assets.
public enum AssetNews: Equatable, Sendable {
    /// The asset's present state.
    case changed(AssetDescription)
    /// The asset is not registered, or not any more.
    case removed(AssetReference)
    /// The service does not run: nothing is under way.
    case absent
    /// The session bus is gone; this is the last call.
    case lost
}

/// The known assets of one watch, and its receiver.
@BusActor final class AssetWatch {
    typealias Listing = @BusActor @Sendable () async throws(ClientError) -> [AssetReference]?
    typealias Describing = @BusActor @Sendable (AssetReference) async throws(ClientError) -> [String: Variant]?

    /// The pause after a call that the service has not answered. The service had a minute for the answer.
    private static let pause: Duration = .seconds(1)

    /// nil: all assets.
    private let wanted: Set<AssetReference>?
    private let connection: Connection
    private let receive: @Sendable (AssetNews) -> Void
    private var known: [AssetReference: AssetDescription] = [:]
    /// The named assets whose last report is that they are not registered.
    private var missing: Set<AssetReference> = []
    /// What was announced of assets while they were being described: the answer may be older.
    private var early: [AssetReference: [[String: Variant]]] = [:]
    private var subscriptions: [Connection.Subscription] = []
    /// The next reading, after the service has not answered.
    private var nextReading: Poller.Token?
    private var isStopped = false

    init(_ wanted: [AssetReference]?, on connection: Connection, _ receive: @escaping @Sendable (AssetNews) -> Void) {
        (self.wanted, self.connection, self.receive) = (wanted.map(Set.init), connection, receive)
    }

    /// - Parameters:
    ///   - list: the registered assets, in order; nil if the service does not run.
    ///   - describe: the properties of an asset; nil if it is not registered, or the service does not run.
    func begin(list: @escaping Listing, describe: @escaping Describing) async throws(ClientError) {
        // Subscribe first, then read the state: a change between the two is reported twice rather than never.
        var properties = MatchRule(sender: BusName.service, interface: Standard.properties, member: Standard.propertiesChanged.name)
        properties.argument0 = Asset.interface
        func reads() { BusActor.spawn { [weak self] in try? await self?.read(list, describe) } }
        subscriptions = [
            connection.subscribe(properties) { [weak self] message in
                guard let self, let (_, changed, _) = Standard.propertiesChanged.read(message) else { return }
                change(AssetReference(ObjectPath(message.path)), changed)
            },
            connection.subscribe(MatchRule(sender: BusName.service, interface: Asset.interface)) { [weak self] message in
                guard let self, let (stage, done, total) = Asset.progress.read(message) else { return }
                change(AssetReference(ObjectPath(message.path))) { asset in
                    let progress = AssetDescription.Progress(done: done, total: total < 0 ? nil : ByteCount(clamping: total))
                    asset.reported = AssetDescription.Reported(stage: AssetDescription.Stage(stage), progress: progress)
                }
            },
            connection.subscribe(MatchRule(sender: BusName.service, interface: Manager.interface)) { [weak self] message in
                guard let self else { return }
                if let path = Manager.assetRemoved.read(message) { remove(AssetReference(path)) }
                if let path = Manager.assetAdded.read(message), isWanted(AssetReference(path)) { reads() }
            },
            connection.watchOwner(of: BusName.service) { [weak self] owner in
                guard let self, !isStopped else { return }
                // After its return, the service may do other things than before.
                (known, missing) = ([:], [])
                if owner == nil { receive(.absent) } else { reads() }
            },
        ]
        try await read(list, describe)
    }

    func stop() {
        isStopped = true
        for subscription in subscriptions { connection.unsubscribe(subscription) }
        subscriptions = []
        cancelReading()
    }

    func lose() {
        guard !isStopped else { return }
        isStopped = true
        cancelReading()
        receive(.lost)
    }

    private func isWanted(_ asset: AssetReference) -> Bool { wanted?.contains(asset) ?? true }

    private func cancelReading() {
        if let nextReading { Poller.shared.cancel(nextReading) }
        nextReading = nil
    }

    /// Reads the assets that are not known yet. If the service does not answer, reads again later.
    private func read(_ list: @escaping Listing, _ describe: @escaping Describing) async throws(ClientError) {
        do throws(ClientError) { try await readUnknown(list, describe) } catch {
            guard error.cause == .serviceUnavailable else { throw error }
            guard !isStopped, nextReading == nil else { return }
            nextReading = Poller.shared.schedule(after: Self.pause) { [weak self] in
                self?.nextReading = nil
                BusActor.spawn { [weak self] in try? await self?.read(list, describe) }
            }
        }
    }

    private func readUnknown(_ list: Listing, _ describe: Describing) async throws(ClientError) {
        guard let registered = try await list() else { return }
        // Compare now: signals that come while assets are described are newer than the list. The removal of a known asset comes as a
        // signal, maybe after the list.
        for asset in wanted ?? [] where known[asset] == nil && !registered.contains(asset) { remove(asset) }
        for asset in registered where isWanted(asset) && known[asset] == nil {
            early[asset] = []
            let values: [String: Variant]?
            do throws(ClientError) { values = try await describe(asset) } catch {
                early[asset] = nil
                throw error
            }
            let later = early.removeValue(forKey: asset) ?? []
            // Another reading may have been faster, and is then newer with what was announced since.
            guard !isStopped, known[asset] == nil, let values else { continue }
            var description = AssetDescription(asset, values)
            for changed in later { description.apply(changed) }
            known[asset] = description
            missing.remove(asset)
            receive(.changed(description))
        }
    }

    private func change(_ asset: AssetReference, _ values: [String: Variant]) {
        early[asset]?.append(values)
        change(asset) { $0.apply(values) }
    }

    private func change(_ asset: AssetReference, _ body: (inout AssetDescription) -> Void) {
        guard !isStopped, let before = known[asset] else { return }
        var description = before
        body(&description)
        known[asset] = description
        if description != before { receive(.changed(description)) }
    }

    private func remove(_ asset: AssetReference) {
        guard !isStopped, isWanted(asset) else { return }
        known[asset] = nil
        // The list and the signal of the removal may both report it.
        if wanted != nil, !missing.insert(asset).inserted { return }
        receive(.removed(asset))
    }
}
