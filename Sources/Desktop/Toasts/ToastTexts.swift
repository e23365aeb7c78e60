public import DownloadModel
public import Localization

/// The toast texts in one language. Every text is a call of `catalog.text` with an English literal; `data/po/ja.po` has the Japanese.
public struct ToastTexts: Sendable {
    public let catalog: Catalog

    public init(_ catalog: Catalog) { self.catalog = catalog }
    public init(_ language: Language) { self.init(Catalog(language)) }

    public static let japanese = ToastTexts(.japanese)

    /// The language code, as used in desktop entries.
    var locale: String { catalog.spoken.rawValue }

    public var progressSummary: String { catalog.text("Downloading") }
    public var finishedSummary: String { catalog.text("Download complete") }
    public var failedSummary: String { catalog.text("Download failed") }
    /// Labels of the actions.
    public var open: String { catalog.text("Open") }
    public var showFolder: String { catalog.text("Show in folder") }

    /// "ダウンロード中", or "3 件ダウンロード中 · 45 %".
    public func progressSummary(_ toast: ProgressToast) -> String {
        guard toast.fileName == nil else { return toast.unpacked == nil ? progressSummary : catalog.text("Unpacking") }
        let count = catalog.text("%1$s download running", "%1$s downloads running", count: toast.count)
        return count + (toast.percent.map { " · " + catalog.percent($0) } ?? "")
    }

    /// "写真.zip — 42 %  12.3 MiB / 29.0 MiB". For several downloads only the bytes; without a total only the received bytes. For an
    /// archive that is being unpacked only the percentage.
    public func progressBody(_ toast: ProgressToast) -> String {
        let received = catalog.size(toast.received)
        let bytes = toast.total.map { "\(received) / \(catalog.size($0))" } ?? received
        guard let name = toast.fileName else { return bytes }
        if toast.unpacked != nil, let percent = toast.percent { return "\(name) — \(catalog.percent(percent))" }
        return "\(name) — " + (toast.percent.map { "\(catalog.percent($0))  " } ?? "") + bytes
    }

    /// The label of an action's button.
    public func label(of action: ToastAction) -> String {
        switch action {
        case .open: open
        case .showFolder: showFolder
        case .retry: catalog.text("Try again")
        case .freeSpace: catalog.text("Check free space")
        case .newLink: catalog.text("Open the link's page")
        }
    }

    /// The action that a waiting download needs from its user.
    public func waitingSummary(_ reason: WaitReason) -> String {
        reason == .needsUrl ? catalog.text("A new link is needed") : catalog.text("Not enough disk space")
    }

    /// The file's name, unless it is secret, and on a second line the condition for resuming.
    public func waitingBody(fileName: String?, _ reason: WaitReason, missing: ByteCount?) -> String {
        let words =
            if reason == .needsUrl {
                catalog.text("The link has expired.")
            } else if let missing {
                catalog.text("It goes on as soon as there is room for %1$s more.", catalog.size(missing))
            } else {
                catalog.text("It goes on as soon as there is room.")
            }
        return fileName.map { "\($0)\n\(words)" } ?? words
    }

    /// "写真.zip (29.0 MiB)".
    public func finishedBody(fileName: String, size: ByteCount) -> String { "\(fileName) (\(catalog.size(size)))" }

    /// "地図 — 展開済み (29.0 MiB)": the folder, and the size of the archive.
    public func unpackedBody(folderName: String, size: ByteCount) -> String {
        catalog.text("%1$s, unpacked (%2$s)", folderName, catalog.size(size))
    }

    /// The file's name, unless it is secret, and the reason on a second line.
    public func failedBody(fileName: String?, failure: DownloadFailure) -> String {
        fileName.map { "\($0)\n\(reason(failure))" } ?? reason(failure)
    }

    /// An app's data has a new version.
    public var assetSummary: String { catalog.text("New data is ready") }

    /// "8件のダウンロードが完了しました（2件は失敗）".
    public func batchSummary(_ outcomes: OutcomeCounts) -> String {
        let finished = catalog.text("%1$s download complete", "%1$s downloads complete", count: UInt64(outcomes.finished))
        return outcomes.failed > 0 ? catalog.text("%1$s (%2$s failed)", finished, catalog.count(outcomes.failed)) : finished
    }

    /// "完了8件、失敗2件 (29.0 MiB)", and the reason of a failure on a second line.
    public func batchBody(_ outcomes: OutcomeCounts, size: ByteCount, failure: DownloadFailure? = nil) -> String {
        let counts = catalog.outcomes(outcomes) + (outcomes.finished > 0 ? " (\(catalog.size(size)))" : "")
        return failure.map { "\(counts)\n\(reason($0))" } ?? counts
    }

    /// One short sentence, with the server's HTTP status if there was one.
    public func reason(_ failure: DownloadFailure) -> String { catalog.reason(failure.name, httpStatus: failure.httpStatus) }
}
