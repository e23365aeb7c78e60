import DownloadModel
import Glibc
import TestSupport
import Testing

@testable internal import PartFiles

@Suite struct `A folder that cannot be opened after a commit` {
    private let folder = TemporaryFolder("todoku-unreachable")

    private func failure(isNamed: Bool, in directory: String) -> DownloadFailure? {
        let found = Commit.found(
            directory: directory, partName: ".todoku-1.part", name: "a", identity: identityIfAny(""), size: 1, mapPath: nil,
            isNamed: isNamed)
        return if case .unreachable(let failure) = found { failure } else { nil }
    }

    @Test func `makes the download wait if its file has its name, and fails it otherwise`() {
        // Links in a circle: an error that does not pass by itself, as missing permissions do not.
        #expect(symlink("b", folder("a")) == 0 && symlink("a", folder("b")) == 0)
        let (named, unnamed) = (failure(isNamed: true, in: folder("a")), failure(isNamed: false, in: folder("a")))
        #expect(named?.name == .writeFailed && named?.wait == .destination)
        #expect(unnamed?.name == .writeFailed && unnamed?.wait == nil && unnamed?.isShortage == false)
    }

    @Test func `makes the download wait in both cases if it may come back`() {
        for isNamed in [false, true] { #expect(failure(isNamed: isNamed, in: folder("missing"))?.wait == .destination) }
    }
}
