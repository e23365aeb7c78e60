internal import DownloadModel

/// The rows of the table `batch`.
extension BatchRecord {
    static let columns =
        "number, count, app, directory, notify, title, body, icon, sound, removed_finished, removed_failed, removed_cancelled, removed_bytes, toast_owed_since"
    static let parameters = columns.split(separator: ",").map { _ in "?" }.joined(separator: ", ")

    /// Reads the columns in order. Unreadable values become the defaults.
    init(_ row: Row) {
        self.init(number: BatchNumber(row.value(0)), count: row.value(1))
        (app, directory) = (row.value(2), row.value(3))
        notify = NotifyPolicy(rawValue: row.value(4)) ?? notify
        (title, body, icon, sound) = (row.value(5), row.value(6), row.value(7), row.value(8))
        removed = OutcomeCounts(finished: row.value(9), failed: row.value(10), cancelled: row.value(11))
        removedBytes = row.value(12)
        toastOwedSince = row.value(13)
    }

    func put(by statement: borrowing Statement) throws(SQLiteError) {
        try statement.run(
            number.value, count, app, directory, notify.rawValue, title, body, icon, sound, removed.finished, removed.failed,
            removed.cancelled, removedBytes, toastOwedSince)
    }
}
