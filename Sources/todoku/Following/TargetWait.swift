internal import DownloadModel
internal import EventLoop
internal import Localization
internal import TodokuClient

/// The wait of `todoku wait` for one target. It runs beside the waits for the other targets, because a private download may leave the list
/// before its turn to be printed comes.
@BusActor final class TargetWait {
    enum Answer: Sendable {
        case path(String, of: DownloadReference)
        case counts(OutcomeCounts, of: BatchReference)
    }

    private let target: Target
    private let client: DownloaderClient
    private let notice: PauseNotice?
    private let collects: Bool
    private var members: EndedMembers?
    private var outcome: Result<Answer, CommandFailure>?
    private var waiting: CheckedContinuation<Result<Answer, CommandFailure>, Never>?
    /// The downloads of the target that have ended, once `answer` has returned; empty if nobody asked for them.
    private(set) var ended: [DownloadDescription] = []

    /// - Parameters:
    ///   - notice: says that the target is paused; nil: nobody does.
    ///   - collects: whether `ended` is needed.
    init(for target: Target, _ client: DownloaderClient, notice: PauseNotice?, collects: Bool) {
        (self.target, self.client, self.notice, self.collects) = (target, client, notice, collects)
    }

    func begin() {
        BusActor.spawn {
            let outcome = await self.run()
            if self.collects { self.ended = await self.endedDownloads() }
            self.outcome = outcome
            self.waiting?.resume(returning: outcome)
        }
    }

    /// Waits for the answer. Call once, after `begin`.
    func answer() async throws(CommandFailure) -> Answer {
        try await withCheckedContinuation { continuation in
            if let outcome { continuation.resume(returning: outcome) } else { waiting = continuation }
        }.get()
    }

    private func run() async -> Result<Answer, CommandFailure> {
        do throws(TargetError) {
            return .success(
                try await target.reach { download throws(ClientError) -> Answer in
                    await notice?.tell(about: download)
                    do { return .path(try await client.wait(for: download), of: download) } catch { throw ClientError(ofWait: error) }
                } batch: { batch throws(ClientError) -> Answer in
                    if collects { follow(batch) }
                    await notice?.tell(about: DownloadQuery(batch: batch))
                    do { return .counts(try await client.wait(for: batch), of: batch) } catch { throw ClientError(ofWait: error) }
                })
        } catch { return .failure(await failure(error)) }
    }

    /// A missing download and too many waiting calls are refusals. Any other error is the download's own, told as `get` tells it.
    private func failure(_ error: TargetError) async -> CommandFailure {
        let reason = error.error
        guard reason.cause == .refused, reason.errorName != .limitExceeded, case .download(let download) = error.subject else {
            return CommandFailure(error)
        }
        // Somebody may have removed the download meanwhile, or started it again.
        let ended = (try? await client.describe(download)).flatMap { [.failed, .cancelled].contains($0.state) ? $0 : nil }
        let text = ended?.complaint ?? catalog.explanation(reason.naming(download))
        return CommandFailure(.ended, text, name: reason.name, about: error.subject)
    }

    // MARK: The downloads that have ended

    /// Looks at the members of a batch each second until the wait is over.
    private func follow(_ batch: BatchReference) {
        let members = EndedMembers(client, of: batch, in: [.finished, .failed, .cancelled])
        self.members = members
        BusActor.spawn { [self] in
            while outcome == nil {
                if let outcomes = (try? await client.describe(batch))?.outcomes {
                    await members.look(outcomes.finished +| outcomes.failed +| outcomes.cancelled)
                }
                await withCheckedContinuation { continuation in
                    Poller.shared.schedule(after: .seconds(1)) { continuation.resume() }
                }
            }
        }
    }

    /// Empty if the downloads are no longer on the list, and were not seen.
    private func endedDownloads() async -> [DownloadDescription] {
        if let members { return (try? await members.all()) ?? [] }
        guard let download = target.download, let now = try? await client.describe(download), now.state.hasEnded else { return [] }
        return [now]
    }
}
