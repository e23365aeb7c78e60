internal import CSystem
package import DownloadModel
internal import Glibc

extension FileIdentity {
    /// Whether both identify one part file, as far as we can tell. After a reboot device numbers may differ; inodes do not.
    package func isSamePart(as other: FileIdentity) -> Bool {
        isSameFile(as: other) && (boot != other.boot || device == other.device)
    }
}

/// The identity of an open file, with the `boot` id of the running kernel (`bootIdentity()`).
package func fileIdentity(of descriptor: Int32, boot: String) throws(DiskError) -> FileIdentity {
    var found = todoku_file_identity()
    let code = todoku_identify_file(descriptor, &found)
    guard code == 0 else { throw DiskError("look at a file", code) }
    return FileIdentity(
        device: found.device, inode: found.inode, mount: found.mount, boot: boot, born: found.born == 0 ? nil : found.born)
}

/// `/proc/sys/kernel/random/boot_id`, as first read; empty if it cannot be read.
package func bootIdentity() -> String { bootIdentityOnce }

private let bootIdentityOnce: String = {
    let descriptor = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = read(descriptor, &bytes, bytes.count)
    return String(decoding: bytes.prefix(max(0, count)).prefix { $0 > 0x20 }, as: UTF8.self)
}()
