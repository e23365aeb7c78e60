internal import DownloadModel

extension DownloadRecord {
    /// Binds every column of `INSERT INTO download`.
    ///
    /// - Parameter options: the text of the record's options.
    func bind(to statement: borrowing Statement, options: String) throws(SQLiteError) {
        // Columns that are not bound below, such as the wait reason, are NULL.
        statement.clear()
        try statement.bind(number.value, Column.number)
        try state.bind(to: statement)
        try statement.bind(position, Column.position)
        try statement.bind(queuedAt, Column.queuedAt)
        try statement.bind(received, Column.received)
        try statement.bind(total, Column.total)
        try statement.bind(batch?.value, Column.batch)
        try statement.bind(isFetch, Column.isFetch)
        try statement.bind(url, Column.url)
        try statement.bind(directory, Column.directory)
        try statement.bind(options, Column.options)
    }

    /// Whether the record has a row of `course`.
    var hasCourse: Bool { !isUntouched || state.failure != nil }

    /// Binds every column of `INSERT INTO course`.
    func bindCourse(to statement: borrowing Statement) throws(SQLiteError) {
        // Columns that are not bound below, such as those of a failure, are NULL.
        statement.clear()
        try statement.bind(number.value, CourseColumn.number)
        try statement.bind(startedAt, CourseColumn.startedAt)
        try statement.bind(endedAt, CourseColumn.endedAt)
        try statement.bind(attempts, CourseColumn.attempts)
        try statement.bind(retriesUsed, CourseColumn.retriesUsed)
        try statement.bind(fileName, CourseColumn.fileName)
        try statement.bind(mediaType, CourseColumn.mediaType)
        try statement.bind(path, CourseColumn.path)
        try statement.bind(source, CourseColumn.source)
        try statement.bind(proof?.rawValue, CourseColumn.proof)
        if !sources.isEmpty { try statement.bind(sources.storedText, CourseColumn.sources) }
        try statement.bind(retryAt, CourseColumn.retryAt)
        try statement.bind(expiresAt, CourseColumn.expiresAt)
        try statement.bind(timeLeft?.microseconds, CourseColumn.timeLeft)
        try statement.bind(awaitsUrl, CourseColumn.awaitsUrl)
        try statement.bind(isSpliced, CourseColumn.isSpliced)
        try statement.bind(hasStartedOver, CourseColumn.hasStartedOver)
        try statement.bind(isWhole, CourseColumn.isWhole)
        try statement.bind(isUnchanged, CourseColumn.isUnchanged)
        try statement.bind(isToDescriptor, CourseColumn.isToDescriptor)
        try statement.bind(reminders.isAcknowledged, CourseColumn.isAcknowledged)
        try statement.bind(reminders.calls, CourseColumn.activations)
        try statement.bind(reminders.nextAt, CourseColumn.activateAt)
        try statement.bind(owesToast, CourseColumn.owesToast)
        try (state.failure ?? lastFailure)?.bind(to: statement)
        try resume?.bind(to: statement)
    }
}

extension DownloadState {
    /// The word in the column `state`: the contract's word, except that `committing` differs from `verifying`.
    var storedName: String { self == .committing ? "committing" : name }

    fileprivate func bind(to statement: borrowing Statement) throws(SQLiteError) {
        try statement.bind(storedName, Column.state)
        switch self {
        case .waiting(let reason, let until):
            try statement.bind(reason.rawValue, Column.waitReason)
            try statement.bind(until, Column.waitUntil)
        case .queued, .active, .paused, .verifying, .extracting, .committing, .finished, .failed, .cancelled: break
        }
    }
}

extension DownloadFailure {
    fileprivate func bind(to statement: borrowing Statement) throws(SQLiteError) {
        try statement.bind(name.rawValue, CourseColumn.failureName)
        try statement.bind(message, CourseColumn.failureMessage)
        try statement.bind(httpStatus, CourseColumn.failureStatus)
        try statement.bind(host, CourseColumn.failureHost)
        try statement.bind(isRetryable, CourseColumn.failureRetryable)
        try statement.bind(retryAfter?.microseconds, CourseColumn.failureRetryAfter)
        try statement.bind(wait?.rawValue, CourseColumn.failureWait)
        try statement.bind(missingBytes, CourseColumn.failureMissing)
        try statement.bind(neededRoom, CourseColumn.failureNeeded)
        try statement.bind(origin, CourseColumn.failureOrigin)
    }
}

extension ResumeData {
    fileprivate func bind(to statement: borrowing Statement) throws(SQLiteError) {
        try statement.bind(ranges.prefixEnd, CourseColumn.resumeWritten)
        let further = ByteRanges(ranges.ranges.drop { $0.lowerBound == 0 })
        if !further.isEmpty { try statement.bind(further.description, CourseColumn.resumeFurther) }
        try statement.bind(total, CourseColumn.resumeTotal)
        switch validator {
        case .entityTag(let tag): try statement.bind(tag, CourseColumn.resumeEntityTag)
        case .lastModified(let date): try statement.bind(date, CourseColumn.resumeLastModified)
        case nil: break
        }
        try statement.bind(identity.device, CourseColumn.resumeDevice)
        try statement.bind(identity.inode, CourseColumn.resumeInode)
        try statement.bind(identity.mount, CourseColumn.resumeMount)
        try statement.bind(identity.boot, CourseColumn.resumeBoot)
        try statement.bind(identity.born, CourseColumn.resumeBorn)
        try statement.bind(digest?.description, CourseColumn.resumeDigest)
        try statement.bind(mirror, CourseColumn.resumeMirror)
    }
}

extension Statement {
    fileprivate func bind(_ value: some SQLiteValue, _ column: some TableColumn) throws(SQLiteError) {
        try bind(value, at: column.rawValue)
    }
}
