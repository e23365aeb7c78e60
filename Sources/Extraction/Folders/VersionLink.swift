internal import DownloadModel
internal import Glibc
package import PartFiles

/// A symbolic link that names the current version: one of the folders beside it.
///
/// One rename(2) replaces the link, so a program that opens it finds the whole old version or the whole new one. A program that needs one
/// version opens the folder once, and all files relative to it. All calls block: use the pool.
package enum VersionLink {
    /// The name of the folder that `link` names; nil if there is no link.
    ///
    /// - Parameter directory: the absolute path of the folder that holds the link.
    package static func current(_ link: String, directory: String, allowHidden: Bool) -> Result<String?, DiskError> {
        do throws(DiskError) {
            return .success(try read(link, in: OpenFolder.open(directory, allowHidden: allowHidden)))
        } catch {
            return .failure(error)
        }
    }

    /// Makes `link` name the folder `version` beside it, whose content must be on disk already. The link is on disk when this returns.
    package static func point(
        _ link: String, to version: String, directory: String, allowHidden: Bool, calls: ExtractionCalls = ExtractionCalls()
    ) -> Result<Void, DiskError> {
        do throws(DiskError) {
            let parent = try OpenFolder.open(directory, allowHidden: allowHidden)
            guard isName(version), isName(link) else { throw DiskError("use the name \(shown(version))", EINVAL) }
            guard let folder = parent.status(version), folder.st_mode & S_IFMT == S_IFDIR else {
                throw DiskError("find the version \(version)", ENOENT)
            }
            // A folder or a file of that name is not ours, and is not replaced.
            let isThere = try read(link, in: parent) == version
            let draft = ".todoku-switch-\(link)"
            calls.before(.remove)
            guard unlinkat(parent.descriptor, draft, 0) == 0 || errno == ENOENT else { throw DiskError("make the link \(link)") }
            if !isThere {
                calls.before(.symbolicLink)
                guard symlinkat(version, parent.descriptor, draft) == 0 else { throw DiskError("make the link \(link)") }
                calls.before(.rename)
                guard renameat(parent.descriptor, draft, parent.descriptor, link) == 0 else { throw DiskError("switch the link \(link)") }
            }
            calls.before(.flushParent)
            guard parent.sync() else { throw DiskError("save the folder") }
            return .success(())
        } catch {
            return .failure(error)
        }
    }

    /// Deletes `link` if it names the folder `version`. The deletion is on disk when this returns.
    package static func remove(
        _ link: String, to version: String, directory: String, allowHidden: Bool
    ) -> Result<Void, DiskError> {
        do throws(DiskError) {
            let parent = try OpenFolder.open(directory, allowHidden: allowHidden)
            guard try read(link, in: parent) == version else { return .success(()) }
            guard unlinkat(parent.descriptor, link, 0) == 0 || errno == ENOENT else { throw DiskError("delete the link \(link)") }
            guard parent.sync() else { throw DiskError("save the folder") }
            return .success(())
        } catch {
            return .failure(error)
        }
    }

    private static func read(_ link: String, in parent: OpenFolder) throws(DiskError) -> String? {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlinkat(parent.descriptor, link, &bytes, bytes.count)
        guard count >= 0 else {
            if errno == ENOENT { return nil }
            throw errno == EINVAL
                ? DiskError("use the link \(link)", EEXIST, refusal: "\(parent.path)/\(link) is no link: Todoku did not make it.")
                : DiskError("read the link \(link)")
        }
        let target = String(decoding: bytes.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        guard isName(target) else {
            throw DiskError(
                "use the link \(link)", EEXIST, refusal: "\(parent.path)/\(link) leads somewhere else: Todoku did not make it.")
        }
        return target
    }

    /// Whether a text is one component: no link leads out of its folder.
    private static func isName(_ text: String) -> Bool {
        !text.isEmpty && text != "." && text != ".." && text.utf8.count <= 200 && !text.utf8.contains { $0 == UInt8(ascii: "/") || $0 == 0 }
    }
}
