/// The tables, as a list of steps. A later version appends one; what has been released is never changed.
enum Schema {
    /// "TDKU": tells our databases from others (`PRAGMA application_id`).
    static let applicationID: Int64 = 0x5444_4B55

    /// The version that this program reads and writes (`PRAGMA user_version`).
    static let version = Int64(steps.count)

    /// Step n leads from version n to n + 1.
    ///
    /// Instants are microseconds since the Unix epoch, durations microseconds, sizes bytes, speeds bytes per second. Numbers that are
    /// unsigned in the model are kept by their bit pattern. NULL: none, unknown.
    static let steps = [
        """
        CREATE TABLE download (
            number INTEGER PRIMARY KEY,
            state TEXT NOT NULL,
            wait_reason TEXT, wait_until INTEGER,
            failure_name TEXT, failure_message TEXT, failure_status INTEGER, failure_host TEXT,
            failure_retryable INTEGER, failure_retry_after INTEGER,
            position INTEGER NOT NULL,
            queued_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER,
            attempts INTEGER NOT NULL, retries_used INTEGER NOT NULL,
            received INTEGER NOT NULL, total INTEGER,
            resume_written INTEGER, resume_total INTEGER, resume_entity_tag TEXT, resume_last_modified TEXT,
            resume_device INTEGER, resume_inode INTEGER, resume_mount INTEGER, resume_boot TEXT,
            url TEXT NOT NULL, directory TEXT NOT NULL, file_name TEXT, media_type TEXT, path TEXT,
            app TEXT NOT NULL, token TEXT, wanted_directory TEXT, wanted_file_name TEXT, if_exists TEXT NOT NULL,
            headers TEXT NOT NULL, user_agent TEXT, referrer TEXT, username TEXT, password TEXT,
            checksum TEXT, size INTEGER, max_size INTEGER, start INTEGER NOT NULL, priority INTEGER NOT NULL,
            speed_limit INTEGER, stall_timeout INTEGER NOT NULL, retries INTEGER NOT NULL,
            tag TEXT NOT NULL, notify TEXT NOT NULL, title TEXT, body TEXT, icon TEXT, sound TEXT NOT NULL,
            show_progress INTEGER NOT NULL, metadata BLOB NOT NULL
        ) STRICT;
        CREATE TABLE setting (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
        """,
        // What a download waits for and by when it expires; part files that are still to be deleted. Which file was being verified is asked
        // of the part file itself from here on.
        """
        ALTER TABLE download ADD COLUMN failure_wait TEXT;
        ALTER TABLE download ADD COLUMN failure_missing INTEGER;
        ALTER TABLE download ADD COLUMN failure_needed INTEGER;
        ALTER TABLE download ADD COLUMN retry_at INTEGER;
        ALTER TABLE download ADD COLUMN expires_at INTEGER;
        ALTER TABLE download ADD COLUMN time_left INTEGER;
        ALTER TABLE download ADD COLUMN awaits_url INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN is_spliced INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN has_started_over INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN is_whole INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN expect_type TEXT;
        ALTER TABLE download ADD COLUMN not_before INTEGER;
        ALTER TABLE download ADD COLUMN deadline INTEGER;
        ALTER TABLE download ADD COLUMN renewable INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE sweep (number INTEGER PRIMARY KEY, directory TEXT NOT NULL) STRICT;
        UPDATE download SET retry_at = wait_until WHERE state = 'waiting' AND wait_reason = 'retry';
        UPDATE download SET is_spliced = 1 WHERE received > 0;
        """,
        // Batches, conditional requests and the copies held (an empty wanted_name: none; the highest id is the newest), descriptors of callers, owners that are called.
        """
        ALTER TABLE download ADD COLUMN allow_metered INTEGER NOT NULL DEFAULT 1;
        ALTER TABLE download ADD COLUMN request_interval INTEGER;
        ALTER TABLE download ADD COLUMN only_if_changed INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN activate TEXT;
        ALTER TABLE download ADD COLUMN notify_delay INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN desktop_id TEXT;
        ALTER TABLE download ADD COLUMN batch INTEGER;
        ALTER TABLE download ADD COLUMN is_fetch INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN is_unchanged INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN is_to_descriptor INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN is_acknowledged INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN activations INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE download ADD COLUMN activate_at INTEGER;
        CREATE TABLE request (host TEXT NOT NULL, spacing INTEGER NOT NULL, at INTEGER NOT NULL,
            is_sent INTEGER NOT NULL, PRIMARY KEY (host, spacing))
            STRICT, WITHOUT ROWID;
        CREATE TABLE copy (
            id INTEGER PRIMARY KEY,
            app TEXT NOT NULL, url TEXT NOT NULL, directory TEXT NOT NULL, wanted_name TEXT NOT NULL,
            name TEXT NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
            device INTEGER NOT NULL, inode INTEGER NOT NULL, mount INTEGER NOT NULL, boot TEXT NOT NULL,
            entity_tag TEXT, last_modified TEXT, source TEXT, media_type TEXT, checksum TEXT,
            UNIQUE (app, url, directory, wanted_name)
        ) STRICT;
        CREATE TABLE batch (
            number INTEGER PRIMARY KEY, count INTEGER NOT NULL,
            app TEXT NOT NULL, directory TEXT NOT NULL, notify TEXT NOT NULL, title TEXT, body TEXT, icon TEXT, sound TEXT NOT NULL,
            removed_finished INTEGER NOT NULL, removed_failed INTEGER NOT NULL, removed_cancelled INTEGER NOT NULL,
            removed_bytes INTEGER NOT NULL
        ) STRICT;
        """,
    ]
}

/// The columns of `download`; their order is that of the statements' parameters and results, not the table's.
enum Column: Int32, CaseIterable {
    case number, state, waitReason, waitUntil
    case failureName, failureMessage, failureStatus, failureHost, failureRetryable, failureRetryAfter, failureWait, failureMissing,
        failureNeeded
    case retryAt, expiresAt, timeLeft, awaitsUrl, isSpliced, hasStartedOver, isWhole
    case batch, isFetch, isUnchanged, isToDescriptor, isAcknowledged, activations, activateAt
    case position, queuedAt, startedAt, endedAt, attempts, retriesUsed, received, total
    case resumeWritten, resumeTotal, resumeEntityTag, resumeLastModified, resumeDevice, resumeInode, resumeMount, resumeBoot
    case url, directory, fileName, mediaType, path
    case app, token, wantedDirectory, wantedFileName, ifExists, headers, userAgent, referrer, username, password
    case checksum, size, maxSize, expectType, notBefore, deadline, renewable, allowMetered, requestInterval,
        onlyIfChanged, activate, start, priority, speedLimit, stallTimeout, retries
    case tag, notify, notifyDelay, title, body, icon, sound, showProgress, desktopId, metadata

    /// As in the schema: `wait_reason`.
    var name: String {
        var name: [UInt8] = []
        for byte in "\(self)".utf8 {
            if (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) {
                name += [UInt8(ascii: "_"), byte | 0x20]
            } else {
                name.append(byte)
            }
        }
        return String(decoding: name, as: UTF8.self)
    }

    static let names = allCases.map(\.name).joined(separator: ", ")
    static let parameters = allCases.map { _ in "?" }.joined(separator: ", ")
}
