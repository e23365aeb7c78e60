internal import DownloadModel
internal import EventLoop
internal import Localization
internal import TodokuClient

/// Says on standard error that downloads are paused, and what to do, because the command would be silent about it. Without an answer of the
/// service it says nothing: the command itself fails then.
@BusActor final class PauseNotice {
    private let client: DownloaderClient
    private var isTold = false

    init(_ client: DownloaderClient) { self.client = client }

    /// Says once that everything is paused, if it is.
    func tell() async {
        guard !isTold, let service = try? await client.status(), service.isPaused else { return }
        tellAll()
    }

    /// Says that `download` is paused, or once that everything is.
    func tell(about download: DownloadReference) async {
        guard let now = try? await client.describe(download) else { return }
        if now.state == .paused {
            Output.complain(catalog.text("download %1$s is paused; “todoku resume %1$s” resumes it", "\(download)"))
        } else if now.waitReason == WaitReason.pausedAll.rawValue {
            tellAll()
        }
    }

    /// Says once that everything is paused, if that holds a download of `query`.
    func tell(about query: DownloadQuery) async {
        var query = query
        query.states = [.waiting]
        guard !isTold, let service = try? await client.status(), service.isPaused else { return }
        if let first = try? await client.first(of: query), first.waitReason == WaitReason.pausedAll.rawValue { tellAll() }
    }

    private func tellAll() {
        if !isTold { Output.complain(catalog.text("everything is paused, so nothing starts yet; “todoku resume --all” ends that")) }
        isTold = true
    }
}
