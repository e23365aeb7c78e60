internal import Desktop
internal import DownloadModel
internal import Scheduling

extension ToastTexts {
    /// The toast for the end of a private download: that it has ended, and why if it failed. A click opens the folder.
    func privateToast(of entry: ScheduledDownload) -> EndToast {
        let options = entry.record.options
        guard let failure = entry.state.failure else {
            return EndToast(
                number: entry.number, kind: .finishedBatch(folder: entry.record.directory), summary: options.title ?? finishedSummary,
                body: options.body ?? "", icon: options.icon, sound: options.sound)
        }
        return EndToast(
            number: entry.number, kind: .failed(nil), summary: failedSummary, body: failedBody(fileName: nil, failure: failure),
            icon: options.icon, sound: options.sound.isEmpty ? "" : nil)
    }
}

extension DownloadRecord {
    /// The name of the file, or else the URL; nil: neither may be shown.
    var shownName: String? { options.isPrivate ? nil : fileName ?? redacted(url) }
}
