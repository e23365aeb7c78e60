// SPDX-License-Identifier: CC0-1.0
//! A client of Todoku with zbus 1.9, the version of Debian 12 (the package librust-zbus-dev).
//!
//! `todoku-client URL [FOLDER]` queues a download, shows its progress, and waits for its end. If the client is killed, the download
//! continues, and `todoku-client --again URL` waits for it. The exit status is 0 if the download finished, and 1 if it failed.
use std::collections::HashMap;
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
        if let Some(folder) = folder {
            let directory = env::current_dir()?.join(folder);
            options.insert("directory", Value::from(directory.to_string_lossy().into_owned()));
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

    /// Prints the progress that the service tells, on a thread and a connection of their own.
    fn follow_progress(&self) -> zbus::Result<()> {
        let bus = Connection::new_session()?;
        let rule = format!(
            "type='signal',sender='{}',interface='{}',member='Progress',path='{}'",
            TODOKU, DOWNLOAD, self.path
        );
        let driver = "org.freedesktop.DBus";
        bus.call_method(Some(driver), "/org/freedesktop/DBus", Some(driver), "AddMatch", &rule)?;
        thread::spawn(move || tell_signals(&bus));
        // Subscribe first, then read: a change between the two is reported twice rather than never.
        let received: u64 = self.property("Received")?.try_into()?;
        let total: i64 = self.property("Total")?.try_into()?;
        tell_progress(received, total);
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
        if header.message_type()? == MessageType::Signal && header.member()? == Some("Progress") {
            let (_written, received, total): (u64, u64, i64) = message.body()?;
            tell_progress(received, total);
        }
    }
}

fn tell_progress(received: u64, total: i64) {
    let has_ended = HAS_ENDED.lock().unwrap();
    if !*has_ended && received > 0 {
        println!("progress {} of {}", received, total); // the total is -1 while the server has not told it
    }
}

fn has_name(error: &Error, wanted: &str) -> bool {
    matches!(error, Error::MethodError(name, _, _) if name == wanted)
}

fn run(url: &str, folder: Option<&str>, again: bool) -> zbus::Result<String> {
    let client = Client::new(url)?;
    if !again {
        let queued = match client.queue(url, folder) {
            // The next call starts the service.
            Err(error) if has_name(&error, NO_REPLY) => client.queue(url, folder)?,
            result => result?,
        };
        println!("queued {}", queued.as_str());
    }
    match client.follow_progress() {
        Err(error) if !has_name(&error, NO_REPLY) => return Err(error),
        _ => client.wait(),
    }
}

fn main() {
    let mut given: Vec<String> = env::args().skip(1).collect();
    let again = given.first().map(String::as_str) == Some("--again");
    if again {
        given.remove(0);
    }
    if given.is_empty() || given.len() > 2 {
        eprintln!("usage: todoku-client [--again] URL [FOLDER]");
        process::exit(64);
    }
    let outcome = run(&given[0], given.get(1).map(String::as_str), again);
    *HAS_ENDED.lock().unwrap() = true;
    match outcome {
        Ok(file) => println!("finished {}", file),
        Err(Error::MethodError(name, message, _)) => {
            let short = name.rsplit('.').next().unwrap_or_default();
            println!("failed {}: {}", short, message.unwrap_or_default());
            process::exit(1);
        }
        Err(error) => {
            println!("failed Connection: {}", error);
            process::exit(1);
        }
    }
}
