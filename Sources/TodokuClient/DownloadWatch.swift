internal import EventLoop

/// The states of one download, as a sequence: the present state, then the newest state after each change, up to the end of the download.
///
/// ```swift
/// for try await now in client.watch(download) { show(now.received, of: now.total) }
/// ```
///
/// The last element has the ``DownloadDescription/outcome``: a failed download is an element, not an error. A slow reader misses states in
/// between, but never the last one.
///
/// If the service exits or crashes, the sequence starts it again and continues. It does not start the service for a paused download, whose
/// next state comes once the service runs.
///
/// The sequence throws a ``ClientError`` if there is no such download, if the download is removed from the list, if the service cannot
/// be started, and if the session bus is gone. When the task of the reader is cancelled, the sequence ends without an error. The download
/// itself continues.
public struct DownloadWatch: AsyncSequence, Sendable {
    public typealias Element = DownloadDescription
    public typealias Failure = ClientError

    private let download: DownloadReference
    private let core: ClientCore

    init(_ download: DownloadReference, of core: ClientCore) { (self.download, self.core) = (download, core) }

    /// Each iterator begins with the present state, and watches until its end or its release.
    public func makeAsyncIterator() -> Iterator { Iterator(download, of: core) }

    /// Reads a ``DownloadWatch``.
    public struct Iterator: AsyncIteratorProtocol, Sendable {
        public typealias Element = DownloadDescription
        public typealias Failure = ClientError

        private let download: DownloadReference
        private let core: ClientCore
        private var reader: WatchReader?

        init(_ download: DownloadReference, of core: ClientCore) { (self.download, self.core) = (download, core) }

        /// Waits for the next state; nil after the last one. The first call begins the watch.
        public mutating func next(isolation actor: isolated (any Actor)?) async throws(ClientError) -> DownloadDescription? {
            let reader: WatchReader
            if let begun = self.reader {
                reader = begun
            } else {
                reader = await WatchReader(download, of: core)
                self.reader = reader
            }
            switch await reader.next() {
            case .success(let description): return description
            case .failure(let error): throw error
            }
        }
    }
}

/// The watch behind one iterator. It keeps only the newest state, so a slow reader makes nothing grow.
@BusActor final class WatchReader {
    typealias Answer = Result<DownloadDescription?, ClientError>

    private let download: DownloadReference
    private let core: ClientCore
    private var watch: Watch?
    private var hasBegun = false
    private var newest: DownloadDescription?
    /// The answer after the newest state; nil while further states may come.
    private var end: Answer?
    private var waiting: [CheckedContinuation<Answer, Never>] = []

    init(_ download: DownloadReference, of core: ClientCore) { (self.download, self.core) = (download, core) }

    /// The next state; nil at the end, and when the task is cancelled.
    func next() async -> Answer {
        if !hasBegun {
            hasBegun = true
            // A task of its own, so that a cancelled reader need not wait for the service's answer.
            BusActor.spawn { await self.begin() }
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                waiting.append(continuation)
                deliver()
            }
        } onCancel: {
            BusActor.spawn { self.cancel() }
        }
    }

    private func begin() async {
        guard end == nil else { return }
        do throws(ClientError) {
            // `core` calls the closure on the thread of this actor.
            let number = try await core.watch([download]) { [weak self] update in BusActor.assumeIsolated { self?.receive(update) } }
            let begun = Watch(number, of: core)
            // Meanwhile, the download may have ended, or the reader may have been cancelled.
            if end == nil { watch = begun } else { begun.stop() }
        } catch {
            finish(.failure(error))
        }
    }

    private func receive(_ update: DownloadUpdate) {
        guard end == nil else { return }
        switch update {
        case .changed(let description):
            newest = description
            if description.state.hasEnded { finish(.success(nil)) } else { deliver() }
        case .removed:
            finish(.failure(.removed(download)))
        case .lost(let error):
            finish(.failure(error))
        }
    }

    private func cancel() {
        newest = nil
        finish(.success(nil))
    }

    private func finish(_ answer: Answer) {
        guard end == nil else { return }
        end = answer
        watch?.stop()
        watch = nil
        deliver()
    }

    /// Answers the waiting calls of `next` with the newest state, or else with the end.
    private func deliver() {
        guard !waiting.isEmpty else { return }
        let answer: Answer
        if let state = newest {
            newest = nil
            answer = .success(state)
        } else if let end {
            answer = end
            // An error is thrown once; after it, the sequence is at its end.
            self.end = .success(nil)
        } else {
            return
        }
        let calls = waiting
        waiting = []
        for call in calls { call.resume(returning: answer) }
    }
}

extension ClientError {
    fileprivate static func removed(_ download: DownloadReference) -> ClientError {
        ClientError(
            .unknownDownload, name: "org.freedesktop.DBus.Error.UnknownObject",
            message: "the download \(download) was removed from the list")
    }
}
