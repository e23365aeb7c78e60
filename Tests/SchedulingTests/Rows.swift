internal import DownloadModel
internal import Scheduling

extension Ledger {
    /// All rows, as a new database would hold them.
    var allRows: [StoreChange] {
        var (walk, rows) = (walkRows(), [StoreChange]())
        while let part = nextRows(&walk) { rows += part }
        return rows
    }
}
