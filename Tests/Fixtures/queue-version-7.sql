-- A queue of version 7: that of queue-version-6.sql after the migration of 2026-11-24 (commit 36e3510), by ".dump". Number 3 has since
-- then received a range behind its first bytes.
PRAGMA application_id = 1413761877;
PRAGMA user_version = 7;
BEGIN TRANSACTION;
CREATE TABLE batch (
    number INTEGER PRIMARY KEY, count INTEGER NOT NULL,
    app TEXT NOT NULL, directory TEXT NOT NULL, notify TEXT NOT NULL, title TEXT, body TEXT, icon TEXT, sound TEXT NOT NULL,
    removed_finished INTEGER NOT NULL, removed_failed INTEGER NOT NULL, removed_cancelled INTEGER NOT NULL,
    removed_bytes INTEGER NOT NULL, toast_owed_since INTEGER
) STRICT;
CREATE TABLE copy (
    id INTEGER PRIMARY KEY,
    app TEXT NOT NULL, url TEXT NOT NULL, directory TEXT NOT NULL, wanted_name TEXT NOT NULL,
    name TEXT NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
    device INTEGER NOT NULL, inode INTEGER NOT NULL, mount INTEGER NOT NULL, boot TEXT NOT NULL,
    entity_tag TEXT, last_modified TEXT, source TEXT, media_type TEXT, checksum TEXT, born INTEGER,
    UNIQUE (app, url, directory, wanted_name)
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
, resume_born INTEGER, source TEXT, failure_origin TEXT, resume_further TEXT) STRICT;
INSERT INTO "course" VALUES(1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795399361145560,1795399361259086,1,0,NULL,NULL,NULL,0,0,0,1,0,0,0,0,NULL,0,70000,70000,'"v1"',NULL,65024,16318507,27,'d8edb55b-9013-432f-8d71-31b0f4417195','small.bin',NULL,'/home/a/Downloads/small.bin',1795399361207822845,NULL,NULL,NULL);
INSERT INTO "course" VALUES(2,'HttpStatus','The server 127.0.0.1 answered 404 (Not Found).',404,'127.0.0.1',0,NULL,NULL,NULL,NULL,1795399361230915,1795399361260984,1,0,NULL,NULL,NULL,0,0,0,0,0,0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "course" VALUES(3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795399361431998,NULL,1,0,NULL,NULL,NULL,0,0,0,0,0,0,0,0,NULL,0,4650000,12000000,'"v1"',NULL,65024,16318704,27,'d8edb55b-9013-432f-8d71-31b0f4417195','slow-active.bin',NULL,NULL,1795399361435822848,NULL,NULL,'5000000..<6000000');
INSERT INTO "course" VALUES(4,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795399361457146,NULL,1,0,NULL,NULL,NULL,0,0,0,0,0,0,0,0,NULL,0,3000000,12000000,'"v1"',NULL,65024,16318713,27,'d8edb55b-9013-432f-8d71-31b0f4417195','slow-paused.bin',NULL,NULL,1795399361461133105,NULL,NULL,NULL);
CREATE TABLE "download" (
    number INTEGER PRIMARY KEY,
    state TEXT NOT NULL, wait_reason TEXT, wait_until INTEGER,
    position INTEGER NOT NULL, queued_at INTEGER NOT NULL, received INTEGER NOT NULL, total INTEGER,
    batch INTEGER, is_fetch INTEGER NOT NULL DEFAULT 0,
    url TEXT NOT NULL, directory TEXT NOT NULL, options TEXT NOT NULL
) STRICT;
INSERT INTO "download" VALUES(1,'finished',NULL,NULL,1048576,1795399361141040,70000,70000,NULL,0,'http://127.0.0.1:18471/small.bin','/home/a/Downloads','directory=/home/a/Downloads
notify=never
');
INSERT INTO "download" VALUES(2,'failed',NULL,NULL,2097152,1795399361218946,0,NULL,NULL,0,'http://127.0.0.1:18471/none.bin','/home/a/Downloads','tag=a tag
directory=/home/a/Downloads
notify=never
');
INSERT INTO "download" VALUES(3,'active',NULL,NULL,3145728,1795399361403989,4650000,12000000,NULL,0,'http://127.0.0.1:18471/slow-active.bin','/home/a/Downloads','directory=/home/a/Downloads
notify=never
');
INSERT INTO "download" VALUES(4,'paused',NULL,NULL,4194304,1795399361455512,3000000,12000000,NULL,0,'http://127.0.0.1:18471/slow-paused.bin','/home/a/Downloads','directory=/home/a/Downloads
notify=never
header=X-Key: a b
');
INSERT INTO "download" VALUES(5,'paused',NULL,NULL,5242880,1795399365500215,0,NULL,NULL,0,'http://127.0.0.1:18471/later.bin','/home/a/Downloads','directory=/home/a/Downloads
checksum=sha256:0000000000000000000000000000000000000000000000000000000000000000
notify=never
title=日本
');
CREATE TABLE request (host TEXT NOT NULL, spacing INTEGER NOT NULL, at INTEGER NOT NULL,
    is_sent INTEGER NOT NULL, PRIMARY KEY (host, spacing))
    STRICT, WITHOUT ROWID;
CREATE TABLE setting (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "setting" VALUES('next-number','6');
CREATE TABLE sweep (number INTEGER PRIMARY KEY, directory TEXT NOT NULL) STRICT;
COMMIT;
