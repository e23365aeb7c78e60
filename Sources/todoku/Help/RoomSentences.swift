internal import DownloadModel
internal import Localization
internal import Upkeep

/// The sentences of rooms that know no language: Packing, Rehearsal, DownloadStore, Upkeep and DownloadModel write English. The command
/// looks for the template of a sentence, and fills in the template's translation. A sentence without a template stays English. What Upkeep
/// examines comes as phrases, which are templates with their arguments.
extension Catalog {
    /// Read with the first sentence.
    private static let japaneseSentences = HelpCatalog(.japanese)

    /// `written` in the user's language.
    func sentence(_ written: String) -> String {
        guard spoken == .japanese, let texts = Self.japaneseSentences else { return written }
        return Self.sentence(written, texts, HelpTemplate.sentences)
    }

    /// `phrase` in the user's language. Texts of the system in it stay as they are.
    func sentence(_ phrase: Phrase) -> String {
        guard spoken == .japanese, let texts = Self.japaneseSentences else { return phrase.english }
        return Self.sentence(phrase, texts)
    }

    private static func sentence(_ written: String, _ texts: HelpCatalog, _ templates: [HelpTemplate]) -> String {
        for template in templates {
            guard let parts = template.arguments(in: written[...]) else { continue }
            // An argument may itself be a sentence, or a reason.
            return texts.text(template.text, parts.map { sentence($0, texts, templates) })
        }
        return written
    }

    private static func sentence(_ phrase: Phrase, _ texts: HelpCatalog) -> String {
        guard !phrase.isForeign, texts[phrase.template] != nil else { return sentence(phrase.english, texts, HelpTemplate.examined) }
        return texts.text(
            phrase.template,
            phrase.arguments.map { argument in
                switch argument {
                case .quoted(let text): text
                case .phrase(let phrase): sentence(phrase, texts)
                }
            })
    }
}

extension HelpTemplate {
    /// The first one that fits counts.
    fileprivate static let sentences = [packing, rehearsal, scenarios, files, store, reasons, upkeep, refusals].flatMap(\.self)

    /// Packing. What the rules of archives refuse ends with the path in parentheses.
    private static let packing = [
        HelpTemplate("archives cannot be made here: %1$s"),
        HelpTemplate("archives cannot be compressed by %1$s here: %2$s"),
        HelpTemplate("the archive cannot be written: %1$s"),
        HelpTemplate("the archive cannot be written, at “%1$s”: %2$s"),
        HelpTemplate("“%1$s” is empty"),
        HelpTemplate("“%1$s” was changed while it was packed; try again"),
        HelpTemplate("“%1$s” cannot name files; give another --name, of at most 64 bytes"),
        HelpTemplate("the output “%1$s” lies in the folder that is packed; give another %2$s"),
        HelpTemplate("“%1$s.json” is signed, and a manifest without --key would not be; give the key, or --force"),
        HelpTemplate("“%1$s” is there and is no manifest; give another --name or --output, or --force"),
        HelpTemplate(
            "the archive has %1$s, and its files %2$s: of so small an archive, Todoku unpacks at most %3$s; use --compression none"),
        HelpTemplate("the digest of the archive cannot be computed: %1$s"),
        HelpTemplate("the service would refuse this. %1$s"),
        HelpTemplate("version %1$s is there already with other contents, which apps would keep; give another --version, or --force"),
        HelpTemplate("“%1$s” has a name that is not UTF-8; rename it"),
        HelpTemplate("“%1$s” is a link to a name that is not UTF-8"),
        HelpTemplate("libcrypto cannot use Ed25519 here"),
        HelpTemplate("libcrypto could not sign the manifest"),
        HelpTemplate("“%1$s” is no Ed25519 private key: it has more than %2$s bytes, or cannot be read"),
        HelpTemplate("“%1$s” is no Ed25519 private key that can be used: %2$s"),
        HelpTemplate("the manifest is signed but has no time: an old one could be played back. --timestamp prevents that"),
        HelpTemplate("the manifest is older than the one before (%1$s): apps that have that version ignore it"),
        HelpTemplate("the manifest before had a time, and this one has none: an old one could be played back"),
        HelpTemplate("“%1$s” has a control character in its name (in %2$s)"),
        HelpTemplate("“%1$s” is a device (in %2$s)"),
        HelpTemplate("“%1$s” is a named pipe (in %2$s)"),
        HelpTemplate("“%1$s” is a socket (in %2$s)"),
        HelpTemplate("“%1$s” is neither file, folder nor link (in %2$s)"),
        HelpTemplate("“%1$s” would run as another user or group (set-user-ID, set-group-ID) (in %2$s)"),
        HelpTemplate("“%1$s” has the name of another entry but for upper and lower case (in %2$s)"),
        HelpTemplate("“%1$s” is a link with an unusable target (in %2$s)"),
        HelpTemplate("“%1$s” has a name of more than %2$s bytes (in %3$s)"),
        HelpTemplate("“%1$s” has a path of more than %2$s bytes (in %3$s)"),
        HelpTemplate("“%1$s” lies more than %2$s folders deep (in %3$s)"),
        HelpTemplate("“%1$s” is a link to the absolute path \"%2$s\" (in %3$s)"),
        HelpTemplate("“%1$s” is a link out of the archive, to \"%2$s\" (in %3$s)"),
        HelpTemplate("“%1$s” is a link with \"..\" behind a name, to \"%2$s\" (in %3$s)"),
        HelpTemplate("the folder has more than %1$s files, links and folders (in %2$s)"),
    ]

    /// Rehearsal.
    private static let rehearsal = [
        HelpTemplate("“%1$s” is too long for a socket in it; set TMPDIR to a shorter folder"),
        HelpTemplate("dbus-daemon is not installed (package dbus-daemon in Debian)"),
        HelpTemplate("dbus-daemon cannot be started: %1$s"),
        HelpTemplate("dbus-daemon does not start; --log FILE keeps what it says"),
        HelpTemplate(
            "a small disk cannot be mounted in a chroot; name a folder on a small disk, such as full-disk:disk=/dev/shm in a container"),
        HelpTemplate(
            "a small disk cannot be mounted: %1$s; allow unprivileged user namespaces, or name a folder on a small disk, such as full-disk:disk=/dev/shm in a container"
        ),
        HelpTemplate("the disk of “%1$s” has %2$s free, and this scenario fills it; name one with at most 256 MiB free"),
        HelpTemplate("“%1$s” is in a hidden folder, which the service does not use as its download folder; name another folder"),
        HelpTemplate("processes cannot be watched: %1$s"),
        HelpTemplate("TMPDIR must be an absolute path, not “%1$s”"),
        HelpTemplate("there is no scenario “%1$s”; “todoku rehearse --list” has them all"),
        HelpTemplate("“%1$s” is no parameter: write KEY=VALUE, with a comma between two"),
        HelpTemplate("“%1$s” is given twice"),
        HelpTemplate("“disk” must be an absolute path, not “%1$s”"),
        HelpTemplate("“%1$s” of “%2$s” must be a number from %3$s to %4$s, not “%5$s”"),
        HelpTemplate("“%1$s” has no parameter “%2$s”; it has none"),
        HelpTemplate("“%1$s” has no parameter “%2$s”; it has %3$s"),
        HelpTemplate("“%1$s” has no parameter “%2$s”; %3$s"),
        HelpTemplate("port %1$s of 127.0.0.1 cannot be used: %2$s"),
        HelpTemplate("the private bus cannot be watched: %1$s"),
        HelpTemplate("the service does not tell its downloads: %1$s"),
    ]

    /// The scenarios of Rehearsal and their parameters.
    private static let scenarios = [
        HelpTemplate("Nothing goes wrong; shows that the test itself works."),
        HelpTemplate("The server answers 503 with Retry-After: 0, and sends the file later."),
        HelpTemplate("The server answers 404."),
        HelpTemplate("Nothing listens at the server's port for a while."),
        HelpTemplate("The server sends a part of the file, and then nothing more."),
        HelpTemplate("The server sends few bytes a second."),
        HelpTemplate("The connection ends in the middle of the file."),
        HelpTemplate("The file on the server changes while it is downloaded."),
        HelpTemplate("The bytes that arrive are not those whose digest the server states."),
        HelpTemplate("The link expires in the middle of the file: 403 for every URL without “?renewed”."),
        HelpTemplate("A captive portal answers with its login page in place of the file."),
        HelpTemplate("Redirects lead in circles."),
        HelpTemplate("The disk of the download folder is full."),
        HelpTemplate("The service is killed (kill -9) in the middle of a file, and the bus starts it again."),
        HelpTemplate("requests of each file that are refused; 0: all"),
        HelpTemplate("the status"),
        HelpTemplate("seconds in the field Retry-After"),
        HelpTemplate("how long, from the first failed request on; 0: always"),
        HelpTemplate("bytes of an answer that come first"),
        HelpTemplate("answers of each file that stall; 0: all"),
        HelpTemplate("bytes per second of an answer"),
        HelpTemplate("answers of each file that break off; 0: all"),
        HelpTemplate("bytes of the old version that come first"),
        HelpTemplate("answers of each file that are damaged; 0: all"),
        HelpTemplate("bytes that come before the link expires"),
        HelpTemplate("requests of each file that the portal takes; 0: all"),
        HelpTemplate("1: 302 leads to the page; 0: the page comes at once"),
        HelpTemplate("bytes that the disk has left"),
        HelpTemplate("when there is room again, from the first wait for it on; 0: never"),
        HelpTemplate("the folder of a small disk that exists, to fill instead"),
        HelpTemplate("bytes of an answer that the service has when it is killed"),
        HelpTemplate("how often the service is killed; 0: at each answer that is long enough"),
    ]

    /// Packing and Rehearsal about files.
    private static let files = [
        HelpTemplate("“%1$s” cannot be read: %2$s"),
        HelpTemplate("“%1$s” cannot be opened: %2$s"),
        HelpTemplate("“%1$s” cannot be written: %2$s"),
        HelpTemplate("“%1$s” cannot be made: %2$s"),
        HelpTemplate("“%1$s” cannot have a folder made in it: %2$s"),
        HelpTemplate("“%1$s” cannot be used as a disk: %2$s"),
        HelpTemplate("“%1$s” cannot be used as a folder: %2$s"),
        HelpTemplate("“%1$s” cannot fill the disk: %2$s"),
        HelpTemplate("“%1$s” could not be removed"),
    ]

    /// DownloadStore.
    private static let store = [
        HelpTemplate("There is no database %1$s yet, so there is nothing to copy."),
        HelpTemplate("%1$s exists already; choose another name."),
        HelpTemplate("%1$s is in the way: another backup is being written, or one was interrupted. Delete the file and try again."),
        HelpTemplate("The log of the database %1$s is damaged; start Todoku, which saves what it can."),
        HelpTemplate("The registrations for pushes are too large for a backup; end some of them and try again."),
        HelpTemplate("The backup %1$s cannot be read: %2$s."),
        HelpTemplate("The backup %1$s is not a file."),
        HelpTemplate("The backup %1$s is damaged: %2$s."),
        HelpTemplate("%1$s is no backup, because %2$s has some of its changes; choose a file of todoku backup."),
        HelpTemplate("The database %1$s is damaged: %2$s; it is set aside when Todoku starts again."),
        HelpTemplate("The database %1$s is damaged: %2$s."),
        HelpTemplate("The database %1$s cannot be read: %2$s."),
        HelpTemplate("The database %1$s is not a file."),
        HelpTemplate("The database %1$s could not be copied to %2$s: %3$s."),
        HelpTemplate("The database %1$s could not be used: %2$s."),
        HelpTemplate("The database %1$s is of a newer Todoku (version %2$s; this one reads %3$s); update Todoku."),
        HelpTemplate("The file %1$s is not a database of Todoku."),
        HelpTemplate("Another program holds the database %1$s; close it and try again."),
        HelpTemplate("Another Todoku uses the folder %1$s; end it and try again."),
        HelpTemplate("Todoku may not write the database %1$s: %2$s; check who owns it and whether its file system is read-only."),
        HelpTemplate("There is not enough room to %1$s in %2$s; free some and try again."),
        HelpTemplate("Todoku cannot %1$s in %2$s: %3$s."),
    ]

    /// Arguments of the sentences: what is wrong with a key, and what DownloadStore and Upkeep could not do.
    private static let reasons = [
        HelpTemplate("it is encrypted; decrypt it first"),
        HelpTemplate("it is neither PKCS #8 in PEM nor 64 hexadecimal digits"),
        HelpTemplate("save the queue"),
        HelpTemplate("keep the queue"),
        HelpTemplate("make a folder"),
        HelpTemplate("set the permissions"),
        HelpTemplate("open the database"),
        HelpTemplate("open the lock"),
        HelpTemplate("take the lock"),
        HelpTemplate("write the copy"),
        HelpTemplate("write the queue"),
        HelpTemplate("delete the log"),
        HelpTemplate("set the damaged database aside"),
        HelpTemplate("save the rows of the damaged database"),
        HelpTemplate("read the id of the part files"),
        HelpTemplate("be used"),
        HelpTemplate("be locked"),
        HelpTemplate("be flushed"),
        HelpTemplate("be emptied"),
    ]

    /// Upkeep.
    private static let upkeep = [
        HelpTemplate("The bus does not tell which process owns %1$s."),
        HelpTemplate("%1$s owns %2$s, but is not %3$s; end it first."),
        HelpTemplate("%1$s cannot be ended: %2$s."),
        HelpTemplate("%1$s has not ended within %2$s seconds."),
        HelpTemplate("Another todoku-push uses the folder %1$s; end it and try again."),
        HelpTemplate("The folder %1$s cannot be read: %2$s; check its permissions."),
        HelpTemplate("The folder %1$s cannot %2$s: %3$s."),
        HelpTemplate("The registrations for pushes cannot be saved in %1$s: %2$s; remove the cause and restore again."),
        HelpTemplate("With those of the backup there would be more than %1$s registrations for pushes; end some of them first."),
    ]

    /// What Upkeep repeats of other rooms when it examines a machine. The most general templates come last, because the first one that fits
    /// counts.
    fileprivate static let examined = [
        // PartFiles: why a folder takes no download.
        HelpTemplate("\"%1$s\" is not an absolute path"),
        HelpTemplate("the path is too long, or has a NUL in it"),
        HelpTemplate("%1$s is hidden, or in a hidden folder"),
        HelpTemplate("%1$s is a symbolic link of another user"),
        HelpTemplate("%1$s has too many symbolic links on its way"),
        HelpTemplate("%1$s is not a folder"),
        HelpTemplate("%1$s does not exist"),
        HelpTemplate("%1$s cannot be made: %2$s"),
        HelpTemplate("%1$s cannot be entered: %2$s"),
        HelpTemplate("%1$s cannot be used: %2$s"),
        HelpTemplate("%1$s cannot be written: %2$s"),
        // DownloadStore: what is damaged in a database.
        HelpTemplate("acknowledged changes lie behind a fault of its log"),
        HelpTemplate("it is not one of Todoku's databases"),
        HelpTemplate("its pages cannot be checked"),
        // Desktop: what toasts can do.
        HelpTemplate("toasts can be clicked, %1$s, %2$s"),
        HelpTemplate("toasts cannot be clicked, %1$s, %2$s"),
        HelpTemplate("a toast shows progress"),
        HelpTemplate("no toast shows progress"),
        HelpTemplate("the server plays the sound"),
        HelpTemplate("Todoku plays the sound"),
        // Desktop and DownloadModel: why a proxy is not known.
        HelpTemplate("the answer names no proxy"),
        HelpTemplate("the answer is not a URL"),
        HelpTemplate("the answer names no host"),
        HelpTemplate("%1$s is not a kind of proxy that Todoku knows"),
        HelpTemplate("the desktop’s settings could not be read within %1$s s"),
        HelpTemplate("no portal (xdg-desktop-portal) is there to run the proxy script"),
        HelpTemplate("no script to test the proxy scripts with could be written in %1$s"),
        HelpTemplate("GLib’s runner of proxy scripts (glib-networking) is not installed"),
        HelpTemplate("GLib’s runner of proxy scripts (glib-networking) cannot be started"),
        HelpTemplate("GLib cannot run the proxy script, because libproxy has no engine (Debian: libproxy1-plugin-webkit)"),
        HelpTemplate("the proxy mode that gsettings prints is not understood"),
        HelpTemplate("the list of hosts without a proxy that gsettings prints is not understood"),
        HelpTemplate("the %1$s proxy that gsettings prints is not understood"),
        HelpTemplate("gsettings, which reads the desktop’s settings, is not installed"),
        HelpTemplate("gsettings failed"),
        HelpTemplate("Todoku does not know the ProxyType in kioslaverc"),
        HelpTemplate("a proxy in kioslaverc is blank"),
        HelpTemplate("%1$s is not a dconf database"),
        HelpTemplate("GLib’s runner of proxy scripts"),
        HelpTemplate("the portal"),
        // DBus.
        HelpTemplate("nobody accepts connections at %1$s"),
        HelpTemplate("nothing answers at %1$s"),
        HelpTemplate("no answer from the bus"),
        HelpTemplate("the bus is gone"),
        HelpTemplate("%1$s did not answer within %2$s s"),
        HelpTemplate("%1$s answered %2$s with (%3$s), not (%4$s)"),
        HelpTemplate("%1$s answered %2$s"),
        HelpTemplate("%1$s cannot be read"),
    ]

    /// What DownloadModel refuses: values that the command reads before it calls the service. Keys of options are replaced by flags.
    private static let refusals = [
        // A checksum or the hashes of pieces, behind the name of the option. An input file of aria2 has no flag.
        HelpTemplate("%1$s: there is no \":\" after the algorithm; write it as in sha256:<hexadecimal digits>."),
        HelpTemplate("%1$s: Todoku does not know the algorithm; use one of %2$s."),
        HelpTemplate("%1$s: a character after the \":\" is not a hexadecimal digit."),
        HelpTemplate("%1$s: %2$s has %3$s hexadecimal digits, and %4$s were given."),
        HelpTemplate("%1$s: write it as in sha256:<bytes of a piece>:<hexadecimal digits of all digests>."),
        HelpTemplate("%1$s: the length of a piece is not a number of bytes above 0."),
        HelpTemplate("%1$s: the digests are not hexadecimal digits, %2$s for each digest of %3$s."),
        HelpTemplate("--piece-hashes takes at most %1$s bytes of digests."),
        // A proxy. It may be wrong as a URL is.
        HelpTemplate("--proxy must be a URL with its scheme, such as http://host:3128, socks5h://host:1080 or direct://."),
        HelpTemplate("--proxy has a host after direct://, which means no proxy; leave the host out."),
        HelpTemplate("--proxy has a scheme that Todoku does not know; use one of %1$s, direct."),
        HelpTemplate("--proxy has a path or a query; leave it out."),
        HelpTemplate("--proxy has a blank or a character outside ASCII; write the password with percent-encoding."),
        HelpTemplate(
            "--proxy has a user name or password that cannot be sent; percent-encode special characters, and use no control character, nor a colon in the name."
        ),
        HelpTemplate("--proxy: %1$s"),
        // A header of an input file of aria2.
        HelpTemplate("--header: “%1$s” is not a header name."),
        HelpTemplate("--header: the value of “%1$s” holds a line break."),
        HelpTemplate("--header: %1$s is set by the service itself."),
        HelpTemplate("--header takes at most %1$s bytes."),
        // A line of a cookie file.
        HelpTemplate("The line is a comment."),
        HelpTemplate("The line has a control character in it."),
        HelpTemplate("A cookie has 7 fields between tabs, and this line has %1$s."),
        HelpTemplate("Field 1, “%1$s”, is not the name or address of a host."),
        HelpTemplate("Field 3, the path, must begin with “/” and have at most 1,024 bytes."),
        HelpTemplate("Field 4 must be TRUE, because the name “%1$s” promises https."),
        HelpTemplate("Field 5, the expiry, must be a number of seconds since 1970, or 0."),
        HelpTemplate("Field 6, the name, must not be empty, and has no “=”, no “;” and no space."),
        HelpTemplate("Field 7, the value of “%1$s”, has a “;” in it."),
        HelpTemplate("Field %1$s must be TRUE or FALSE."),
        HelpTemplate("Name and value of “%1$s” have more than %2$s bytes."),
        HelpTemplate("The name “%1$s” needs FALSE as field 2 and the path “/”."),
        // A URL of a list.
        HelpTemplate("This is not an absolute URL; write it with its scheme, as in https://example.org/file."),
        HelpTemplate("%1$s: only http and https can be downloaded."),
        HelpTemplate("The URL is longer than %1$s bytes, which is the limit."),
        HelpTemplate("The URL has a control character in it, such as a line break; copy it again."),
        HelpTemplate("The URL has no \"//\" after \"%1$s:\"; write it as in https://example.org/file."),
        HelpTemplate("The URL has a backslash before its path, where programs disagree about its host; write \"/\"."),
        HelpTemplate("The URL has no host; write it as in https://example.org/file."),
        HelpTemplate("The URL has something other than a port after the brackets of its host."),
        HelpTemplate("The port in the URL is not a number from 1 to 65535."),
        HelpTemplate("The URL's host in brackets is not an IPv6 address."),
        HelpTemplate("The URL's host has characters outside ASCII; give its xn-- form."),
        HelpTemplate(
            "The URL's host has a character that no host name has; only letters, digits, \"-\", \"_\" and \".\" are allowed."),
        HelpTemplate("The URL's host has an empty or too long part between its dots."),
        HelpTemplate("The URL's host is neither a name nor an IPv4 address of four decimal numbers."),
        HelpTemplate(
            "The user name or password in the URL has a character that must be percent-encoded; encode it, or give --user."),
        HelpTemplate("The user name or password in the URL has a control character in it."),
        HelpTemplate("The user name in the URL has a colon in it."),
        // The name of an asset.
        HelpTemplate("An asset belongs to an application id such as org.example.App, of at most %1$s characters, not to “%2$s”."),
        HelpTemplate(
            "An asset has a name of 1 to %1$s characters of A–Z, a–z, 0–9, “.”, “-” and “_” that begins with a letter or a digit, not “%2$s”."
        ),
    ]
}
