/// The tables, as a list of steps. A later version appends a step; released steps never change.
enum Schema {
    /// "TDKU": distinguishes our databases from others (`PRAGMA application_id`).
    static let applicationID: Int64 = 0x5444_4B55

    /// The version that this program reads and writes (`PRAGMA user_version`).
    static let version = Int64(steps.count)

    private static let courseOfVersion2 = """
        number, failure_name, failure_message, failure_status, failure_host, failure_retryable, failure_retry_after, failure_wait,
        failure_missing, failure_needed, started_at, ended_at, attempts, retries_used, retry_at, expires_at, time_left, awaits_url, is_spliced,
        has_started_over, is_whole, resume_written, resume_total, resume_entity_tag, resume_last_modified, resume_device, resume_inode,
        resume_mount, resume_boot, file_name, media_type, path
        """

    /// Step n leads from version n to n + 1.
    ///
    /// Instants are microseconds since the Unix epoch, durations microseconds, sizes bytes, speeds bytes per second. Numbers that are
    /// unsigned in the model are stored as their bit pattern. NULL: none, unknown.
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
        // Adds the wait reason of a download, its expiry, and the part files that must still be deleted. From here on, the part file itself
        // tells which file was being verified.
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
        // Rows of waiting downloads become small, and quick to read: the options are one text without the defaults (`OptionsText`). Values
        // that only a started or ended download has are in a row of `course`. Also adds batches, conditional requests, cached copies (an
        // empty wanted_name: none; the highest id is the newest), callers' descriptors, owner calls, and owed toasts.
        """
        CREATE TABLE lean (
            number INTEGER PRIMARY KEY,
            state TEXT NOT NULL, wait_reason TEXT, wait_until INTEGER,
            position INTEGER NOT NULL, queued_at INTEGER NOT NULL, received INTEGER NOT NULL, total INTEGER,
            batch INTEGER, is_fetch INTEGER NOT NULL DEFAULT 0,
            url TEXT NOT NULL, directory TEXT NOT NULL, options TEXT NOT NULL
        ) STRICT;
        CREATE TABLE course (
            number INTEGER PRIMARY KEY,
            failure_name TEXT, failure_message TEXT, failure_status INTEGER, failure_host TEXT,
            failure_retryable INTEGER, failure_retry_after INTEGER, failure_wait TEXT, failure_missing INTEGER, failure_needed INTEGER,
            started_at INTEGER, ended_at INTEGER, attempts INTEGER NOT NULL, retries_used INTEGER NOT NULL,
            retry_at INTEGER, expires_at INTEGER, time_left INTEGER,
            awaits_url INTEGER NOT NULL, is_spliced INTEGER NOT NULL, has_started_over INTEGER NOT NULL, is_whole INTEGER NOT NULL,
            is_unchanged INTEGER NOT NULL DEFAULT 0, is_to_descriptor INTEGER NOT NULL DEFAULT 0,
            is_acknowledged INTEGER NOT NULL DEFAULT 0, activations INTEGER NOT NULL DEFAULT 0, activate_at INTEGER,
            owes_toast INTEGER NOT NULL DEFAULT 0,
            resume_written INTEGER, resume_total INTEGER, resume_entity_tag TEXT, resume_last_modified TEXT,
            resume_device INTEGER, resume_inode INTEGER, resume_mount INTEGER, resume_boot TEXT,
            file_name TEXT, media_type TEXT, path TEXT
        ) STRICT;
        INSERT INTO lean SELECT number, state, wait_reason, wait_until, position, queued_at, received, total, NULL, 0, url, directory,
            \(OptionsText.ofVersion2) FROM download;
        INSERT INTO course (\(courseOfVersion2)) SELECT \(courseOfVersion2) FROM download;
        DROP TABLE download;
        ALTER TABLE lean RENAME TO download;
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
            removed_bytes INTEGER NOT NULL, toast_owed_since INTEGER
        ) STRICT;
        """,
        // Adds the time when a file was created, because another file may get the same inode.
        """
        ALTER TABLE course ADD COLUMN resume_born INTEGER;
        ALTER TABLE copy ADD COLUMN born INTEGER;
        """,
        // Adds the URL that the bytes come from, after redirects.
        """
        ALTER TABLE course ADD COLUMN source TEXT;
        """,
        // Adds the server that asked for a pause, after redirects.
        """
        ALTER TABLE course ADD COLUMN failure_origin TEXT;
        """,
        // Adds the ranges of the part file behind its first bytes (`resume_written`), in the format of `ByteRanges`, because several
        // connections may write one file. NULL: none. A row of an earlier version stays valid.
        """
        ALTER TABLE course ADD COLUMN resume_further TEXT;
        """,
        // Assets. NULL in `installed_version`: nothing is installed; in `pending_folder`: no update is under way.
        """
        CREATE TABLE asset (
            app TEXT NOT NULL, name TEXT NOT NULL, manifest_url TEXT NOT NULL, directory TEXT NOT NULL, options TEXT NOT NULL,
            public_key BLOB NOT NULL, updates TEXT NOT NULL,
            installed_version TEXT, installed_folder TEXT, installed_digest TEXT, installed_timestamp INTEGER,
            previous_version TEXT, previous_folder TEXT, previous_digest TEXT, previous_timestamp INTEGER,
            left_version TEXT, left_folder TEXT, left_digest TEXT, left_timestamp INTEGER,
            skipped TEXT, latest TEXT, is_obsolete INTEGER NOT NULL, checked_at INTEGER,
            pending_folder TEXT, pending_step TEXT, pending_download INTEGER, pending_source INTEGER, pending_is_running INTEGER,
            pending_is_background INTEGER, pending_version TEXT, pending_url TEXT, pending_digest TEXT, pending_size INTEGER,
            pending_unpacked INTEGER, pending_timestamp INTEGER, pending_mirrors TEXT,
            is_rolling_back INTEGER NOT NULL, is_leaving INTEGER NOT NULL, deletes_data INTEGER NOT NULL, is_cancelled INTEGER NOT NULL,
            owes_call INTEGER NOT NULL, last_folder INTEGER NOT NULL,
            failure_name TEXT, failure_message TEXT, failure_status INTEGER, failure_retryable INTEGER,
            removals TEXT NOT NULL,
            PRIMARY KEY (app, name)
        ) STRICT, WITHOUT ROWID;
        """,
        // Adds what decides when an asset is checked without a call, whether its latest version is newer, and how old an owed call is.
        """
        ALTER TABLE asset ADD COLUMN latest_timestamp INTEGER;
        ALTER TABLE asset ADD COLUMN checked_in TEXT;
        ALTER TABLE asset ADD COLUMN tried_at INTEGER;
        ALTER TABLE asset ADD COLUMN ready_at INTEGER;
        """,
        // Adds what was unpacked into the folder of each version, because somebody may delete files of it. NULL: unknown, as in a row of an
        // earlier version.
        """
        ALTER TABLE asset ADD COLUMN installed_entries INTEGER;
        ALTER TABLE asset ADD COLUMN installed_bytes INTEGER;
        ALTER TABLE asset ADD COLUMN previous_entries INTEGER;
        ALTER TABLE asset ADD COLUMN previous_bytes INTEGER;
        ALTER TABLE asset ADD COLUMN left_entries INTEGER;
        ALTER TABLE asset ADD COLUMN left_bytes INTEGER;
        ALTER TABLE asset ADD COLUMN pending_entries INTEGER;
        ALTER TABLE asset ADD COLUMN pending_bytes INTEGER;
        """,
        // Adds the digest that the server stated of the bytes in the part file, and by what a file was proved. NULL: no digest; by nothing,
        // or the row is of an earlier version.
        """
        ALTER TABLE course ADD COLUMN resume_digest TEXT;
        ALTER TABLE course ADD COLUMN proof TEXT;
        ALTER TABLE copy ADD COLUMN proof TEXT;
        """,
        // Adds what is known of the sources (`SourceRecord`), and the mirror that the bytes in the part file belong to. NULL: nothing; the
        // URL of the download. The mirrors themselves are in the options.
        """
        ALTER TABLE course ADD COLUMN sources TEXT;
        ALTER TABLE course ADD COLUMN resume_mirror INTEGER;
        """,
    ]
}

/// The columns of a table, in the order of the statements' parameters and results. The table's own order may differ.
protocol TableColumn: CaseIterable, RawRepresentable<Int32> {}

/// The columns that every download has.
enum Column: Int32, TableColumn {
    case number, state, waitReason, waitUntil, position, queuedAt, received, total, batch, isFetch, url, directory, options
}

/// The columns that only a started or ended download has.
enum CourseColumn: Int32, TableColumn {
    case number
    case failureName, failureMessage, failureStatus, failureHost, failureRetryable, failureRetryAfter, failureWait, failureMissing,
        failureNeeded, failureOrigin
    case startedAt, endedAt, attempts, retriesUsed, retryAt, expiresAt, timeLeft, awaitsUrl, isSpliced, hasStartedOver, isWhole
    case isUnchanged, isToDescriptor, isAcknowledged, activations, activateAt, owesToast
    case resumeWritten, resumeFurther, resumeTotal, resumeEntityTag, resumeLastModified, resumeDevice, resumeInode, resumeMount, resumeBoot,
        resumeBorn, resumeDigest, resumeMirror
    case fileName, mediaType, path, source, proof, sources
}

extension TableColumn {
    /// The name in the schema, such as `wait_reason`.
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

    static var names: String { allCases.map(\.name).joined(separator: ", ") }
    static var parameters: String { allCases.map { _ in "?" }.joined(separator: ", ") }
}
