internal import Localization

/// The sentences of rooms that know no language: Packing, Rehearsal, DownloadStore and Upkeep write English. The command looks for the
/// template of a sentence, and fills in the template's translation. A sentence without a template stays English.
extension Catalog {
    /// `written` in the user's language.
    func sentence(_ written: String) -> String {
        guard let texts = HelpCatalog(spoken) else { return written }
        return Self.sentence(written, texts)
    }

    private static func sentence(_ written: String, _ texts: HelpCatalog) -> String {
        for template in HelpTemplate.sentences {
            guard let parts = template.arguments(in: written[...]) else { continue }
            return texts.text(template.text, parts.map { HelpTemplate.reasons.contains($0) ? texts[$0] ?? $0 : $0 })
        }
        return written
    }
}

extension HelpTemplate {
    /// The first one that fits counts.
    fileprivate static let sentences = [packing, rehearsal, files, store, upkeep].flatMap(\.self)

    /// Packing. What the rules of archives refuse ends with the path in parentheses.
    private static let packing = [
        HelpTemplate("archives cannot be made here: %1$s"),
        HelpTemplate("archives cannot be compressed by %1$s here: %2$s"),
        HelpTemplate("the archive cannot be written: %1$s"),
        HelpTemplate("the archive cannot be written, at “%1$s”: %2$s"),
        HelpTemplate("“%1$s” is empty"),
        HelpTemplate("“%1$s” was changed while it was packed; try again"),
        HelpTemplate("“%1$s” cannot name files; give another --name, of at most 64 bytes"),
        HelpTemplate("the output “%1$s” lies in the folder that is packed; give another --output"),
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
    private static let reasonTemplates = [
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
    fileprivate static let reasons = Set(reasonTemplates.map(\.text))
}
