internal import CSystem
internal import EventLoop
internal import Glibc

/// The permissions of a finished file.
enum FileMode {
    private static let attribute = "system.posix_acl_access"
    private static let defaultAttribute = "system.posix_acl_default"

    /// Gives a part file the mode of a new file. If it is about to replace the regular file `name`, it gets that file's mode and access
    /// list (acl(5)) instead. So a private file stays private. Set-user-ID and set-group-ID bits are not copied.
    ///
    /// On a mount that gives our files to another user, the mode cannot be set and stays as it is.
    ///
    /// - Returns: whether the part file was changed.
    static func set(_ part: Int32, in folder: OpenFolder, replacing name: String?) throws(DiskError) -> Bool {
        var mode: mode_t
        var list: [UInt8] = []
        var isListGone = false
        if let name, let replaced = folder.status(name), replaced.isRegular {
            mode = replaced.st_mode & 0o777
            let known = accessList(of: name, in: folder)
            // The access list is unknown. With a list, the group bits are its mask, not the group's permissions, so drop them.
            if known == nil { mode &= 0o707 }
            list = known ?? []
            // The part file may have inherited a list from its folder.
            isListGone = known?.isEmpty ?? false && fgetxattr(part, attribute, nil, 0) > 0 && fremovexattr(part, attribute) == 0
        } else {
            mode = newMode(in: folder)
        }
        var status = stat()
        if list.isEmpty, fstat(part, &status) == 0, status.st_mode & 0o7777 == mode { return isListGone }
        guard fchmod(part, mode) == 0 || isMountsOwn(part, errno) else { throw DiskError("set the mode of the file") }
        // If the list cannot be set, its mask must not become the group's permissions.
        if !list.isEmpty, fsetxattr(part, attribute, list, list.count, 0) != 0 { _ = fchmod(part, mode & 0o707) }
        return true
    }

    /// The mode that open(2) with 0666 gives a new file in `folder`: 0666 & ~umask, or what the folder's default access list says instead
    /// (acl(5)). A part file, made with 0600, has inherited that list, but with the mask and the rights of others cleared.
    private static func newMode(in folder: OpenFolder) -> mode_t {
        let size = fgetxattr(folder.descriptor, defaultAttribute, nil, 0)
        var list = [UInt8](repeating: 0, count: max(0, size))
        guard size > 0, fgetxattr(folder.descriptor, defaultAttribute, &list, size) == size else { return 0o666 & ~processUmask }
        var (owner, group, mask, others): (mode_t, mode_t, mode_t?, mode_t) = (0, 0, nil, 0)
        // linux/posix_acl_xattr.h: a header of four bytes, then entries: tag and permissions of two bytes each, and an id of four.
        var entries = list.dropFirst(4)
        while entries.count >= 8 {
            let (tag, permissions) = (entries[entries.startIndex], mode_t(entries.dropFirst(2).first ?? 0) & 0o6)
            switch tag {
            case 0x01: owner = permissions
            case 0x04: group = permissions
            case 0x10: mask = permissions
            case 0x20: others = permissions
            default: break
            }
            entries = entries.dropFirst(8)
        }
        return owner << 6 | (mask ?? group) << 3 | others
    }

    private static func isMountsOwn(_ part: Int32, _ code: Int32) -> Bool {
        if code == EOPNOTSUPP || code == ENOSYS { return true }
        var status = stat()
        return code == EPERM && fstat(part, &status) == 0 && status.st_uid != geteuid()
    }

    /// The access list of `name`; empty if it has none, nil if unknown.
    private static func accessList(of name: String, in folder: OpenFolder) -> [UInt8]? {
        let file = openUninterrupted(folder.descriptor, name, todoku_o_path | O_NOFOLLOW | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 65536)
        // An O_PATH descriptor gives no access to attributes, and we may not be able to open the file for reading.
        let count = getxattr("/proc/self/fd/\(file)", attribute, &bytes, bytes.count)
        if count >= 0 { return Array(bytes[..<count]) }
        return errno == ENODATA || errno == EOPNOTSUPP ? [] : nil
    }

    /// This process's umask(2), which it never changes. Read without changing it, because other threads create files.
    private static let processUmask: mode_t = {
        let bytes = firstBytes(of: "/proc/self/status", atMost: 4096) ?? []
        let line = bytes.split(separator: UInt8(ascii: "\n")).first { $0.starts(with: "Umask:".utf8) }
        return line.flatMap { mode_t(String(decoding: $0.dropFirst(6).drop { $0 <= 0x20 }, as: UTF8.self), radix: 8) } ?? 0o077
    }()
}
