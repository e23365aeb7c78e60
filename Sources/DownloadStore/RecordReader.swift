internal import DownloadModel

extension DownloadRecord {
    /// Reads every column of a row of `download`. What cannot be read does not lose the record: see `StoredState.records`.
    ///
    /// - Parameters:
    ///   - now: when a record that cannot be read whole is taken to have ended, unless the row says when.
    ///   - model: the record before: what is equal is shared with it. Becomes this one.
    init(_ row: Row, now: WallTime, like model: inout RecordModel) {
        var reader = RecordReader(row: row)
        if let record = model.record, row.matches(model.key, from: Column.app.rawValue) {
            self.init(
                number: DownloadNumber(reader.value(.number)), url: reader.value(.url), like: record,
                directory: reader.text(.directory, orEqual: record.directory), state: reader.state(), queuedAt: reader.value(.queuedAt),
                position: reader.value(.position))
        } else {
            self.init(
                number: DownloadNumber(reader.value(.number)), url: reader.value(.url), options: reader.options(),
                directory: reader.value(.directory), state: reader.state(), queuedAt: reader.value(.queuedAt),
                position: reader.value(.position))
            // One that could not be read is no model: the next has to be noted, too.
            if reader.unreadable == nil { model = RecordModel(key: reader.optionsKey(), record: self) } else { model = RecordModel() }
        }
        startedAt = reader.value(.startedAt)
        endedAt = reader.value(.endedAt)
        attempts = reader.value(.attempts)
        retriesUsed = reader.value(.retriesUsed)
        received = reader.value(.received)
        total = reader.value(.total)
        fileName = reader.value(.fileName)
        mediaType = reader.value(.mediaType)
        path = reader.value(.path)
        resume = reader.resume()
        retryAt = reader.value(.retryAt)
        expiresAt = reader.value(.expiresAt)
        timeLeft = (reader.value(.timeLeft) as Int64?).map(Duration.microseconds)
        awaitsUrl = reader.value(.awaitsUrl)
        isSpliced = reader.value(.isSpliced)
        hasStartedOver = reader.value(.hasStartedOver)
        isWhole = reader.value(.isWhole)
        batch = (reader.value(.batch) as UInt64?).map(DownloadNumber.init)
        isFetch = reader.value(.isFetch)
        isUnchanged = reader.value(.isUnchanged)
        isToDescriptor = reader.value(.isToDescriptor)
        isAcknowledged = reader.value(.isAcknowledged)
        activations = reader.value(.activations)
        activateAt = reader.value(.activateAt)
        if !state.hasEnded { lastFailure = reader.lastFailure() }
        guard let column = reader.unreadable else { return }
        state = .failed(
            DownloadFailure(
                .storage,
                "The saved queue has a value in the column \"\(column.name)\" that this Todoku cannot read; add the download again."))
        endedAt = endedAt ?? now
        lastFailure = nil
    }
}

/// What the options of a row looked like, and the record that they made.
struct RecordModel {
    fileprivate var key: [UInt8] = []
    fileprivate var record: DownloadRecord?
    init() {}
    fileprivate init(key: [UInt8], record: DownloadRecord) { (self.key, self.record) = (key, record) }
}

/// Reads one row and remembers the first column that it could not read.
private struct RecordReader {
    let row: Row
    private(set) var unreadable: Column?

    init(row: Row) { self.row = row }

    func value<V: SQLiteValue>(_ column: Column) -> V { row.value(column.rawValue) }

    /// The bytes of all columns of options: equal ones make equal options.
    func optionsKey() -> [UInt8] {
        var key: [UInt8] = []
        key.reserveCapacity(512)
        for column in Column.app.rawValue...Column.metadata.rawValue { row.append(column, to: &key) }
        return key
    }

    /// A text; `other` itself where it is equal.
    func text(_ column: Column, orEqual other: String) -> String {
        let text: String = value(column)
        return text == other ? other : text
    }

    private mutating func note(_ column: Column) { unreadable = unreadable ?? column }

    /// One of the words of an enumeration; `fallback` for any other.
    private mutating func word<V: RawRepresentable<String>>(_ column: Column, or fallback: V) -> V {
        if let word = V(rawValue: value(column)) { return word }
        note(column)
        return fallback
    }

    mutating func state() -> DownloadState {
        switch value(.state) as String {
        case "queued": return .queued
        case "waiting": return .waiting(word(.waitReason, or: .retry), until: value(.waitUntil))
        case "active": return .active
        case "paused": return .paused
        case "verifying": return .verifying
        case "committing": return .committing
        case "finished": return .finished
        case "failed": return .failed(failure())
        case "cancelled": return .cancelled
        default:
            note(.state)
            return .paused
        }
    }

    /// Why it waits, where that was said.
    mutating func lastFailure() -> DownloadFailure? { (value(.failureName) as String?) == nil ? nil : failure() }

    private mutating func failure() -> DownloadFailure {
        DownloadFailure(
            word(.failureName, or: .storage), value(.failureMessage), httpStatus: value(.failureStatus), host: value(.failureHost),
            isRetryable: value(.failureRetryable), retryAfter: (value(.failureRetryAfter) as Int64?).map(Duration.microseconds),
            wait: (value(.failureWait) as String?).flatMap(WaitReason.init), missingBytes: value(.failureMissing),
            neededRoom: value(.failureNeeded))
    }

    /// nil also where something of it is missing: the transfer then starts from 0, which is always right.
    func resume() -> ResumeData? {
        guard let written: ByteCount = value(.resumeWritten), let device: UInt64 = value(.resumeDevice),
            let inode: UInt64 = value(.resumeInode), let mount: UInt64 = value(.resumeMount), let boot: String = value(.resumeBoot)
        else { return nil }
        let tag = (value(.resumeEntityTag) as String?).map(Validator.entityTag)
        return ResumeData(
            written: written, total: value(.resumeTotal),
            validator: tag ?? (value(.resumeLastModified) as String?).map(Validator.lastModified),
            identity: FileIdentity(device: device, inode: inode, mount: mount, boot: boot))
    }

    mutating func options() -> DownloadOptions {
        var options = DownloadOptions()
        options.app = value(.app)
        options.token = value(.token)
        options.directory = value(.wantedDirectory)
        options.fileName = value(.wantedFileName)
        options.ifExists = word(.ifExists, or: options.ifExists)
        options.headers = headers()
        options.userAgent = value(.userAgent)
        options.referrer = value(.referrer)
        options.username = value(.username)
        options.password = value(.password)
        options.checksum = checksum()
        options.size = value(.size)
        options.maxSize = value(.maxSize)
        options.expectType = value(.expectType)
        options.notBefore = value(.notBefore)
        options.deadline = (value(.deadline) as Int64?).map(Duration.microseconds)
        options.renewable = value(.renewable)
        options.allowsMetered = value(.allowMetered)
        options.requestInterval = (value(.requestInterval) as Int64?).map(Duration.microseconds)
        options.onlyIfChanged = value(.onlyIfChanged)
        options.activate = value(.activate)
        options.start = value(.start)
        options.priority = value(.priority)
        options.speedLimit = value(.speedLimit)
        options.stallTimeout = .microseconds(value(.stallTimeout) as Int64)
        options.retries = value(.retries)
        options.tag = value(.tag)
        options.notify = word(.notify, or: options.notify)
        options.notifyDelay = .microseconds(value(.notifyDelay) as Int64)
        options.title = value(.title)
        options.body = value(.body)
        options.icon = value(.icon)
        options.sound = value(.sound)
        options.showProgress = value(.showProgress)
        options.desktopID = desktopID()
        options.metadata = value(.metadata)
        return options
    }

    private mutating func checksum() -> Checksum? {
        guard let text: String = value(.checksum) else { return nil }
        if let checksum = try? Checksum(text) { return checksum }
        note(.checksum)
        return Checksum(.sha256, digest: [UInt8](repeating: 0, count: Checksum.Algorithm.sha256.length))
    }

    private mutating func desktopID() -> DesktopID? {
        guard let text: String = value(.desktopId) else { return nil }
        if let id = DesktopID(text) { return id }
        note(.desktopId)
        return nil
    }

    /// Lines as `RecordWriter` wrote them.
    private mutating func headers() -> [HeaderField] {
        let text: String = value(.headers)
        guard !text.isEmpty else { return [] }
        var fields: [HeaderField] = []
        // Scalars: CR LF is one Character.
        for line in text.unicodeScalars.split(separator: "\n") {
            guard line.last == "\r", let colon = line.firstIndex(of: ":"), line[line.index(after: colon)...].first == " " else {
                note(.headers)
                return []
            }
            let value = line[line.index(colon, offsetBy: 2)...].dropLast()
            fields.append(HeaderField(name: String(line[..<colon]), value: String(value)))
        }
        return fields
    }
}

extension WallTime: SQLiteInteger {
    init(stored: Int64) { self.init(microseconds: UInt64(stored: stored)) }
    var stored: Int64 { microseconds.stored }
}
