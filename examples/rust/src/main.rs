// SPDX-License-Identifier: CC0-1.0
//! A client of Todoku with zbus 1.9, the version of Debian 12 (the package librust-zbus-dev).
//!
//! `todoku-client URL [FOLDER]` queues a download, shows its progress, and waits for its end. If the client is killed, the download
//! continues, and `todoku-client --again URL` waits for it; `--cancel URL` cancels it. The exit status is 0 if the download finished or was
//! cancelled by `--cancel`, 1 if it failed, and 69 if Todoku is missing. An existing file of the same name is replaced.
use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, process, thread};

use serde::{de::DeserializeOwned, Serialize};
use zbus::{Connection, Error, MessageType};
use zvariant::{OwnedObjectPath, OwnedValue, Type, Value};

const APP: &str = "org.example.RustClient";
const TODOKU: &str = "org.todoku.Downloader1";
const MANAGER: &str = "/org/todoku/Downloader1";
const DOWNLOAD: &str = "org.todoku.Download1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// The service exited or crashed before it answered.
const NO_REPLY: &str = "org.freedesktop.DBus.Error.NoReply";
const UNKNOWN_OBJECT: &str = "org.freedesktop.DBus.Error.UnknownObject";
/// Beginnings of names: the bus knows no such service, or cannot start it.
const MISSING: [&str; 3] = [
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.Spawn.",
    "org.freedesktop.systemd1.",
];
/// In a row: then the service does not work.
const MOST_LOSSES: u32 = 6;

type Options<'a> = HashMap<&'a str, Value<'a>>;

/// Whether the outcome has been printed: no progress comes after it.
static HAS_ENDED: Mutex<bool> = Mutex::new(false);

struct Client {
    bus: Connection,
    token: String,
    /// The path of the download.
    path: String,
}

impl Client {
    fn new(url: &str) -> zbus::Result<Client> {
        // A letter, then letters and digits (FNV-1a): such a token needs no escaping in the object path.
        let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let token = format!("url{:x}", hash);
        let app = APP.replace('.', "_2e");
        let path = format!("{}/download/by_token/{}/{}", MANAGER, app, token);
        let bus = Connection::new_session()?;
        Ok(Client { bus, token, path })
    }

    fn call<B, R>(&self, path: &str, interface: &str, method: &str, arguments: &B) -> zbus::Result<R>
    where
        B: Serialize + Type,
        R: DeserializeOwned + Type,
    {
        let reply = self.bus.call_method(Some(TODOKU), path, Some(interface), method, arguments)?;
        Ok(reply.body()?)
    }

    fn property(&self, name: &str) -> zbus::Result<OwnedValue> {
        self.call(&self.path, PROPERTIES, "Get", &(DOWNLOAD, name))
    }

    /// After the answer, the download is on disk. The token makes a repeated call return the same download.
    fn queue(&self, url: &str, folder: Option<&str>) -> zbus::Result<OwnedObjectPath> {
        self.remove_ended()?;
        let mut options = Options::new();
        options.insert("app", Value::from(APP));
        options.insert("token", Value::from(self.token.as_str()));
        options.insert("if-exists", Value::from("replace"));
        if let Some(folder) = folder {
            options.insert("directory", Value::from(folder));
        }
        self.call(MANAGER, TODOKU, "Download", &(url, options))
    }

    /// An ended download of an earlier run still has the token: the call Download would return it.
    fn remove_ended(&self) -> zbus::Result<()> {
        let state: String = match self.property("State") {
            Ok(value) => value.try_into()?,
            Err(error) if has_name(&error, UNKNOWN_OBJECT) => return Ok(()),
            Err(error) => return Err(error),
        };
        if ["finished", "failed", "cancelled"].contains(&state.as_str()) {
            self.call::<_, ()>(&self.path, DOWNLOAD, "Remove", &false)?;
        }
        Ok(())
    }

    /// Prints the progress and the waits that the service tells, on a thread and a connection of their own.
    fn follow_progress(&self) -> zbus::Result<()> {
        let bus = Connection::new_session()?;
        let rule = format!("type='signal',sender='{}',path='{}'", TODOKU, self.path);
        let driver = "org.freedesktop.DBus";
        bus.call_method(Some(driver), "/org/freedesktop/DBus", Some(driver), "AddMatch", &rule)?;
        thread::spawn(move || tell_signals(&bus));
        // Subscribe first, then read: a change between the two is reported twice rather than never.
        let received: u64 = self.property("Received")?.try_into()?;
        let total: i64 = self.property("Total")?.try_into()?;
        tell_progress(received, total);
        tell_wait(&String::try_from(self.property("WaitReason")?)?);
        Ok(())
    }

    /// Waits for the end; zbus sets no time limit. The download resumes with the service, and the next call starts the service.
    fn wait(&self) -> zbus::Result<String> {
        let mut losses = 0;
        loop {
            let asked = Instant::now();
            let error = match self.call(&self.path, DOWNLOAD, "Wait", &Options::new()) {
                Ok(file) => return Ok(file),
                Err(error) => error,
            };
            losses = if asked.elapsed() > Duration::from_secs(30) { 1 } else { losses + 1 };
            if !has_name(&error, NO_REPLY) || losses > MOST_LOSSES {
                return Err(error);
            }
            if losses > 1 {
                thread::sleep(Duration::from_secs(1 << (losses - 2)));
            }
        }
    }
}

fn tell_signals(bus: &Connection) -> zbus::Result<()> {
    loop {
        let message = bus.receive_message()?;
        let header = message.header()?;
        if header.message_type()? != MessageType::Signal {
            continue;
        }
        match header.member()? {
            Some("Progress") => {
                let (_written, received, total): (u64, u64, i64) = message.body()?;
                tell_progress(received, total);
            }
            Some("PropertiesChanged") => {
                let (_interface, changed, _gone): (String, HashMap<String, OwnedValue>, Vec<String>) = message.body()?;
                if let Some(Value::Str(reason)) = changed.get("WaitReason").map(|value| &**value) {
                    tell_wait(reason.as_str());
                }
            }
            _ => {}
        }
    }
}

fn tell_progress(received: u64, total: i64) {
    let has_ended = HAS_ENDED.lock().unwrap();
    if !*has_ended && received > 0 {
        println!("progress {} of {}", received, total); // the total is -1 while the server has not told it
    }
}

/// Says why the download waits. docs/dbus.md has the reasons; empty: it does not wait.
fn tell_wait(reason: &str) {
    let has_ended = HAS_ENDED.lock().unwrap();
    if !*has_ended && !reason.is_empty() {
        println!("waiting {}", reason);
    }
}

fn has_name(error: &Error, wanted: &str) -> bool {
    matches!(error, Error::MethodError(name, _, _) if name == wanted)
}

/// Returns the last line.
fn run(what: &str, url: &str, folder: Option<&str>) -> zbus::Result<String> {
    let client = Client::new(url)?;
    if what == "--cancel" {
        client.call::<_, ()>(&client.path, DOWNLOAD, "Cancel", &())?;
        return Ok(format!("cancelled {}", client.path));
    }
    if what.is_empty() {
        let queued = match client.queue(url, folder) {
            // The next call starts the service.
            Err(error) if has_name(&error, NO_REPLY) => client.queue(url, folder)?,
            result => result?,
        };
        println!("queued {}", queued.as_str());
    }
    match client.follow_progress() {
        Err(error) if !has_name(&error, NO_REPLY) => return Err(error),
        _ => Ok(format!("finished {}", client.wait()?)),
    }
}

/// An argument or a path as text.
fn text(name: OsString) -> String {
    name.into_string().unwrap_or_else(|_| {
        eprintln!("todoku-client: D-Bus carries only text in UTF-8");
        process::exit(64);
    })
}

fn main() {
    let mut given: Vec<String> = env::args_os().skip(1).map(text).collect();
    let has_word = given.first().map_or(false, |word| word == "--again" || word == "--cancel");
    let what = if has_word { given.remove(0) } else { String::new() };
    if given.is_empty() || given.len() > 2 {
        eprintln!("usage: todoku-client [--again | --cancel] URL [FOLDER]");
        process::exit(64);
    }
    // A relative name begins with the working folder.
    let current = env::current_dir().unwrap_or_default();
    let folder = given.get(1).map(|folder| text(current.join(folder).into_os_string()));
    let outcome = run(&what, &given[0], folder.as_deref());
    *HAS_ENDED.lock().unwrap() = true;
    match outcome {
        Ok(line) => println!("{}", line),
        Err(Error::MethodError(name, message, _)) => {
            let short = name.rsplit('.').next().unwrap_or_default();
            let is_missing = MISSING.iter().any(|beginning| name.starts_with(beginning));
            let cause = if is_missing { "Todoku is not installed, or cannot be started: " } else { "" };
            println!("failed {}: {}{}", short, cause, message.unwrap_or_default());
            process::exit(if is_missing { 69 } else { 1 });
        }
        Err(error) => {
            println!("failed Connection: {}", error);
            process::exit(1);
        }
    }
}
