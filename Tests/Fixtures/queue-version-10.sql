-- A queue of version 10, as the program of 2026-11-26 (commit ebb50493) left it when it was killed, by ".dump". Its URLs and folders were
-- made general.
PRAGMA application_id = 1413761877;
PRAGMA user_version = 10;
BEGIN TRANSACTION;
CREATE TABLE setting (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO setting VALUES('next-number','8');
CREATE TABLE sweep (number INTEGER PRIMARY KEY, directory TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS "download" (
    number INTEGER PRIMARY KEY,
    state TEXT NOT NULL, wait_reason TEXT, wait_until INTEGER,
    position INTEGER NOT NULL, queued_at INTEGER NOT NULL, received INTEGER NOT NULL, total INTEGER,
    batch INTEGER, is_fetch INTEGER NOT NULL DEFAULT 0,
    url TEXT NOT NULL, directory TEXT NOT NULL, options TEXT NOT NULL
) STRICT;
INSERT INTO download VALUES(1,'finished',NULL,NULL,1048576,1795656093156422,70000,70000,NULL,0,'http://127.0.0.1:18471/small.bin','/home/a/Downloads',replace('directory=/home/a/Downloads\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(2,'finished',NULL,NULL,2097152,1795656095603213,70000,70000,NULL,0,'http://127.0.0.1:18471/small.bin?2','/home/a/Downloads',replace('directory=/home/a/Downloads\nchecksum=sha256:3407ade6efe6aa817f29b1d93b0af4af7142b1afae49facaede191f526f0a41e\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(3,'failed',NULL,NULL,3145728,1795656095636935,0,NULL,NULL,0,'http://127.0.0.1:18471/missing','/home/a/Downloads',replace('directory=/home/a/Downloads\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(4,'finished',NULL,NULL,4194304,1795656095670303,70000,70000,NULL,1,'http://127.0.0.1:18471/feed.xml','/home/a/Downloads',replace('directory=/home/a/Downloads\nonly-if-changed=true\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(5,'active',NULL,NULL,5242880,1795656095693005,5000000,12000000,NULL,0,'http://127.0.0.1:18471/slow-active.bin','/home/a/Downloads',replace('directory=/home/a/Downloads\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(6,'paused',NULL,NULL,6291456,1795656095723457,5000000,12000000,NULL,0,'http://127.0.0.1:18471/slow-paused.bin','/home/a/Downloads',replace('directory=/home/a/Downloads\nnotify=never\n','\n',char(10)));
INSERT INTO download VALUES(7,'paused',NULL,NULL,7340032,1795656095742511,0,NULL,NULL,0,'http://127.0.0.1:18471/later.bin','/home/a/Downloads',replace('directory=/home/a/Downloads\nchecksum=sha256:3407ade6efe6aa817f29b1d93b0af4af7142b1afae49facaede191f526f0a41e\nnotify=never\ntitle=日本\n','\n',char(10)));
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
, resume_born INTEGER, source TEXT, failure_origin TEXT, resume_further TEXT) STRICT;
INSERT INTO course VALUES(1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795656093170828,1795656095586109,3,0,NULL,NULL,NULL,0,0,0,1,0,0,0,0,NULL,0,70000,70000,'"v1"',NULL,65024,16236870,27,'2b7ba4b8-5283-4373-9756-04b7a656c4f4','small.bin','application/octet-stream','/home/a/Downloads/small.bin',1795656095569128068,NULL,NULL,NULL);
INSERT INTO course VALUES(2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795656095604079,1795656095617985,1,0,NULL,NULL,NULL,0,0,0,1,0,0,0,0,NULL,0,70000,70000,'"v1"',NULL,65024,16236899,27,'2b7ba4b8-5283-4373-9756-04b7a656c4f4','small.bin','application/octet-stream','/home/a/Downloads/small (1).bin',1795656095601128069,NULL,NULL,NULL);
INSERT INTO course VALUES(3,'HttpStatus','The server 127.0.0.1 answered 404 (Not Found).',404,'127.0.0.1',0,NULL,NULL,NULL,NULL,1795656095638169,1795656095642559,1,0,NULL,NULL,NULL,0,0,0,0,0,0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO course VALUES(4,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795656095671342,1795656095678714,1,0,NULL,NULL,NULL,0,0,0,1,0,0,0,0,NULL,0,70000,70000,'"v1"',NULL,65024,16236915,27,'2b7ba4b8-5283-4373-9756-04b7a656c4f4','feed.xml','application/octet-stream','/home/a/Downloads/feed.xml',1795656095673128071,NULL,NULL,NULL);
INSERT INTO course VALUES(5,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795656095697271,NULL,1,0,NULL,NULL,NULL,0,0,0,0,0,0,0,0,NULL,0,5000000,12000000,'"v1"',NULL,65024,16236916,27,'2b7ba4b8-5283-4373-9756-04b7a656c4f4','slow-active.bin','application/octet-stream',NULL,1795656095697128072,NULL,NULL,NULL);
INSERT INTO course VALUES(6,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795656095725140,NULL,1,0,NULL,NULL,NULL,0,0,0,0,0,0,0,0,NULL,0,5000000,12000000,'"v1"',NULL,65024,16237011,27,'2b7ba4b8-5283-4373-9756-04b7a656c4f4','slow-paused.bin','application/octet-stream',NULL,1795656095733128073,NULL,NULL,NULL);
CREATE TABLE request (host TEXT NOT NULL, spacing INTEGER NOT NULL, at INTEGER NOT NULL,
    is_sent INTEGER NOT NULL, PRIMARY KEY (host, spacing))
    STRICT, WITHOUT ROWID;
CREATE TABLE copy (
    id INTEGER PRIMARY KEY,
    app TEXT NOT NULL, url TEXT NOT NULL, directory TEXT NOT NULL, wanted_name TEXT NOT NULL,
    name TEXT NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
    device INTEGER NOT NULL, inode INTEGER NOT NULL, mount INTEGER NOT NULL, boot TEXT NOT NULL,
    entity_tag TEXT, last_modified TEXT, source TEXT, media_type TEXT, checksum TEXT, born INTEGER,
    UNIQUE (app, url, directory, wanted_name)
) STRICT;
INSERT INTO copy VALUES(1,'','http://127.0.0.1:18471/feed.xml','/home/a/Downloads','','feed.xml',70000,1795656095674094004,65024,16236915,27,'2b7ba4b8-5283-4373-9756-04b7a656c4f4','"v1"',NULL,'http://127.0.0.1:18471/feed.xml','application/octet-stream',NULL,1795656095673128071);
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
