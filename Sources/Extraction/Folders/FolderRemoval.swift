internal import DownloadModel
internal import Glibc
package import PartFiles

/// Deletes a folder with its contents.
///
/// The folder is first renamed to `.todoku-gone-NAME`. So under its own name it is whole or absent, also after a power cut. Each folder is
/// opened relative to the one above it. No link is followed, and no other file system is entered. A call that was interrupted is simply
/// repeated. Blocks: use the pool.
package enum FolderRemoval {
    package enum Outcome: Equatable {
        /// The folder is gone for good, or did not exist.
        case removed
        case cancelled
        case failed(DiskError)
    }

    /// The most open folders at a time. Deeper folders are moved up first, so the depth is not bounded.
    private static let mostOpen = 16

    /// - Parameter name: a bare name, of at most 230 bytes, in `directory`, an absolute path.
    package static func remove(_ name: String, directory: String, allowHidden: Bool, control: ExtractionControl) -> Outcome {
        do throws(DiskError) {
            return try remove(name, in: OpenFolder.open(directory, allowHidden: allowHidden), control)
        } catch {
            return error.code == ENOENT ? .removed : .failed(error)
        }
    }

    static func remove(_ name: String, in parent: OpenFolder, _ control: ExtractionControl) throws(DiskError) -> Outcome {
        let gone = ".todoku-gone-\(name)"
        do throws(Stop) {
            // An earlier call may have been interrupted after the rename.
            let hadLeftover = try delete(gone, in: parent, control)
            guard let status = parent.status(name) else {
                guard errno == ENOENT else { throw .failed(DiskError("look for \(name)")) }
                if hadLeftover, !parent.sync() { throw .failed(DiskError("save the folder")) }
                return .removed
            }
            guard status.st_mode & S_IFMT == S_IFDIR else { throw .failed(DiskError("delete \(name), which is no folder,", ENOTDIR)) }
            guard renameat(parent.descriptor, name, parent.descriptor, gone) == 0 else { throw .failed(DiskError("delete \(name)")) }
            guard parent.sync() else { throw .failed(DiskError("save the folder")) }
            _ = try delete(gone, in: parent, control)
            guard parent.sync() else { throw .failed(DiskError("save the folder")) }
            return .removed
        } catch {
            switch error {
            case .cancelled: return .cancelled
            case .failed(let error): throw error
            }
        }
    }

    private enum Stop: Error {
        case cancelled
        case failed(DiskError)
    }

    /// Returns whether the folder existed.
    private static func delete(_ name: String, in parent: OpenFolder, _ control: ExtractionControl) throws(Stop) -> Bool {
        let root = openUninterrupted(parent.descriptor, name, folderFlags)
        guard root >= 0 else {
            if errno == ENOENT { return false }
            throw .failed(DiskError("delete \(name)"))
        }
        defer { close(root) }
        var status = stat()
        guard fstat(root, &status) == 0 else { throw .failed(DiskError("delete \(name)")) }
        try Sweep(root: root, device: status.st_dev, control: control).empty(root, depth: 1)
        guard unlinkat(parent.descriptor, name, AT_REMOVEDIR) == 0 || errno == ENOENT else { throw .failed(DiskError("delete \(name)")) }
        return true
    }

    /// A walk through the folder to be deleted.
    private struct Sweep {
        let root: Int32
        let device: dev_t
        let control: ExtractionControl

        /// Deletes everything in an open folder.
        func empty(_ folder: Int32, depth: Int) throws(Stop) {
            let copy = openUninterrupted(folder, ".", folderFlags)
            guard copy >= 0, let list = fdopendir(copy) else {
                let error = DiskError("list a folder")
                if copy >= 0 { close(copy) }
                throw .failed(error)
            }
            defer { closedir(list) }
            var isEmpty = false
            // Some file systems omit names while others are being deleted. So repeat until a pass finds no name.
            while !isEmpty {
                isEmpty = true
                rewinddir(list)
                while let name = next(list) {
                    guard !control.isCancelled else { throw .cancelled }
                    isEmpty = false
                    try delete(name, in: folder, depth: depth)
                }
            }
        }

        private func next(_ list: OpaquePointer) -> [UInt8]? {
            while let entry = readdir(list) {
                let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
                if name != Array(".".utf8), name != Array("..".utf8) { return name }
            }
            return nil
        }

        private func delete(_ name: [UInt8], in folder: Int32, depth: Int) throws(Stop) {
            func unlink(_ flags: Int32) -> Int32 { withName(name) { unlinkat(folder, $0, flags) } == 0 ? 0 : errno }
            var code = unlink(0)
            if code == EACCES {
                // The write permission was removed. The folder is ours, so restore the permission.
                fchmod(folder, 0o700)
                code = unlink(0)
            }
            if code == 0 || code == ENOENT { return }
            guard code == EISDIR || code == EPERM else { throw .failed(DiskError("delete \(text(name))", code)) }
            let refusal = code
            code = unlink(AT_REMOVEDIR)
            if code == 0 || code == ENOENT { return }
            // A file that may not be deleted: it is immutable, or another user's in a sticky folder.
            if code == ENOTDIR { code = refusal }
            guard code == ENOTEMPTY || code == EEXIST else { throw .failed(DiskError("delete \(text(name))", code)) }
            let child = try open(name, in: folder)
            defer { close(child) }
            if depth >= FolderRemoval.mostOpen { return try lift(name, from: folder) }
            try empty(child, depth: depth +| 1)
            code = unlink(AT_REMOVEDIR)
            guard code == 0 || code == ENOENT else { throw .failed(DiskError("delete \(text(name))", code)) }
        }

        private func open(_ name: [UInt8], in folder: Int32) throws(Stop) -> Int32 {
            var child = openEntry(folder, name, folderFlags)
            if child < 0, errno == EACCES {
                // If another program has replaced the name by a link, this changes the mode of that program's own file only.
                withName(name) { _ = fchmodat(folder, $0, 0o700, 0) }
                child = openEntry(folder, name, folderFlags)
            }
            guard child >= 0 else { throw .failed(DiskError("open \(text(name))")) }
            var status = stat()
            guard fstat(child, &status) == 0, status.st_dev == device else {
                close(child)
                throw .failed(DiskError("delete \(text(name)), where another file system is mounted,", EBUSY))
            }
            return child
        }

        /// Moves a deep folder to the top, where a later pass finds it.
        private func lift(_ name: [UInt8], from folder: Int32) throws(Stop) {
            let above = Array(".todoku-deep-\(UInt64.random(in: 0 ... .max))".utf8)
            guard withName(name, { from in withName(above) { renameat(folder, from, root, $0) } }) == 0 else {
                throw .failed(DiskError("move \(text(name))"))
            }
        }
    }
}

private let folderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
