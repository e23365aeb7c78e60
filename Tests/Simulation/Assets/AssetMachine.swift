// SPDX-License-Identifier: Apache-2.0
import Assets
import DownloadModel

/// An asset, and the directory that its files are in.
struct AssetSite {
    let key: AssetKey
    let directory: String

    func archive(of folder: String) -> String { "\(directory)/\(AssetRecord.archive(of: folder))" }
}

/// An asset's directory, without its archives: those are files of `Disk`.
struct AssetDirectory {
    /// What an extraction has made under its provisional name, and its journal.
    struct Unfinished {
        /// The inode of the archive.
        let archive: UInt64
        /// The halves that are unpacked, and those that a power cut leaves.
        var halves = 0
        var durable = 0
    }

    /// The folder that the link leads to.
    var link: String?
    /// The versions in their folders; 0: only a part of one.
    var versions: [String: Int] = [:]
    var unfinished: [String: Unfinished] = [:]
    /// Extractions that give the same answer again, because their journals are still there.
    var journals: Set<String> = []
    /// Folders that have their names, and whose files are not flushed.
    var loose: Set<String> = []
    /// The folder that the link led to before its last switch. Programs may have it open.
    var held: String?
    /// The link leads to a version that was never installed: the switch to it failed after the rename, or when it was repeated after a
    /// power cut.
    var isUntold = false
    /// Somebody has deleted the link or the version that it led to, and no switch has followed.
    var isBroken = false
    /// Folders that somebody has deleted, and folders that an unregistration has left to the application.
    var deleted: Set<String> = []
    var released: Set<String> = []
    /// An unregistration did not wait for the disk, which was away.
    var isLeftAlone = false
}

/// Work in the pool for an asset. Each piece does one thing on the disk; its report is another piece, so that a power cut may come between.
enum AssetWork {
    /// What a power cut may bring back.
    enum Undo {
        case archive(String, File)
        case unfinished(String, AssetDirectory.Unfinished)
        case version(String, Int)
        case link(String)
    }

    case prepare(AssetRecord, AssetUpdater.CallNumber)
    case look(AssetSite, AssetUpdater.Ticket, isBackground: Bool)
    case read(AssetSite, AssetUpdater.Ticket, manifest: String, signature: String?)
    case space(AssetSite, AssetUpdater.Ticket)
    case extract(AssetSite, folder: String, AssetManifest)
    /// The folder has its name, and the directory is not flushed.
    case named(AssetSite, folder: String)
    case switchLink(AssetSite, folder: String)
    /// The link leads to the folder, and the directory is not flushed.
    case linked(AssetSite, folder: String, was: String?, held: String?, wasBroken: Bool)
    case remove(AssetSite, AssetRemoval, phase: Int, Undo?)
    case deleteData(AssetSite, [String], phase: Int, Undo?)
    case callOwner(AssetKey)
    case deleteManifests([String])

    /// The folder that nothing else may touch meanwhile.
    var folder: String? {
        switch self {
        case .extract(let site, let folder, _), .named(let site, let folder), .switchLink(let site, let folder),
            .linked(let site, let folder, _, _, _):
            "\(site.directory)/\(folder)"
        case .remove(let site, let removal, _, _): "\(site.directory)/\(removal.folder)"
        default: nil
        }
    }

    /// The directory that nothing else may touch meanwhile.
    var directory: String? { if case .deleteData(let site, _, _, _) = self { site.directory } else { nil } }
}

/// What the servers have published of one asset.
struct Publication {
    /// The version that the manifest names.
    var version = 1
    /// The highest version so far.
    var highest = 1
    /// The manifest cannot be used; the archive is another than the manifest says; the signature is an earlier one.
    var isWrong = false
    var isBad = false
    var isUnsigned = false
}

/// What outlasts a process with assets: directories, publications, and what callers know.
final class AssetMachine {
    static let manifests = "/m"
    static let keys = ["A/x", "A/y", "B/x", "B/y"].map { text in
        let parts = text.split(separator: "/").map(String.init)
        guard let key = try? AssetKey(app: parts[0], name: parts[1]) else { preconditionFailure(text) }
        return key
    }
    /// The resources before those of the assets: each of these has a manifest, an archive and a mirror.
    static let firstResource = 6

    var directories: [String: AssetDirectory] = [:]
    var publications = Dictionary(uniqueKeysWithValues: keys.map { ($0, Publication()) })
    /// Archives and manifests that somebody has changed or deleted.
    var touched: Set<String> = []
    var session = 1
    /// The number of the last call, and the calls that are not answered.
    var lastCall: UInt64 = 0
    var unanswered: Set<AssetUpdater.CallNumber> = []
    /// When the last check without a call began, by asset.
    var lastDue: [AssetKey: WallTime] = [:]
    /// The clock was set: instants in the future say nothing.
    var hasJumped = false

    // MARK: Servers

    static func index(_ key: AssetKey) -> Int { keys.firstIndex(of: key) ?? 0 }
    static func manifestResource(_ key: AssetKey) -> Int { firstResource + 3 * index(key) }

    static func manifestURL(_ key: AssetKey, isOther: Bool) -> String {
        "http://h\(index(key) % 2)/\(manifestResource(key))\(isOther ? "?other" : "")"
    }

    /// The manifest of a version.
    static func manifest(_ key: AssetKey, _ version: Int) -> AssetManifest {
        let (index, archive) = (index(key), manifestResource(key) + 1)
        var manifest = AssetManifest(
            version: "\(version)", url: "http://h\(index % 2)/\(archive)?v=\(version)", sha256: digest(key, version), size: 1000,
            unpackedSize: 2000, timestamp: version % 3 == 0 ? nil : WallTime(microseconds: 1_000_000 * UInt64(version)))
        if version % 2 == 0 { manifest.mirrors = ["https://h1/\(archive + 1)?v=\(version)"] }
        return manifest
    }

    private static func digest(_ key: AssetKey, _ version: Int) -> Checksum {
        var digest = [UInt8](repeating: UInt8(index(key)), count: 32)
        (digest[1], digest[2]) = (UInt8(version & 255), UInt8(version >> 8 & 255))
        guard let checksum = Checksum(.sha256, digest: digest) else { preconditionFailure("32 bytes") }
        return checksum
    }

    /// The version that a server sends for a URL of an asset; nil: the URL is another's.
    func version(at url: String) -> Int? {
        guard let last = url.split(separator: "/").last, let number = Int(last.prefix { $0.isNumber }), number >= Self.firstResource
        else { return nil }
        let key = Self.keys[(number - Self.firstResource) / 3]
        guard let publication = publications[key] else { return nil }
        if last.contains(".sig") { return publication.isUnsigned ? publication.version + 1 : publication.version }
        guard let place = last.firstRange(of: "v=") else { return publication.version }
        guard let version = Int(last[place.upperBound...].prefix { $0.isNumber }) else { return nil }
        return publication.isBad ? -version : version
    }

    // MARK: The disk

    /// The power fails in the middle of a piece of work: the disk may lack its last change.
    func cutPower(_ work: AssetWork, _ disk: inout Disk, _ random: inout Random) {
        guard random.below(2) == 0 else { return }
        switch work {
        case .named(let site, let folder):
            guard let archive = disk.finals[site.archive(of: folder)] else { return }
            directories[site.directory]?.versions[folder] = nil
            directories[site.directory]?.journals.remove(folder)
            directories[site.directory]?.unfinished[folder] = .init(archive: archive.inode, halves: 2, durable: 2)
        case .linked(let site, _, let was, let held, let wasBroken):
            directories[site.directory]?.link = was
            directories[site.directory]?.held = held
            directories[site.directory]?.isBroken = wasBroken
        case .remove(let site, _, _, let undo?), .deleteData(let site, _, _, let undo?):
            switch undo {
            case .archive(let path, let file): disk.finals[path] = file
            case .unfinished(let folder, let unfinished): directories[site.directory]?.unfinished[folder] = unfinished
            case .version(let folder, let version): directories[site.directory]?.versions[folder] = version
            case .link(let folder): directories[site.directory]?.link = folder
            }
        default: break
        }
    }

    /// The power fails: what was not flushed is lost.
    func cutPower(_ random: inout Random) {
        for path in directories.keys.sorted() {
            for folder in directories[path]?.unfinished.keys.sorted() ?? [] {
                guard let durable = directories[path]?.unfinished[folder]?.durable else { continue }
                directories[path]?.unfinished[folder]?.halves = durable
            }
            for folder in directories[path]?.loose.sorted() ?? [] where random.below(2) == 0 {
                if directories[path]?.versions[folder] != nil { directories[path]?.versions[folder] = 0 }
            }
            directories[path]?.loose = []
        }
    }
}
