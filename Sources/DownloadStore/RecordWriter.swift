internal import DownloadModel

extension DownloadRecord {
    /// Binds every column of `INSERT INTO download`.
    func bind(to statement: borrowing Statement) throws(SQLiteError) {
        // Columns that are not bound below, as of a failure, are NULL.
        statement.clear()
        try statement.bind(number.value, .number)
        try statement.bind(position, .position)
        try statement.bind(queuedAt, .queuedAt)
        try statement.bind(startedAt, .startedAt)
        try statement.bind(endedAt, .endedAt)
        try statement.bind(attempts, .attempts)
        try statement.bind(retriesUsed, .retriesUsed)
        try statement.bind(received, .received)
        try statement.bind(total, .total)
        try statement.bind(url, .url)
        try statement.bind(directory, .directory)
        try statement.bind(fileName, .fileName)
        try statement.bind(mediaType, .mediaType)
        try statement.bind(path, .path)
        try statement.bind(retryAt, .retryAt)
        try statement.bind(expiresAt, .expiresAt)
        try statement.bind(timeLeft?.microseconds, .timeLeft)
        try statement.bind(awaitsUrl, .awaitsUrl)
        try statement.bind(isSpliced, .isSpliced)
        try statement.bind(hasStartedOver, .hasStartedOver)
        try statement.bind(isWhole, .isWhole)
        try statement.bind(batch?.value, .batch)
        try statement.bind(isFetch, .isFetch)
        try statement.bind(isUnchanged, .isUnchanged)
        try statement.bind(isToDescriptor, .isToDescriptor)
        try statement.bind(isAcknowledged, .isAcknowledged)
        try statement.bind(activations, .activations)
        try statement.bind(activateAt, .activateAt)
        try state.bind(to: statement)
        try (state.failure ?? lastFailure)?.bind(to: statement)
        try resume?.bind(to: statement)
        try options.bind(to: statement)
    }
}

extension DownloadState {
    /// The word in the column `state`; the contract's, but `committing` apart from `verifying`.
    var storedName: String { self == .committing ? "committing" : name }

    fileprivate func bind(to statement: borrowing Statement) throws(SQLiteError) {
        try statement.bind(storedName, .state)
        switch self {
        case .waiting(let reason, let until):
            try statement.bind(reason.rawValue, .waitReason)
            try statement.bind(until, .waitUntil)
        case .queued, .active, .paused, .verifying, .committing, .finished, .failed, .cancelled: break
        }
    }
}

extension DownloadFailure {
    fileprivate func bind(to statement: borrowing Statement) throws(SQLiteError) {
        try statement.bind(name.rawValue, .failureName)
        try statement.bind(message, .failureMessage)
        try statement.bind(httpStatus, .failureStatus)
        try statement.bind(host, .failureHost)
        try statement.bind(isRetryable, .failureRetryable)
        try statement.bind(retryAfter?.microseconds, .failureRetryAfter)
        try statement.bind(wait?.rawValue, .failureWait)
        try statement.bind(missingBytes, .failureMissing)
        try statement.bind(neededRoom, .failureNeeded)
    }
}

extension ResumeData {
    fileprivate func bind(to statement: borrowing Statement) throws(SQLiteError) {
        try statement.bind(written, .resumeWritten)
        try statement.bind(total, .resumeTotal)
        switch validator {
        case .entityTag(let tag): try statement.bind(tag, .resumeEntityTag)
        case .lastModified(let date): try statement.bind(date, .resumeLastModified)
        case nil: break
        }
        try statement.bind(identity.device, .resumeDevice)
        try statement.bind(identity.inode, .resumeInode)
        try statement.bind(identity.mount, .resumeMount)
        try statement.bind(identity.boot, .resumeBoot)
    }
}

extension DownloadOptions {
    fileprivate func bind(to statement: borrowing Statement) throws(SQLiteError) {
        try statement.bind(app, .app)
        try statement.bind(token, .token)
        try statement.bind(directory, .wantedDirectory)
        try statement.bind(fileName, .wantedFileName)
        try statement.bind(ifExists.rawValue, .ifExists)
        try statement.bind(HeaderField.text(of: headers), .headers)
        try statement.bind(userAgent, .userAgent)
        try statement.bind(referrer, .referrer)
        try statement.bind(username, .username)
        try statement.bind(password, .password)
        try statement.bind(checksum?.description, .checksum)
        try statement.bind(size, .size)
        try statement.bind(maxSize, .maxSize)
        try statement.bind(expectType, .expectType)
        try statement.bind(notBefore, .notBefore)
        try statement.bind(deadline?.microseconds, .deadline)
        try statement.bind(renewable, .renewable)
        try statement.bind(allowsMetered, .allowMetered)
        try statement.bind(requestInterval?.microseconds, .requestInterval)
        try statement.bind(onlyIfChanged, .onlyIfChanged)
        try statement.bind(activate, .activate)
        try statement.bind(start, .start)
        try statement.bind(priority, .priority)
        try statement.bind(speedLimit, .speedLimit)
        try statement.bind(stallTimeout.microseconds, .stallTimeout)
        try statement.bind(retries, .retries)
        try statement.bind(tag, .tag)
        try statement.bind(notify.rawValue, .notify)
        try statement.bind(notifyDelay.microseconds, .notifyDelay)
        try statement.bind(title, .title)
        try statement.bind(body, .body)
        try statement.bind(icon, .icon)
        try statement.bind(sound, .sound)
        try statement.bind(showProgress, .showProgress)
        try statement.bind(desktopID?.name, .desktopId)
        try statement.bind(metadata, .metadata)
    }
}

extension HeaderField {
    /// `Name: value` each, ended by CR LF.
    fileprivate static func text(of fields: [HeaderField]) -> String {
        fields.reduce(into: "") { $0 += "\($1.name): \($1.value)\r\n" }
    }
}

extension Duration {
    /// Whole microseconds; beyond 292,000 years the most that fits.
    var microseconds: Int64 {
        let (seconds, attoseconds) = components
        let (micros, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000)
        let (sum, carry) = micros.addingReportingOverflow(attoseconds / 1_000_000_000_000)
        return overflow || carry ? (seconds < 0 ? .min : .max) : sum
    }
}

extension Statement {
    fileprivate func bind(_ value: some SQLiteValue, _ column: Column) throws(SQLiteError) { try bind(value, at: column.rawValue) }
}
