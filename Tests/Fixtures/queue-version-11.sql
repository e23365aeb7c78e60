-- A queue of version 11, as the program of 2026-11-26 (commit 04f139b2) left it when it was killed, by ".dump". Its URLs and folders were
-- made general.
PRAGMA application_id = 1413761877;
PRAGMA user_version = 11;
BEGIN TRANSACTION;
CREATE TABLE setting (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO setting VALUES('next-number','6');
CREATE TABLE sweep (number INTEGER PRIMARY KEY, directory TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS "download" (
    number INTEGER PRIMARY KEY,
    state TEXT NOT NULL, wait_reason TEXT, wait_until INTEGER,
    position INTEGER NOT NULL, queued_at INTEGER NOT NULL, received INTEGER NOT NULL, total INTEGER,
    batch INTEGER, is_fetch INTEGER NOT NULL DEFAULT 0,
    url TEXT NOT NULL, directory TEXT NOT NULL, options TEXT NOT NULL
) STRICT;
INSERT INTO download VALUES(1,'finished',NULL,NULL,1048576,1795677632529859,70000,70000,NULL,0,'http://127.0.0.1:18472/small.bin','/home/a/Downloads',replace('directory=/home/a/Downloads\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(2,'finished',NULL,NULL,2097152,1795677633004322,70000,70000,NULL,0,'http://127.0.0.1:18472/plain.bin','/home/a/Downloads',replace('directory=/home/a/Downloads\nchecksum=sha256:fc7d2a9cfc3c3f5d57d9d57f61fad8eae6b2f5a50e316b577845cb9cb3354c0e\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(3,'failed',NULL,NULL,3145728,1795677633037907,0,NULL,NULL,0,'http://127.0.0.1:18472/missing','/home/a/Downloads',replace('directory=/home/a/Downloads\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(4,'active',NULL,NULL,4194304,1795677633074861,5000000,12000000,NULL,0,'http://127.0.0.1:18472/big.bin','/home/a/Downloads',replace('directory=/home/a/Downloads\nconnections=1\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(5,'paused',NULL,NULL,5242880,1795677647109746,0,NULL,NULL,0,'http://127.0.0.1:18472/later.bin','/home/a/Downloads',replace('directory=/home/a/Downloads\nnotify=never\ntitle=日本\n','\n',char(10)));
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
, resume_born INTEGER, source TEXT, failure_origin TEXT, resume_further TEXT, resume_digest TEXT, proof TEXT) STRICT;
INSERT INTO course VALUES(1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795677632545587,1795677632637130,1,0,NULL,NULL,NULL,0,0,0,1,0,0,0,0,NULL,0,70000,70000,'"v1"',NULL,65024,16556057,27,'d703f21f-2f69-44f3-969e-a86317445ff5','small.bin','application/octet-stream','/home/a/Downloads/small.bin',1795677632579640811,NULL,NULL,NULL,'sha256:fc7d2a9cfc3c3f5d57d9d57f61fad8eae6b2f5a50e316b577845cb9cb3354c0e','repr-digest');
INSERT INTO course VALUES(2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795677633010261,1795677633021677,1,0,NULL,NULL,NULL,0,0,0,1,0,0,0,0,NULL,0,70000,70000,'"v1"',NULL,65024,16556105,27,'d703f21f-2f69-44f3-969e-a86317445ff5','plain.bin','application/octet-stream','/home/a/Downloads/plain.bin',1795677633007640830,NULL,NULL,NULL,NULL,'checksum');
INSERT INTO course VALUES(3,'HttpStatus','The server 127.0.0.1 answered 404 (Not Found).',404,'127.0.0.1',0,NULL,NULL,NULL,NULL,1795677633039142,1795677633041410,1,0,NULL,NULL,NULL,0,0,0,0,0,0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO course VALUES(4,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795677633077866,NULL,1,0,NULL,NULL,NULL,0,0,0,0,0,0,0,0,NULL,0,5000000,12000000,'"v1"',NULL,65024,16556106,27,'d703f21f-2f69-44f3-969e-a86317445ff5','big.bin','application/octet-stream',NULL,1795677633095640834,NULL,NULL,NULL,'sha256:3fcc96715cc43322fc849699fd90af610d93f9636f21cd1e8dd9a19da8d15f29','length');
CREATE TABLE request (host TEXT NOT NULL, spacing INTEGER NOT NULL, at INTEGER NOT NULL,
    is_sent INTEGER NOT NULL, PRIMARY KEY (host, spacing))
    STRICT, WITHOUT ROWID;
CREATE TABLE copy (
    id INTEGER PRIMARY KEY,
    app TEXT NOT NULL, url TEXT NOT NULL, directory TEXT NOT NULL, wanted_name TEXT NOT NULL,
    name TEXT NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
    device INTEGER NOT NULL, inode INTEGER NOT NULL, mount INTEGER NOT NULL, boot TEXT NOT NULL,
    entity_tag TEXT, last_modified TEXT, source TEXT, media_type TEXT, checksum TEXT, born INTEGER, proof TEXT,
    UNIQUE (app, url, directory, wanted_name)
) STRICT;
CREATE TABLE batch (
    number INTEGER PRIMARY KEY, count INTEGER NOT NULL,
    app TEXT NOT NULL, directory TEXT NOT NULL, notify TEXT NOT NULL, title TEXT, body TEXT, icon TEXT, sound TEXT NOT NULL,
    removed_finished INTEGER NOT NULL, removed_failed INTEGER NOT NULL, removed_cancelled INTEGER NOT NULL,
    removed_bytes INTEGER NOT NULL, toast_owed_since INTEGER
) STRICT;
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
    removals TEXT NOT NULL, latest_timestamp INTEGER, checked_in TEXT, tried_at INTEGER, ready_at INTEGER, installed_entries INTEGER, installed_bytes INTEGER, previous_entries INTEGER, previous_bytes INTEGER, left_entries INTEGER, left_bytes INTEGER, pending_entries INTEGER, pending_bytes INTEGER,
    PRIMARY KEY (app, name)
) STRICT, WITHOUT ROWID;
COMMIT;
