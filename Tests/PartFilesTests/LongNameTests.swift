import DownloadModel
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles

/// An encrypted home (eCryptfs) allows names of 143 bytes.
@Suite struct `A name that is too long for the file system` {
    private let folder = TemporaryFolder("todoku-long")
    private let part = ".todoku-1.part"
    private let name = String(repeating: "写真", count: 35) + ".tar.gz"  // 217 bytes
    private let short = String(repeating: "写真", count: 22) + "写.tar.gz"  // 142 bytes

    /// File systems of tests allow 255 bytes, so the calls refuse what this one would refuse.
    private var small: NamingCalls {
        var calls = NamingCalls()
        let real = calls.renameNoReplace
        calls.renameNoReplace = { $2.utf8.count > 143 ? ENAMETOOLONG : real($0, $1, $2) }
        calls.longestName = { _ in 143 }
        return calls
    }

    private func commit(_ name: String, _ policy: ExistingFilePolicy, _ calls: NamingCalls? = nil) -> CommitOutcome {
        writeFile(folder(part), "x".utf8, mode: 0o600)
        return Commit.commit(
            directory: folder.path, partName: part, identity: identityIfAny(folder(part)), name: name, policy: policy, origin: nil,
            mapPath: nil, calls: calls ?? small)
    }

    @Test func `is cut before its extension, and before its number`() {
        #expect(commit(name, .rename) == .committed(path: folder(short)))
        #expect(commit(name, .rename) == .committed(path: folder(String(repeating: "写真", count: 22) + " (1).tar.gz")))
        #expect(listFolder(folder.path).count == 2)
    }

    @Test func `is cut after a restart as it was before`() {
        writeFile(folder(short), "old".utf8)
        guard case .committed(let path) = commit(name, .rename) else { return #expect(Bool(false)) }
        let found = Commit.found(
            directory: folder.path, partName: part, name: name, identity: identityIfAny(path), size: 1, mapPath: nil, calls: small)
        #expect(found == .committed(path: path))
    }

    @Test(arguments: [0, 255, 1530]) func `is not cut where more is allowed, or nobody tells`(longest: Int) {
        var calls = NamingCalls()
        calls.longestName = { _ in longest }
        #expect(commit(name, .rename, calls) == .committed(path: folder(name)))
    }

    @Test func `stays as it is if the caller relies on it, and the download fails`() {
        guard case .failed(let failure) = commit(name, .fail) else { return #expect(Bool(false)) }
        #expect(failure.name == .writeFailed && failure.message.contains("too long") && listFolder(folder.path) == [part])
    }
}
