internal import DBus
public import DownloadModel
internal import DownloaderInterface

/// Identifies one batch by its object path on the bus.
public struct BatchReference: Hashable, Sendable, CustomStringConvertible {
    /// The object path, `/org/todoku/Downloader1/batch/7`.
    public let path: String

    init(_ path: ObjectPath) { self.path = path.value }
    var objectPath: ObjectPath { ObjectPath(path) }

    /// The batch with this number.
    public init(number: UInt64) { path = "\(BusName.batchesPath)/\(number)" }

    /// Reads a number, or an object path of the service; nil for any other text.
    public init?(_ text: String) {
        let digits = text.hasPrefix(BusName.batchesPath + "/") ? String(text.dropFirst(BusName.batchesPath.utf8.count + 1)) : text
        guard let number = UInt64(digits), String(number) == digits else { return nil }
        self.init(number: number)
    }

    /// The number, which `init(_:)` reads.
    public var description: String { String(path.dropFirst(BusName.batchesPath.utf8.count + 1)) }
}

/// One download to queue with a batch.
public struct BatchItem: Equatable, Sendable {
    public var url: String
    /// The item's own options, which override those of the batch.
    public var request: DownloadRequest

    public init(_ url: String, _ request: DownloadRequest = DownloadRequest()) { (self.url, self.request) = (url, request) }
}

/// A batch that was queued.
public struct QueuedBatch: Equatable, Sendable {
    public let reference: BatchReference
    /// In the order of the items.
    public let downloads: [DownloadReference]
}

/// The present state of one batch.
public struct BatchDescription: Equatable, Sendable {
    public let reference: BatchReference
    /// Empty if none was given.
    public let title: String
    /// Members that have not ended.
    public let remaining: UInt32
    /// Outcomes of the other members, including those that are no longer in the list.
    public let outcomes: OutcomeCounts
    public let received: ByteCount
    /// nil while the total of an unended member is unknown.
    public let total: ByteCount?

    /// How many downloads were queued with the batch.
    public var count: UInt32 { remaining +| outcomes.finished +| outcomes.failed +| outcomes.cancelled }

    /// 0.0–1.0; nil while the total is unknown.
    public var fraction: Double? {
        let fraction = wireFraction(received: received, total: total)
        return fraction < 0 ? nil : fraction
    }

    init(_ reference: BatchReference, _ properties: [String: Variant]) {
        func value<V>(_ property: PropertyOf<V>) -> V? { properties[property.name].flatMap(V.init) }
        self.reference = reference
        title = value(Batch.title) ?? ""
        remaining = value(Batch.remaining) ?? 0
        outcomes = OutcomeCounts(
            finished: value(Batch.succeeded) ?? 0, failed: value(Batch.failed) ?? 0, cancelled: value(Batch.cancelled) ?? 0)
        received = value(Batch.received) ?? 0
        total = value(Batch.total).flatMap { $0 < 0 ? nil : ByteCount($0) }
    }
}

extension DownloaderClient {
    /// Queues 1 to 10,000 downloads as one batch. If one is refused, none is queued, and the error's message begins with the index of that
    /// item: `Item 0: …` is about the first.
    ///
    /// - Parameters:
    ///   - items: the downloads, in the order in which they start.
    ///   - defaults: options for each item that does not set its own. `title`, `body`, `icon`, `sound` and `notify` are those of the one
    ///     toast at the end of the batch.
    public func downloadBatch(
        _ items: [BatchItem], _ defaults: DownloadRequest = DownloadRequest()
    ) async throws(ClientError) -> QueuedBatch {
        let arguments = (items.map { Structure($0.url, $0.request.options) }, defaults.options)
        let (batch, downloads) = try await core.call(
            Manager.downloadBatch, arguments, repeatable: items.allSatisfy { $0.request.token != nil })
        return QueuedBatch(reference: BatchReference(batch), downloads: downloads.map(DownloadReference.init))
    }

    /// Queues the files of a Metalink document (version 4, RFC 5854) as one batch: all files or none.
    ///
    /// - Parameters:
    ///   - descriptor: a regular file with the document, open for reading; read from its first byte. The service gets a duplicate; the
    ///     caller still closes its own.
    ///   - defaults: options for each file, except `fileName`, `checksum`, `pieceHashes`, `size` and `mirrors`, which the document gives.
    public func downloadMetalink(
        _ descriptor: Int32, _ defaults: DownloadRequest = DownloadRequest()
    ) async throws(ClientError) -> QueuedBatch {
        let (batch, downloads) = try await core.call(Manager.downloadMetalink, (FileDescriptor(descriptor), defaults.options))
        return QueuedBatch(reference: BatchReference(batch), downloads: downloads.map(DownloadReference.init))
    }

    /// The batches on the list, the oldest first.
    ///
    /// - Parameters:
    ///   - app: only those whose members all have this application id; nil: those of all applications.
    ///   - hasEnded: only those that have ended, or that have not; nil: all.
    public func batches(of app: String? = nil, hasEnded: Bool? = nil) async throws(ClientError) -> [BatchReference] {
        var filter = BatchFilter()
        (filter.app, filter.hasEnded) = (app, hasEnded)
        return try await core.batches(filter)
    }

    public func describe(_ batch: BatchReference) async throws(ClientError) -> BatchDescription {
        BatchDescription(batch, try await core.call(Standard.getAll, Batch.interface, at: batch.objectPath, repeatable: true))
    }

    public func pause(_ batch: BatchReference) async throws(ClientError) {
        try await core.call(Batch.pause, (), at: batch.objectPath, repeatable: true)
    }
    public func resume(_ batch: BatchReference) async throws(ClientError) {
        try await core.call(Batch.resume, (), at: batch.objectPath, repeatable: true)
    }
    public func cancel(_ batch: BatchReference) async throws(ClientError) {
        try await core.call(Batch.cancel, (), at: batch.objectPath, repeatable: false)
    }
    /// Starts all failed downloads of the batch again, from the bytes on disk.
    public func retry(_ batch: BatchReference) async throws(ClientError) {
        try await core.call(Batch.retry, (), at: batch.objectPath, repeatable: false)
    }
    /// Removes the batch and all its downloads from the list; those that have not ended are cancelled first.
    public func remove(_ batch: BatchReference, deleteFiles: Bool = false) async throws(ClientError) {
        try await core.call(Batch.remove, deleteFiles, at: batch.objectPath, repeatable: false)
    }

    /// Waits without a time limit until all downloads of the batch have ended. If the service goes away meanwhile, the call is repeated.
    ///
    /// - Throws: `ClientError`; `CancellationError` when the task is cancelled. The downloads continue.
    public func wait(for batch: BatchReference) async throws -> OutcomeCounts {
        let (finished, failed, cancelled) = try await core.wait(Batch.wait, at: batch.objectPath)
        return OutcomeCounts(finished: finished, failed: failed, cancelled: cancelled)
    }
}
