#!/usr/bin/gjs -m
// SPDX-License-Identifier: CC0-1.0
// A client of Todoku in JavaScript, on plain Gio (GJS 1.74; the package gjs).
//
//   client.js [--again | --cancel] URL [FOLDER]
//
// It queues a download, shows its progress, and waits for its end. If the client is killed, the download continues, and --again waits for
// it; --cancel cancels it. The exit status is 0 if the download finished or was cancelled by --cancel, 1 if it failed, and 69 if Todoku is
// missing. An existing file of the same name is replaced. D-Bus carries only text in UTF-8; GJS itself ends on an argument that has other
// bytes.
import Gio from 'gi://Gio';
import GLib from 'gi://GLib';
import System from 'system';

const APP = 'org.example.JavaScriptClient';
const TODOKU = 'org.todoku.Downloader1';
const MANAGER = '/org/todoku/Downloader1';
const DOWNLOAD = 'org.todoku.Download1';
const PROPERTIES = 'org.freedesktop.DBus.Properties';
const NO_REPLY = 'org.freedesktop.DBus.Error.NoReply'; // the service exited or crashed before it answered
const UNKNOWN_OBJECT = 'org.freedesktop.DBus.Error.UnknownObject';
// Beginnings of names: the bus knows no such service, or cannot start it.
const MISSING = ['org.freedesktop.DBus.Error.ServiceUnknown', 'org.freedesktop.DBus.Error.Spawn.', 'org.freedesktop.systemd1.'];
const MOST_LOSSES = 6; // in a row: then the service does not work

const text = value => new GLib.Variant('s', value);

// GDBus puts the name of a D-Bus error before its message. Its own errors have no such name, but the name of their domain.
function nameAndMessage(error) {
    if (!(error instanceof GLib.Error))
        return [error.name, error.message];
    const name = Gio.DBusError.get_remote_error(error);
    return name ? [name, error.message.replace(`GDBus.Error:${name}: `, '')] : [GLib.quark_to_string(error.domain), error.message];
}

class Client {
    status = 1;
    losses = 0;
    loop = new GLib.MainLoop(null, false);

    constructor(url) {
        this.url = url;
        // A letter, then letters and digits: such a token needs no escaping in the object path.
        this.token = `url${GLib.compute_checksum_for_string(GLib.ChecksumType.SHA256, url, -1).slice(0, 32)}`;
        this.path = `${MANAGER}/download/by_token/${APP.replaceAll('.', '_2e')}/${this.token}`;
    }

    run(folder, what) {
        try {
            this.bus = Gio.bus_get_sync(Gio.BusType.SESSION, null);
            if (what === '--cancel')
                return this.cancel();
            // Subscribe first, then read: a change between the two is reported twice rather than never.
            this.bus.signal_subscribe(TODOKU, DOWNLOAD, 'Progress', this.path, null, Gio.DBusSignalFlags.NONE,
                (bus, sender, path, iface, signal, parameters) => this.progress(...parameters.deepUnpack().slice(1)));
            this.bus.signal_subscribe(TODOKU, PROPERTIES, 'PropertiesChanged', this.path, null, Gio.DBusSignalFlags.NONE,
                (bus, sender, path, iface, signal, parameters) => this.waits(parameters.recursiveUnpack()[1].WaitReason));
            if (!what)
                this.queue(folder);
            this.begin(PROPERTIES, 'GetAll', new GLib.Variant('(s)', [DOWNLOAD]), (bus, result) => this.described(bus, result));
            this.loop.run();
        } catch (error) {
            this.failed(error);
        }
        return this.status;
    }

    callOnce(path, iface, method, signature, ...values) {
        const parameters = new GLib.Variant(signature, values);
        const answer = this.bus.call_sync(TODOKU, path, iface, method, parameters, null, Gio.DBusCallFlags.NONE, 60_000, null);
        return answer.recursiveUnpack();
    }

    // Repeats the call once if the service exits before it answers. Only for calls that may be repeated.
    call(...call) {
        try {
            return this.callOnce(...call);
        } catch (error) {
            if (nameAndMessage(error)[0] !== NO_REPLY)
                throw error;
        }
        return this.callOnce(...call);
    }

    // After the answer, the download is on disk. The token makes a repeated call return the same download.
    queue(folder) {
        this.removeEnded();
        const options = {app: text(APP), token: text(this.token), 'if-exists': text('replace')};
        if (folder)
            options.directory = text(folder);
        print('queued', this.call(MANAGER, TODOKU, 'Download', '(sa{sv})', this.url, options)[0]);
    }

    // An ended download of an earlier run still has the token: the call Download would return it.
    removeEnded() {
        try {
            const [state] = this.call(this.path, PROPERTIES, 'Get', '(ss)', DOWNLOAD, 'State');
            if (['finished', 'failed', 'cancelled'].includes(state))
                this.call(this.path, DOWNLOAD, 'Remove', '(b)', false);
        } catch (error) {
            if (nameAndMessage(error)[0] !== UNKNOWN_OBJECT)
                throw error;
        }
    }

    progress(received, total) {
        if (received > 0)
            print(`progress ${received} of ${total}`); // the total is -1 while the server has not told it
    }

    // docs/dbus.md has the reasons; empty: it does not wait.
    waits(reason) {
        if (reason)
            print(`waiting ${reason}`);
    }

    // A repeated call would be refused if the first call did its work.
    cancel() {
        this.callOnce(this.path, DOWNLOAD, 'Cancel', '()');
        print('cancelled', this.path);
        return 0;
    }

    // Calls without blocking. Without the time limit G_MAXINT, GDBus would give up after 25 s. GJS knows the number as MAXINT32.
    begin(iface, method, parameters, then) {
        this.bus.call(TODOKU, this.path, iface, method, parameters, null, Gio.DBusCallFlags.NONE, GLib.MAXINT32, null, then);
    }

    // Callbacks come in order with the signals: this answer is newer than the signals before it. With a promise, it could come later.
    described(bus, result) {
        try {
            const [now] = bus.call_finish(result).recursiveUnpack();
            this.progress(now.Received, now.Total);
            this.waits(now.WaitReason);
        } catch (error) {
            if (nameAndMessage(error)[0] !== NO_REPLY)
                return this.failed(error);
        }
        return this.wait();
    }

    wait() {
        this.asked = GLib.get_monotonic_time();
        this.begin(DOWNLOAD, 'Wait', new GLib.Variant('(a{sv})', [{}]), (bus, result) => this.answered(bus, result));
    }

    answered(bus, result) {
        try {
            print('finished', bus.call_finish(result).recursiveUnpack()[0]);
            this.status = 0;
            this.loop.quit();
        } catch (error) {
            this.losses = GLib.get_monotonic_time() - this.asked > 30_000_000 ? 1 : this.losses + 1;
            if (nameAndMessage(error)[0] !== NO_REPLY || this.losses > MOST_LOSSES)
                return this.failed(error);
            // The download resumes with the service, and the next call starts the service.
            const pause = this.losses === 1 ? 0 : 1000 * 2 ** (this.losses - 2);
            GLib.timeout_add(GLib.PRIORITY_DEFAULT, pause, () => {
                this.wait();
                return GLib.SOURCE_REMOVE;
            });
        }
    }

    failed(error) {
        let [name, message] = nameAndMessage(error);
        if (MISSING.some(beginning => name.startsWith(beginning))) {
            message = `Todoku is not installed, or cannot be started: ${message}`;
            this.status = 69;
        }
        print(`failed ${name.split('.').pop()}: ${message}`);
        this.loop.quit();
    }
}

// A relative name begins with the working folder. GJS has no text for a name with other bytes than UTF-8, and throws.
function absolute(folder) {
    try {
        return folder && GLib.canonicalize_filename(folder, null);
    } catch {
        printerr('client.js: D-Bus carries only text in UTF-8');
        System.exit(64);
    }
}

const given = [...ARGV];
const what = ['--again', '--cancel'].includes(given[0]) ? given.shift() : '';
if (given.length < 1 || given.length > 2) {
    printerr('usage: client.js [--again | --cancel] URL [FOLDER]');
    System.exit(64);
}
const [url, folder] = given;
System.exit(new Client(url).run(absolute(folder), what));
