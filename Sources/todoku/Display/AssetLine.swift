internal import DownloadModel
internal import Localization
internal import TodokuClient

/// One asset's update on one line of a terminal. Pure.
struct AssetLine {
    /// Whether the terminal shows more than ASCII.
    let utf8: Bool
    var catalog: Catalog = todoku.catalog

    private static let (longestName, bar) = (32, 24)

    /// "org.example.Game/levels  ████░░░░  downloading  45 %  4.5 MiB of 10.0 MiB", at most `columns` wide.
    func text(_ asset: AssetDescription, columns: Int) -> String {
        let ellipsis = utf8 ? "…" : "..."
        let name = TerminalText.cut(TerminalText.plain("\(asset.app)/\(asset.name)"), to: Self.longestName, ellipsis: ellipsis)
        var line = name
        if let fraction = asset.progress?.fraction, columns >= 80 {
            let done = Int(clamping: fraction * Double(Self.bar))
            let (full, empty) = utf8 ? ("█", "░") : ("#", "-")
            line += "  " + String(repeating: full, count: done) + String(repeating: empty, count: Self.bar -| done)
        }
        return TerminalText.cut("\(line)  \(catalog.progress(of: asset))", to: columns, ellipsis: ellipsis)
    }
}

extension Catalog {
    func stage(_ stage: AssetDescription.Stage) -> String {
        switch stage {
        case .idle: text("not installed")
        case .checking: text("checking for a new version")
        case .downloading: text("downloading")
        case .verifying: text("verifying")
        case .extracting: text("unpacking")
        case .ready: text("ready")
        case .failed: text("failed")
        case .cancelled: text("cancelled")
        case .other(let name): name
        }
    }

    /// How current an asset is, in a word for a column: in English that of the contract.
    func statusWord(_ asset: AssetDescription) -> String {
        switch asset.status {
        case "not-installed": text("not-installed")
        case "update-available": text("update-available")
        case "downloading": text("downloading")
        case "paused": text("paused")
        case "waiting-unmetered": text("waiting-unmetered")
        case "up-to-date": text("up-to-date")
        case "obsolete": text("obsolete")
        default: asset.status
        }
    }

    /// How current an asset is.
    func status(_ asset: AssetDescription) -> String {
        switch asset.status {
        case "not-installed": text("not installed")
        case "update-available": text("update available: %1$s", asset.latestVersion)
        case "downloading", "paused", "waiting-unmetered": progress(of: asset)
        case "up-to-date": text("up to date")
        case "obsolete": text("obsolete: the server has no manifest any more")
        default: asset.status
        }
    }

    /// "downloading  45 %  4.5 MiB of 10.0 MiB"; "ready  2026.11".
    func progress(of asset: AssetDescription) -> String {
        let word: String
        switch (asset.stage, asset.status) {
        case (.downloading, "paused"): word = text("paused")
        case (.downloading, "waiting-unmetered"): word = text("waiting for an unmetered connection")
        case (.ready, _): return "\(stage(.ready))  \(TerminalText.plain(asset.installedVersion))"
        default: word = stage(asset.stage)
        }
        guard let progress = asset.progress else { return word }
        let share = progress.fraction.map { "\(percent(Int(clamping: $0 * 100)))  " } ?? ""
        return "\(word)  \(share)\(size(progress.done, of: progress.total))"
    }
}

extension Table {
    static func of(_ assets: [AssetDescription], _ catalog: Catalog = todoku.catalog) -> Table {
        var table = Table([
            Column(heading: catalog.text("NAME"), isName: true, staysInRow: true), Column(heading: catalog.text("STATE")),
            Column(heading: catalog.text("VERSION")),
        ])
        for asset in assets { table.add(["\(asset.app)/\(asset.name)", catalog.statusWord(asset), asset.installedVersion]) }
        return table
    }
}
