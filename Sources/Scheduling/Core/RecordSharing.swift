internal import DownloadModel

/// Lets equal parts of consecutive records share their memory. Among 100,000 downloads, most have the same options and host as another
/// download.
struct RecordSharing {
    /// The last record, and the last record of each app. The next record often equals one of them.
    private var last: DownloadRecord?
    private var lastOfApps: [String: DownloadRecord] = [:]
    private static let mostApps = 64
    private var authority = DownloadURL.Authority()

    /// Makes `record` share its options with an equal earlier record.
    mutating func join(_ record: inout DownloadRecord) {
        guard !(last?.isJoined(record) ?? false) else { return }
        if lastOfApps.count >= Self.mostApps { lastOfApps = [:] }
        if let last { lastOfApps[last.options.app] = last }
        if let model = lastOfApps[record.options.app] { record.join(model) }
        last = record
    }

    /// Makes `entry` share the texts of its host and origin with the last entry, if they are equal.
    mutating func joinHost(of entry: ScheduledDownload) {
        if let host = authority.host(of: entry.record.firstURL) { (entry.host, entry.origin) = (host, authority.origin) }
    }
}
