import DownloadModel
import Glibc
import PartFiles
import Synchronization
import TestSupport
import Testing

@testable import Extraction

@Suite struct `An unpacked folder that is taken back` {
    private let folder = TemporaryFolder("todoku-back")
    private let provisional = ".todoku-x-1.part.folder"

    init() { make("levels") }

    private func make(_ name: String) {
        folder.makeFolder(name)
        writeFile(folder("\(name)/of-\(name)"), [1])
    }

    private func identity(_ name: String) throws -> FileIdentity {
        let descriptor = open(folder(name), O_RDONLY | O_DIRECTORY)
        defer { close(descriptor) }
        return try fileIdentity(of: descriptor, boot: bootIdentity())
    }

    private func takeBack(_ identity: FileIdentity?, naming: NamingCalls = NamingCalls()) -> FolderNaming.TakeBack {
        FolderNaming.takeBack("levels", as: provisional, directory: folder.path, identity: identity, naming: naming)
    }

    /// Another program acts just before the rename number `at`.
    private func before(rename at: Int, _ act: @escaping @Sendable () -> Void) -> NamingCalls {
        var naming = NamingCalls()
        let (count, real) = (Counter(), naming.renameNoReplace)
        naming.renameNoReplace = { folder, from, to in
            if count.next() == at { act() }
            return real(folder, from, to)
        }
        return naming
    }

    private final class Counter: Sendable {
        private let count = Atomic(0)
        func next() -> Int { count.add(1, ordering: .relaxed).newValue }
    }

    @Test func `has its provisional name again, in the place of a leftover`() throws {
        make(provisional)
        #expect(takeBack(try identity("levels")) == .taken)
        #expect(listFolder(folder.path) == [provisional] && listFolder(folder(provisional)) == ["of-levels"])
        #expect(takeBack(try identity(provisional)) == .gone)
    }

    @Test func `is the one that was unpacked, or stays`() throws {
        var known = try identity("levels")
        known.inode += 1
        #expect(takeBack(known) == .other)
        #expect(takeBack(nil) == .other)
        known = try identity("levels")
        known.born = known.born.map { $0 - 1 }
        #expect(takeBack(known) == .other)
        known.born = nil
        #expect(takeBack(known) == .unproved)
        rename(folder("levels"), folder("moved"))
        writeFile(folder("levels"), [1])
        #expect(takeBack(known) == .noFolder)
        unlink(folder("levels"))
        symlink("moved", folder("levels"))
        #expect(takeBack(known) == .noFolder)
        #expect(listFolder(folder.path) == ["levels", "moved"] && listFolder(folder("moved")) == ["of-levels"])
    }

    @Test func `leaves another folder alone that takes its place between the look and the rename`() throws {
        let known = try identity("levels")
        let path = folder.path
        let naming = before(rename: 1) {
            rename("\(path)/levels", "\(path)/moved")
            mkdir("\(path)/levels", 0o755)
            writeFile("\(path)/levels/diary", [1])
        }
        #expect(takeBack(known, naming: naming) == .other)
        #expect(listFolder(path) == ["levels", "moved"])
        #expect(listFolder("\(path)/levels") == ["diary"] && listFolder("\(path)/moved") == ["of-levels"])
    }

    @Test func `gives the other folder another name if its own is taken again`() throws {
        let known = try identity("levels")
        let path = folder.path
        let first = before(rename: 1) {
            rename("\(path)/levels", "\(path)/moved")
            mkdir("\(path)/levels", 0o755)
            writeFile("\(path)/levels/diary", [1])
        }
        var naming = first
        naming.renameNoReplace = { folder, from, to in
            if from.hasPrefix("."), to == "levels" { mkdir("\(path)/levels", 0o755) }
            return first.renameNoReplace(folder, from, to)
        }
        #expect(takeBack(known, naming: naming) == .other)
        #expect(listFolder(path) == ["levels", "levels (1)", "moved"])
        #expect(listFolder("\(path)/levels (1)") == ["diary"])
    }

    @Test func `is left alone in a folder that cannot be written`() throws {
        let known = try identity("levels")
        var naming = NamingCalls()
        naming.renameNoReplace = { _, _, _ in EACCES }
        guard case .failed(let error) = takeBack(known, naming: naming) else { return #expect(Bool(false)) }
        #expect(error.code == EACCES && listFolder(folder.path) == ["levels"])
    }
}
