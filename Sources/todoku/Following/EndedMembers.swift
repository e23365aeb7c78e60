internal import DownloadModel
internal import EventLoop
internal import TodokuClient

/// The members of a batch that have ended in certain states. A private member leaves the list ten seconds after its end, so `look` must be
/// called more often than that.
@BusActor final class EndedMembers {
    /// How many more members are asked for than are known to have ended, because others may end before the answer.
    private static let margin = 64

    private let client: DownloaderClient
    private let batch: BatchReference
    private let query: DownloadQuery
    private var seen: [DownloadDescription] = []
    private var count: UInt32 = 0

    init(_ client: DownloaderClient, of batch: BatchReference, in states: Set<DownloadDescription.State>) {
        (self.client, self.batch, query) = (client, batch, DownloadQuery(states: states, batch: batch))
    }

    /// Notes the members that have ended since the last call.
    ///
    /// - Parameter now: how many members have ended by now.
    func look(_ now: UInt32) async {
        guard now != count else { return }
        do throws(ClientError) {
            if let latest = try await latest(Int(clamping: now -| count)) {
                let again = Set(latest.map(\.reference))
                seen.removeAll { again.contains($0.reference) }
                seen.append(contentsOf: latest.reversed())
            } else {
                seen = try await all()
            }
            count = now
        } catch {}  // the next call asks again
    }

    /// The members that ended last, the latest first: with all that have ended since the last call of `look`, whose number is at least
    /// `new`. nil: they are too many, or a member was started again.
    private func latest(_ new: Int) async throws(ClientError) -> [DownloadDescription]? {
        guard new > 0, new <= Limits.listed else { return nil }
        let limit = min(new +| Self.margin, Limits.listed)
        let latest = try await client.latest(limit, of: query)
        guard latest.count >= limit else { return latest }
        // All that have ended after the last known member come before it.
        guard let last = seen.last else { return nil }
        return latest.contains { $0.reference == last.reference && $0.endedAt == last.endedAt } ? latest : nil
    }

    /// The members that have ended; first those that have left the list.
    func all() async throws(ClientError) -> [DownloadDescription] {
        var (listed, members) = ([DownloadDescription](), Set<DownloadReference>())
        do throws(ClientError) {
            listed = try await client.describe(query)
            // A member that was started again is on the list.
            if !seen.isEmpty { members = Set(try await client.list(DownloadQuery(batch: batch))) }
        } catch {
            // The batch may have been removed, or may have left the list with its last member.
            guard error.errorName == .noSuchObject else { throw error }
        }
        members.formUnion(listed.map(\.reference))
        var ended = seen.filter { !members.contains($0.reference) }
        ended.append(contentsOf: listed)
        return ended
    }
}
