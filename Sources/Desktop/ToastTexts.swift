public import DownloadModel

/// The words of the toasts in one language.
public struct ToastTexts: Sendable {
    public let progressSummary: String
    public let finishedSummary: String
    public let failedSummary: String
    /// Labels of the actions.
    public let open: String
    public let showFolder: String
    private let batchFinished: @Sendable (OutcomeCounts) -> String
    private let batchCounts: @Sendable (OutcomeCounts) -> String
    private let reasonOf: @Sendable (ErrorName) -> String
    private let statusReason: @Sendable (UInt32) -> String

    public static let japanese = ToastTexts(
        progressSummary: "ダウンロード中", finishedSummary: "ダウンロードが完了しました", failedSummary: "ダウンロードに失敗しました", open: "開く",
        showFolder: "フォルダを表示",
        batchFinished: { "\($0.finished)件のダウンロードが完了しました" + ($0.failed > 0 ? "（\($0.failed)件は失敗）" : "") },
        batchCounts: { counts in
            [("完了", counts.finished), ("失敗", counts.failed), ("中止", counts.cancelled)].filter { $0.1 > 0 }.map { "\($0)\($1)件" }
                .joined(separator: "、")
        }, reasonOf: japaneseReason, statusReason: { "サーバーがエラーを返しました（HTTP \($0)）。" })

    /// "ダウンロード中", or "3 件ダウンロード中 · 45 %".
    public func progressSummary(_ toast: ProgressToast) -> String {
        guard toast.fileName == nil else { return progressSummary }
        return "\(toast.count) 件ダウンロード中" + (toast.percent.map { " · \($0) %" } ?? "")
    }

    /// "写真.zip — 42 %  12.3 MiB / 29.0 MiB", of several the bytes alone; without a total what has come.
    public func progressBody(_ toast: ProgressToast) -> String {
        let received = HumanText.size(toast.received)
        let bytes = toast.total.map { "\(received) / \(HumanText.size($0))" } ?? received
        guard let name = toast.fileName else { return bytes }
        return "\(name) — " + (toast.percent.map { "\($0) %  " } ?? "") + bytes
    }

    /// Of a button.
    func label(of action: ToastAction) -> String {
        switch action {
        case .open: open
        case .showFolder: showFolder
        case .retry: "再試行"
        case .freeSpace: "空き容量を確認"
        case .newLink: "リンクのページを開く"
        }
    }

    /// What a download waits for that only its user can bring about.
    public func waitingSummary(_ reason: WaitReason) -> String {
        reason == .needsUrl ? "新しいリンクが必要です" : "ディスクの空き容量が足りません"
    }

    /// The file's name, and what makes it go on, on a line of its own.
    public func waitingBody(fileName: String, _ reason: WaitReason, missing: ByteCount?) -> String {
        if reason == .needsUrl { return "\(fileName)\nリンクの有効期限が切れています。" }
        return "\(fileName)\n" + (missing.map { "あと\(HumanText.size($0))空くと、続きから再開します。" } ?? "空きができると、続きから再開します。")
    }

    /// "写真.zip (29.0 MiB)".
    public func finishedBody(fileName: String, size: ByteCount) -> String { "\(fileName) (\(HumanText.size(size)))" }

    /// The file's name, and the reason on a line of its own.
    public func failedBody(fileName: String, failure: DownloadFailure) -> String { "\(fileName)\n\(reason(failure))" }

    /// "8件のダウンロードが完了しました（2件は失敗）".
    public func batchSummary(_ outcomes: OutcomeCounts) -> String { batchFinished(outcomes) }

    /// "完了8件、失敗2件 (29.0 MiB)", and what it was about on a line of its own.
    public func batchBody(_ outcomes: OutcomeCounts, size: ByteCount, failure: DownloadFailure? = nil) -> String {
        let counts = batchCounts(outcomes) + (outcomes.finished > 0 ? " (\(HumanText.size(size)))" : "")
        return failure.map { "\(counts)\n\(reason($0))" } ?? counts
    }

    /// One short sentence; with the server's status where there was one.
    public func reason(_ failure: DownloadFailure) -> String {
        guard failure.name == .httpStatus, let status = failure.httpStatus else { return reasonOf(failure.name) }
        return statusReason(status)
    }
}

private func japaneseReason(_ name: ErrorName) -> String {
    switch name {
    case .invalidUrl: "URLが正しくありません。"
    case .unsupportedScheme: "この種類のURLには対応していません。"
    case .invalidOption: "指定されたオプションが正しくありません。"
    case .noSuchObject: "ダウンロードが見つかりません。"
    case .invalidState: "今の状態ではこの操作はできません。"
    case .alreadyExists: "同じ名前のファイルがすでにあります。"
    case .limitExceeded: "上限を超えました。"
    case .notAllowed: "許可されていません。"
    case .storage: "ダウンロードの記録を保存できませんでした。"
    case .network: "サーバーに接続できませんでした。"
    case .timeout: "サーバーからの応答がありませんでした。"
    case .tls: "安全な接続を確立できませんでした。"
    case .httpStatus: "サーバーがエラーを返しました。"
    case .tooManyRedirects: "転送の回数が多すぎます。"
    case .unsafeRedirect: "安全でない転送先のため中止しました。"
    case .checksumMismatch: "ファイルの内容がチェックサムと一致しません。"
    case .sizeMismatch: "ファイルの大きさが指定と一致しません。"
    case .typeMismatch: "ファイルの種類が指定と一致しません。"
    case .tooLarge: "ファイルが大きすぎます。"
    case .truncated: "ファイルが途中で切れています。"
    case .diskFull: "ディスクの空き容量が足りません。"
    case .writeFailed: "ファイルに書き込めませんでした。"
    case .permissionDenied: "保存先に書き込む権限がありません。"
    case .expired: "期限までに完了しませんでした。"
    case .interrupted: "サービスが終了したため中断されました。"
    case .cancelled: "ダウンロードは中止されました。"
    }
}
