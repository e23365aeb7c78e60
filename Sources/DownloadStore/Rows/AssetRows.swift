internal import DownloadModel

/// The columns of the table `asset`.
enum AssetColumn: Int32, TableColumn {
    case app, name, manifestUrl, directory, options, publicKey, updates
    case installedVersion, installedFolder, installedDigest, installedTimestamp, installedEntries, installedBytes
    case previousVersion, previousFolder, previousDigest, previousTimestamp, previousEntries, previousBytes
    case leftVersion, leftFolder, leftDigest, leftTimestamp, leftEntries, leftBytes
    case skipped, latest, latestTimestamp, isObsolete, checkedAt, checkedIn, triedAt
    case pendingFolder, pendingStep, pendingDownload, pendingSource, pendingIsRunning, pendingIsBackground
    case pendingVersion, pendingUrl, pendingDigest, pendingSize, pendingUnpacked, pendingTimestamp, pendingMirrors
    case pendingEntries, pendingBytes
    case isRollingBack, isLeaving, deletesData, isCancelled, owesCall, readyAt, lastFolder
    case failureName, failureMessage, failureStatus, failureRetryable
    case removals
}

/// The rows of the table `asset`.
extension AssetRecord {
    static let insert = "INSERT OR REPLACE INTO asset (\(AssetColumn.names)) VALUES (\(AssetColumn.parameters))"
    static let delete = "DELETE FROM asset WHERE app = ? AND name = ?"
    static let select = "SELECT \(AssetColumn.names) FROM asset ORDER BY app, name"

    func put(by statement: borrowing Statement) throws(SQLiteError) {
        statement.clear()
        func bind(_ column: AssetColumn, _ value: some SQLiteValue) throws(SQLiteError) { try statement.bind(value, at: column.rawValue) }
        try bind(.app, key.app)
        try bind(.name, key.name)
        try bind(.manifestUrl, manifestURL)
        try bind(.directory, directory)
        try bind(.options, OptionsText.text(of: options))
        try bind(.publicKey, publicKey)
        try bind(.updates, update.rawValue)
        try Self.put(installed, .installedVersion, by: statement)
        try Self.put(previous, .previousVersion, by: statement)
        try Self.put(left, .leftVersion, by: statement)
        try bind(.skipped, skipped)
        try bind(.latest, latest)
        try bind(.latestTimestamp, latestTimestamp)
        try bind(.isObsolete, isObsolete)
        try bind(.checkedAt, checkedAt)
        try bind(.checkedIn, checkedIn)
        try bind(.triedAt, triedAt)
        if let pending {
            try bind(.pendingFolder, pending.folder)
            try bind(.pendingStep, pending.step.rawValue)
            try bind(.pendingDownload, pending.download?.value)
            try bind(.pendingSource, Int64(clamping: pending.source))
            try bind(.pendingIsRunning, pending.isRunning)
            try bind(.pendingIsBackground, pending.isBackground)
            try bind(.pendingVersion, pending.manifest.version)
            try bind(.pendingUrl, pending.manifest.url)
            try bind(.pendingDigest, pending.manifest.sha256.description)
            try bind(.pendingSize, pending.manifest.size)
            try bind(.pendingUnpacked, pending.manifest.unpackedSize)
            try bind(.pendingTimestamp, pending.manifest.timestamp)
            try bind(.pendingMirrors, pending.manifest.mirrors.joined(separator: "\n"))
            try Self.put(pending.unpacked, at: AssetColumn.pendingEntries.rawValue, by: statement)
        }
        try bind(.isRollingBack, isRollingBack)
        try bind(.isLeaving, isLeaving)
        try bind(.deletesData, deletesData)
        try bind(.isCancelled, isCancelled)
        try bind(.owesCall, owesCall)
        try bind(.readyAt, readyAt)
        try bind(.lastFolder, lastFolder)
        try bind(.failureName, failure?.name.rawValue)
        try bind(.failureMessage, failure?.message)
        try bind(.failureStatus, failure?.httpStatus)
        try bind(.failureRetryable, failure?.isRetryable)
        try bind(.removals, Self.text(of: removals))
        try statement.eachRow { _ in }
    }

    private static func put(_ version: AssetVersion?, _ first: AssetColumn, by statement: borrowing Statement) throws(SQLiteError) {
        guard let version else { return }
        let column = first.rawValue
        try statement.bind(version.version, at: column)
        try statement.bind(version.folder, at: column +| 1)
        try statement.bind(version.sha256?.description, at: column +| 2)
        try statement.bind(version.timestamp, at: column +| 3)
        try put(version.size, at: column +| 4, by: statement)
    }

    private static func put(_ size: FolderSize?, at column: Int32, by statement: borrowing Statement) throws(SQLiteError) {
        try statement.bind(size?.entries, at: column)
        try statement.bind(size?.bytes, at: column +| 1)
    }

    /// nil if the row has no name of an asset, or no absolute directory: then nothing can be found that belongs to it. Other unreadable
    /// values count as none. At worst, this costs an update.
    init?(_ row: Row) {
        func value<V: SQLiteValue>(_ column: AssetColumn) -> V { row.value(column.rawValue) }
        guard let key = try? AssetKey(app: value(.app), name: value(.name)) else { return nil }
        var (options, isWhole) = OptionsText.read(value(.options))
        // The options are those of downloads with checksums of their own.
        options.checksum = nil
        options.app = key.app
        let directory: String = value(.directory)
        guard directory.isAbsolutePath else { return nil }
        self.init(key: key, manifestURL: value(.manifestUrl), options: options, directory: directory)
        // A key that cannot be read must not turn into no key: no signature fits one of another length.
        publicKey = value(.publicKey)
        update = AssetUpdatePolicy(rawValue: value(.updates)) ?? .manual
        installed = Self.version(row, .installedVersion)
        previous = Self.version(row, .previousVersion)
        left = Self.version(row, .leftVersion)
        (skipped, latest, latestTimestamp) = (value(.skipped), value(.latest), value(.latestTimestamp))
        (isObsolete, checkedAt, checkedIn, triedAt) = (value(.isObsolete), value(.checkedAt), value(.checkedIn), value(.triedAt))
        pending = isWhole ? PendingUpdate(row) : nil
        (isRollingBack, isLeaving, deletesData) = (value(.isRollingBack), value(.isLeaving), value(.deletesData))
        (isCancelled, owesCall, readyAt, lastFolder) = (value(.isCancelled), value(.owesCall), value(.readyAt), value(.lastFolder))
        if previous == nil { isRollingBack = false }
        if let name = (value(.failureName) as String?).flatMap(ErrorName.init) {
            failure = DownloadFailure(
                name, value(.failureMessage), httpStatus: value(.failureStatus), isRetryable: value(.failureRetryable))
        }
        removals = Self.removals(value(.removals))
    }

    private static func version(_ row: Row, _ first: AssetColumn) -> AssetVersion? {
        let column = first.rawValue
        guard let version: String = row.value(column), let folder: String = row.value(column +| 1), isFolder(folder) else { return nil }
        let digest: String? = row.value(column +| 2)
        return AssetVersion(
            version: version, folder: folder, sha256: digest.flatMap { try? Checksum($0) }, timestamp: row.value(column +| 3),
            size: FolderSize(row, column +| 4))
    }

    /// A line for each removal: "keep" or "delete", the folder, and the number of the download.
    private static func text(of removals: [AssetRemoval]) -> String {
        removals.map { removal in
            "\(removal.keepsFolder ? "keep" : "delete") \(removal.folder)\(removal.download.map { " \($0)" } ?? "")\n"
        }.joined()
    }

    /// Unreadable lines are left out.
    private static func removals(_ text: String) -> [AssetRemoval] {
        text.split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ").map(String.init)
            guard words.count >= 2, words[0] == "keep" || words[0] == "delete", isFolder(words[1]) else { return nil }
            let number = words.count == 3 ? UInt64(words[2]).map(DownloadNumber.init) : nil
            return AssetRemoval(folder: words[1], keepsFolder: words[0] == "keep", download: number)
        }
    }
}

extension PendingUpdate {
    /// nil: there is none, or it cannot be read.
    fileprivate init?(_ row: Row) {
        func value<V: SQLiteValue>(_ column: AssetColumn) -> V { row.value(column.rawValue) }
        guard let folder: String = value(.pendingFolder), AssetRecord.isFolder(folder), let step = Step(rawValue: value(.pendingStep)),
            let digest = try? Checksum(value(.pendingDigest)), digest.algorithm == .sha256
        else { return nil }
        let manifest = AssetManifest(
            version: value(.pendingVersion), url: value(.pendingUrl), sha256: digest, size: value(.pendingSize),
            unpackedSize: value(.pendingUnpacked), timestamp: value(.pendingTimestamp),
            mirrors: (value(.pendingMirrors) as String).split(separator: "\n").map(String.init))
        self.init(manifest: manifest, folder: folder, step: step)
        download = (value(.pendingDownload) as UInt64?).map(DownloadNumber.init)
        source = Int(clamping: value(.pendingSource) as Int64)
        (isRunning, isBackground) = (value(.pendingIsRunning), value(.pendingIsBackground))
        unpacked = FolderSize(row, AssetColumn.pendingEntries.rawValue)
    }
}

extension FolderSize {
    /// nil: it is unknown, as in a row of an earlier version.
    fileprivate init?(_ row: Row, _ column: Int32) {
        guard let entries: UInt64 = row.value(column), let bytes: UInt64 = row.value(column +| 1) else { return nil }
        self.init(entries: entries, bytes: bytes)
    }
}
