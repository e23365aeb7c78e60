internal import CSystem
package import DownloadModel
internal import EventLoop
internal import Glibc
internal import Synchronization

extension FileIdentity {
    /// Whether both identify one part file, as far as we can tell. Its disk may have got another device number, by a reboot or because it
    /// was mounted again; inode and birth time stay. Without a birth time, the file may be of another disk that is mounted in this boot.
    package func isSamePart(as other: FileIdentity) -> Bool {
        isSameFile(as: other) && (boot != other.boot || device == other.device || born != nil && born == other.born)
    }
}

/// The facts about an open file that one call of statx(2) tells.
struct OpenFileStatus {
    let identity: FileIdentity
    /// In bytes.
    let size: ByteCount
    let owner: uid_t
    let isRegular: Bool

    /// - Parameter boot: as for `fileIdentity`.
    init(of descriptor: Int32, boot: String) throws(DiskError) {
        var found = todoku_file_identity()
        let code = todoku_identify_file(descriptor, &found)
        guard code == 0 else { throw DiskError("look at a file", code) }
        identity = FileIdentity(
            device: found.device, inode: found.inode, mount: found.mount, boot: boot, born: found.born == 0 ? nil : found.born)
        (size, owner, isRegular) = (found.size, found.owner, found.mode & S_IFMT == S_IFREG)
    }
}

/// The identity of an open file, with the `boot` id of the running kernel (`bootIdentity()`).
package func fileIdentity(of descriptor: Int32, boot: String) throws(DiskError) -> FileIdentity {
    try OpenFileStatus(of: descriptor, boot: boot).identity
}

/// `/proc/sys/kernel/random/boot_id`, read once; empty if it cannot be read now, for example without a free descriptor.
package func bootIdentity() -> String {
    knownBootIdentity.withLock { known in
        if known.isEmpty { known = readBootIdentity() }
        return known
    }
}

private let knownBootIdentity = Mutex("")

private func readBootIdentity() -> String {
    let bytes = firstBytes(of: "/proc/sys/kernel/random/boot_id", atMost: 64) ?? []
    return String(decoding: bytes.prefix { $0 > 0x20 }, as: UTF8.self)
}
