internal import DownloadModel

extension DownloadRecord {
    /// Reads every column of a row of `download`, and of its row of `course` if there is one. Unreadable values do not lose the record: see
    /// `StoredState.records`.
    ///
    /// - Parameters:
    ///   - now: the end of a record that cannot be read in full, unless the row has one.
    ///   - model: the previous record, whose equal parts this record shares. Becomes this record.
    init(_ row: Row, course: Row?, now: WallTime, like model: inout RecordModel) {
        var reader = RecordReader(row: row, course: course)
        if let record = model.record, row.has(model.options, at: Column.options.rawValue) {
            self.init(
                number: DownloadNumber(reader.value(.number)), url: reader.value(.url), like: record,
                directory: row.has(model.directory, at: Column.directory.rawValue) ? record.directory : reader.value(.directory),
                state: reader.state(), queuedAt: reader.value(.queuedAt), position: reader.value(.position))
        } else {
            self.init(
                number: DownloadNumber(reader.value(.number)), url: reader.value(.url), options: reader.options(),
                directory: reader.value(.directory), state: reader.state(), queuedAt: reader.value(.queuedAt),
                position: reader.value(.position))
            // An unreadable record must not be the model, because the next record must note the fault too.
            model = reader.unreadable == nil ? RecordModel(self, reader.value(.options)) : RecordModel()
        }
        received = reader.value(.received)
        total = reader.value(.total)
        batch = (reader.value(.batch) as UInt64?).map(DownloadNumber.init)
        isFetch = reader.value(.isFetch)
        if course != nil { read(&reader) }
        if state == .finished, endedAt == nil { finish(now) }
        guard let column = reader.unreadable else { return }
        state = .failed(
            DownloadFailure(
                .storage,
                "The saved queue has a value in the column \"\(column)\" that this Todoku cannot read; add the download again."))
        endedAt = endedAt ?? now
        (lastFailure, owesToast) = (nil, false)
    }

    /// Completes a finished download without an end. Its row of `course`, which has the end and the final path, was lost in a damaged
    /// database, or another program has emptied it. A merely likely path must not be reported, because an app could take another file for
    /// the downloaded one.
    private mutating func finish(_ now: WallTime) {
        endedAt = now
        guard path == nil else { return }
        // A caller's file has no folder, and never had a path.
        guard !directory.isEmpty else { return isToDescriptor = true }
        // `rename` may have numbered the name, and a Fetch may have ended with an older file.
        if let name = options.fileName, FileName.isBare(name), options.ifExists != .rename, !isFetch, options.extract == nil {
            (fileName, path) = (name, (directory.hasSuffix("/") ? directory : directory + "/") + name)
            return
        }
        state = .failed(
            DownloadFailure(
                .storage,
                "The download had finished, but the damaged queue has lost its file’s name; look for the file in \(directory)."))
    }

    private mutating func read(_ reader: inout RecordReader) {
        startedAt = reader.course(.startedAt)
        endedAt = reader.course(.endedAt)
        attempts = reader.course(.attempts)
        retriesUsed = reader.course(.retriesUsed)
        fileName = reader.course(.fileName)
        mediaType = reader.course(.mediaType)
        path = reader.course(.path)
        source = reader.course(.source)
        proof = (reader.course(.proof) as String?).flatMap(FileProof.init)
        sources = (reader.course(.sources) as String?).map { [SourceRecord](storedText: $0) } ?? []
        resume = reader.resume()
        retryAt = reader.course(.retryAt)
        expiresAt = reader.course(.expiresAt)
        timeLeft = (reader.course(.timeLeft) as Int64?).map(Duration.microseconds)
        awaitsUrl = reader.course(.awaitsUrl)
        isSpliced = reader.course(.isSpliced)
        hasStartedOver = reader.course(.hasStartedOver)
        isWhole = reader.course(.isWhole)
        isUnchanged = reader.course(.isUnchanged)
        isToDescriptor = reader.course(.isToDescriptor)
        reminders.isAcknowledged = reader.course(.isAcknowledged)
        reminders.calls = reader.course(.activations)
        reminders.nextAt = reader.course(.activateAt)
        owesToast = reader.course(.owesToast)
        if !state.hasEnded { lastFailure = reader.lastFailure() }
    }
}

/// The previous record, with the bytes of its options and its directory.
struct RecordModel {
    fileprivate var record: DownloadRecord?
    fileprivate var options: [UInt8] = []
    fileprivate var directory: [UInt8] = []
    init() {}
    fileprivate init(_ record: DownloadRecord, _ options: String) {
        (self.record, self.options, directory) = (record, Array(options.utf8), Array(record.directory.utf8))
    }
}

/// Reads one row, with its row of `course`, and notes the first unreadable column.
private struct RecordReader {
    let row: Row
    let course: Row?
    private(set) var unreadable: String?

    init(row: Row, course: Row?) { (self.row, self.course) = (row, course) }

    func value<V: SQLiteValue>(_ column: Column) -> V { row.value(column.rawValue) }

    /// - Precondition: there is a row of `course`.
    func course<V: SQLiteValue>(_ column: CourseColumn) -> V { course!.value(column.rawValue) }

    private mutating func note(_ column: some TableColumn) { unreadable = unreadable ?? column.name }

    mutating func state() -> DownloadState {
        switch value(.state) as String {
        case "queued": return .queued
        case "waiting":
            let reason = WaitReason(rawValue: value(.waitReason))
            if reason == nil { note(Column.waitReason) }
            return .waiting(reason ?? .retry, until: value(.waitUntil))
        case "active": return .active
        case "paused": return .paused
        case "verifying": return .verifying
        case "extracting": return .extracting
        case "committing": return .committing
        case "finished": return .finished
        case "failed":
            if let failure = lastFailure() { return .failed(failure) }
            note(CourseColumn.failureName)
            return .paused
        case "cancelled": return .cancelled
        default:
            note(Column.state)
            return .paused
        }
    }

    /// The failure in the row of `course`; nil if there is none.
    mutating func lastFailure() -> DownloadFailure? {
        guard course != nil, let text: String = course(.failureName) else { return nil }
        let name = ErrorName(rawValue: text)
        if name == nil { note(CourseColumn.failureName) }
        var failure = DownloadFailure(
            name ?? .storage, course(.failureMessage), httpStatus: course(.failureStatus), host: course(.failureHost),
            isRetryable: course(.failureRetryable), retryAfter: (course(.failureRetryAfter) as Int64?).map(Duration.microseconds),
            wait: (course(.failureWait) as String?).flatMap(WaitReason.init), missingBytes: course(.failureMissing),
            neededRoom: course(.failureNeeded))
        failure.origin = course(.failureOrigin)
        return failure
    }

    /// nil also if a part is missing. The transfer then starts from 0, which is always right.
    func resume() -> ResumeData? {
        guard let written: ByteCount = course(.resumeWritten), let device: UInt64 = course(.resumeDevice),
            let inode: UInt64 = course(.resumeInode), let mount: UInt64 = course(.resumeMount), let boot: String = course(.resumeBoot)
        else { return nil }
        var ranges = ByteRanges(prefix: written)
        if let text: String = course(.resumeFurther) {
            guard let further = ByteRanges(text), !further.ranges.contains(where: { $0.lowerBound <= written }) else { return nil }
            for range in further.ranges { ranges.insert(range) }
        }
        var digest: Checksum?
        if let text: String = course(.resumeDigest) {
            // Without the digest, wrong bytes would go unnoticed.
            guard let stated = try? Checksum(text) else { return nil }
            digest = stated
        }
        let tag = (course(.resumeEntityTag) as String?).map(Validator.entityTag)
        return ResumeData(
            ranges: ranges, total: course(.resumeTotal),
            validator: tag ?? (course(.resumeLastModified) as String?).map(Validator.lastModified),
            identity: FileIdentity(device: device, inode: inode, mount: mount, boot: boot, born: course(.resumeBorn)), digest: digest,
            mirror: course(.resumeMirror))
    }

    mutating func options() -> DownloadOptions {
        let (options, isWhole) = OptionsText.read(value(.options))
        if !isWhole { note(Column.options) }
        return options
    }
}

extension WallTime: SQLiteInteger {
    init(stored: Int64) { self.init(microseconds: UInt64(stored: stored)) }
    var stored: Int64 { microseconds.stored }
}
