package import DownloadModel
internal import Glibc
package import PartFiles

/// Why an archive was not unpacked.
package enum ExtractionFailure: Error, Equatable {
    case cancelled
    /// Neither tar, zip nor 7z, or a kind of them that cannot be unpacked; `found` completes "this is".
    case unsupported(found: String)
    /// The archive is cut or broken. `entry` is the last entry that was begun; nil if no entry was.
    case damaged(entry: String?, reason: String)
    /// An entry that is never unpacked.
    case refused(entry: String, EntryDefect)
    /// A limit of `ExtractionLimits` is exceeded; the text is a whole sentence.
    case excessive(String)
    /// The disk is full; the shortage is nil if unknown.
    case noSpace(DiskError.Shortage?)
    /// The new folder's name belongs to a file or folder that this extraction did not make.
    case taken(path: String)
    /// A system call failed, or the folder is refused.
    case disk(DiskError)
    /// The process that unpacks has ended without an answer, or was stopped. A later run continues. The text completes a sentence.
    case stopped(String)
    /// libarchive or a library that it needs cannot be loaded.
    case unavailable(reason: String)

    /// One English sentence that a person can act on.
    package func message(folder: String) -> String {
        switch self {
        case .cancelled: "Unpacking was cancelled."
        case .unsupported(let found):
            "Todoku cannot unpack this: it is \(found). Todoku unpacks zip, 7z and tar, also with gzip, bzip2, xz or zstd."
        case .damaged(nil, let reason): "The archive is damaged: \(reason)."
        case .damaged(let entry?, let reason): "The archive is damaged at \"\(shown(entry))\": \(reason)."
        case .refused(let entry, let defect): "The archive is not unpacked: \"\(shown(entry))\" \(defect.predicate)."
        case .excessive(let text): text
        case .taken(let path): "\(path) is in the way: this extraction did not make it."
        case .stopped(let reason): "Unpacking has stopped: \(reason). Try again: what is unpacked already is kept."
        case .unavailable(let reason): "Archives cannot be unpacked here: \(reason)."
        case .noSpace, .disk: diskFailure(folder: folder)?.message ?? ""
        }
    }

    /// The failure of a disk, with the reason to wait; nil for any other failure.
    package func diskFailure(folder: String) -> DownloadFailure? {
        switch self {
        case .noSpace(let shortage): DiskError("unpack the archive", ENOSPC, shortage: shortage).failure(folder: folder)
        case .disk(let error): error.failure(folder: folder)
        default: nil
        }
    }

    /// `error`, or `noSpace` if it says that the disk is full.
    init(_ error: DiskError) {
        self = error.code == ENOSPC || error.code == EDQUOT ? .noSpace(error.shortage) : .disk(error)
    }
}

/// The reason why an entry is never unpacked.
package enum EntryDefect: Error, Equatable {
    case noName
    case absolutePath
    case parentReference
    case controlCharacter
    case longName
    case longPath(limit: Int)
    case tooDeep(limit: Int)
    case duplicate
    /// An earlier name differs only in case or in its Unicode form.
    case caseClash
    /// A folder of its path is a link or a file.
    case insideOfNoFolder
    case absoluteLink(target: String)
    case linkOutside(target: String)
    /// ".." behind a name: its target depends on whether the name is a link.
    case indirectLink(target: String)
    case unusableLink
    case hardLinkToNothing(target: String)
    case device
    case fifo
    case socket
    case unknownKind
    case setUserID
    case encrypted
    case method(String)
    /// The file system has the name already, perhaps because it ignores case.
    case existsOnDisk

    /// Completes the entry's name to a sentence.
    var predicate: String {
        switch self {
        case .noName: "has no name"
        case .absolutePath: "has an absolute path"
        case .parentReference: "has \"..\" in its path"
        case .controlCharacter: "has a control character in its name"
        case .longName: "has a name of more than \(EntryPath.longestName) bytes"
        case .longPath(let limit): "has a path of more than \(limit) bytes"
        case .tooDeep(let limit): "lies more than \(limit) folders deep"
        case .duplicate: "is there twice"
        case .caseClash: "has the name of another entry but for upper and lower case"
        case .insideOfNoFolder: "lies in something that is no folder"
        case .absoluteLink(let target): "is a link to the absolute path \"\(shown(target))\""
        case .linkOutside(let target): "is a link out of the archive, to \"\(shown(target))\""
        case .indirectLink(let target): "is a link with \"..\" behind a name, to \"\(shown(target))\""
        case .unusableLink: "is a link with an unusable target"
        case .hardLinkToNothing(let target): "is a hard link to \"\(shown(target))\", which is no file before it in the archive"
        case .device: "is a device"
        case .fifo: "is a named pipe"
        case .socket: "is a socket"
        case .unknownKind: "is neither file, folder nor link"
        case .setUserID: "would run as another user or group (set-user-ID, set-group-ID)"
        case .encrypted: "is encrypted"
        case .method(let method): "is compressed by \(shown(method)), which Todoku does not unpack"
        case .existsOnDisk: "exists already, perhaps under a name that differs only in case"
        }
    }
}
