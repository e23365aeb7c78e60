internal import Assets
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import PartFiles

/// The state of a folder, to notice that its files have changed.
package struct FolderState: Equatable, Sendable {
    private let tree: [String]

    /// Reads the names, sizes and times of everything below `folder`. Blocks.
    package static func read(_ folder: String) throws(PackingError) -> FolderState {
        let tree = try FolderTree(try Packer.open(folder))
        return FolderState(tree: tree.entries.map { "\($0.text) \($0.kind) \($0.isExecutable) \($0.size) \($0.stamp)" })
    }
}

/// A folder with packed versions of assets.
package enum PackedFolder {
    /// The names of the manifests in `folder` whose archive lies beside them.
    package static func manifests(in folder: String) -> [String] {
        names(in: folder).filter { $0.hasSuffix(".json") && isManifest($0, in: folder) }.sorted()
    }

    private static func isManifest(_ name: String, in folder: String) -> Bool {
        let file = open("\(folder)/\(name)", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return false }
        defer { close(file) }
        guard let bytes = try? readToEnd(file, atMost: ManifestText.mostBytes),
            let base = try? DownloadURL("http://localhost/\(percentEncoded(path: name))"),
            let manifest = try? ManifestText.parse(bytes, from: base), let url = try? DownloadURL(manifest.url)
        else { return false }
        let archive = FileName.chosen(contentDisposition: nil, url: url) { _, _ in nil }
        return access("\(folder)/\(archive)", R_OK) == 0
    }

    /// Makes a folder that only this user can read, for packed files that nobody keeps.
    package static func makeTemporary() throws(PackingError) -> String {
        let base = temporaryFolder() ?? "/var/tmp"  // /tmp is often in memory
        var template = Array("\(base)/todoku-serve.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw .of(base, "cannot have a folder made in it", errno) }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Deletes the archives in `folder` except those in `kept`.
    package static func clean(_ folder: String, keeping kept: [String]) {
        // By name, because the path of an archive has no symbolic links.
        for name in names(in: folder) where isArchive(name) && !kept.contains(where: { $0.hasSuffix("/\(name)") }) {
            unlink("\(folder)/\(name)")
        }
    }

    /// A manifest and a signature may have ".tar" in the middle of their names.
    private static func isArchive(_ name: String) -> Bool { ArchiveCompression.allCases.contains { name.hasSuffix($0.ending) } }

    /// Deletes `folder` and its files, also while `Packer` writes there.
    package static func delete(_ folder: String) {
        // A file may get its name after the others have been listed. Once the folder is gone, no further file can.
        for _ in 0..<mostFiles {
            for name in names(in: folder) { unlink("\(folder)/\(name)") }
            guard rmdir(folder) != 0, errno == ENOTEMPTY || errno == EEXIST else { return }
        }
    }

    /// More names than `Packer` gives to files at one call.
    private static let mostFiles = 16

    private static func names(in folder: String) -> [String] { folderNames(folder) ?? [] }
}
