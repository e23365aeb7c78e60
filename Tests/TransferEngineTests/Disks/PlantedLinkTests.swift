import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing
import TransferEngine

@testable import PartFiles

/// Only root can make a link of another user. If the tests run as another user, Testing reports that these tests were skipped.
@Suite(.timeLimit(.minutes(5)), .enabled(if: geteuid() == 0, "only root can plant a link for another user"))
struct `A symbolic link that another user plants in the way after admission` {
    let folder = TemporaryFolder("todoku-planted")

    /// "…/way/deep", where "way" is a link of `owner` to "real".
    private func way(owner: uid_t) -> String {
        folder.makeFolder("real")
        folder.makeFolder("real/deep")
        #expect(symlink("real", folder("way")) == 0 && lchown(folder("way"), owner, owner) == 0)
        return folder("way/deep")
    }

    @Test func `stops a transfer before it asks or writes anything`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let fixture = await EngineFixture()
        let way = way(owner: 65534)
        let end = try await fixture.run(server.url("/x")) { $0.directory = way }
        #expect(end.failure?.name == .permissionDenied && end.failure?.wait == nil && end.failure?.isRetryable == false)
        #expect(server.requests.count == 0 && listFolder(folder("real/deep")) == [])
        #expect(lchown(folder("way"), geteuid(), getegid()) == 0)
        #expect(try await fixture.run(server.url("/x")) { $0.directory = way }.complete != nil)
    }

    /// The path then has no character "/" in front of "deep", because Swift joins the slash and the following mark into one character.
    @Test func `stops a transfer and a deletion also where a mark follows the slash`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let fixture = await EngineFixture()
        folder.makeFolder("real")
        folder.makeFolder("real/\u{301}deep")
        writeFile(folder("real/\u{301}a"), "x".utf8)
        #expect(symlink("real", folder("way")) == 0 && lchown(folder("way"), 65534, 65534) == 0)
        let end = try await fixture.run(server.url("/x")) { $0.directory = folder("way/\u{301}deep") }
        #expect(end.failure?.name == .permissionDenied && server.requests.count == 0, "\(end)")
        var status = stat()
        #expect(stat(folder("real/\u{301}a"), &status) == 0)
        let identity = FileIdentity(device: UInt64(status.st_dev), inode: UInt64(status.st_ino), mount: 0, boot: "")
        guard case .failure(let refusal) = Commit.deleteFinished(folder("way/\u{301}a"), identity: identity) else {
            return #expect(Bool(false))
        }
        #expect(refusal.name == .permissionDenied && fileExists(folder("real/\u{301}a")))
    }

    @Test func `stops a commit, a proof and a discard`() {
        let way = way(owner: 65534)
        writeFile(folder("real/deep/.todoku-1.part"), "x".utf8)
        let identity = FileIdentity(device: 0, inode: 0, mount: 0, boot: "")
        let outcome = Commit.commit(
            directory: way, partName: ".todoku-1.part", identity: identity, name: "a", policy: .replace, origin: nil, mapPath: nil)
        guard case .failed(let failure) = outcome else { return #expect(Bool(false)) }
        #expect(failure.name == .permissionDenied)
        guard
            case .failed(let failure) = Commit.verify(
                directory: way, partName: ".todoku-1.part", identity: identity, size: 1, checksum: nil, expectedSize: nil)
        else { return #expect(Bool(false)) }
        #expect(failure.name == .permissionDenied)
        Commit.discard(directory: way, partName: ".todoku-1.part", mapPath: nil)
        #expect(listFolder(folder("real/deep")) == [".todoku-1.part"])
    }

    @Test func `keeps a finished file from being deleted through it`() {
        let way = way(owner: 65534)
        writeFile(folder("real/deep/a"), "x".utf8)
        var status = stat()
        #expect(stat(folder("real/deep/a"), &status) == 0)
        let identity = FileIdentity(device: UInt64(status.st_dev), inode: UInt64(status.st_ino), mount: 0, boot: "")
        guard case .failure(let refusal) = Commit.deleteFinished("\(way)/a", identity: identity) else { return #expect(Bool(false)) }
        #expect(refusal.name == .permissionDenied)
        #expect(fileExists(folder("real/deep/a")))
        #expect(lchown(folder("way"), geteuid(), getegid()) == 0)
        #expect(throws: Never.self) { try Commit.deleteFinished("\(way)/a", identity: identity).get() }
        #expect(!fileExists(folder("real/deep/a")))
        #expect(throws: Never.self) { try Commit.deleteFinished("\(way)/gone/a", identity: identity).get() }
    }
}

@Suite struct `A way of the user's own links` {
    @Test func `is followed, absolute, relative and with dots, up to 40 of them`() async throws {
        let folder = TemporaryFolder("todoku-links")
        folder.makeFolder("real")
        folder.makeFolder("real/deep")
        #expect(symlink(folder("real"), folder("absolute")) == 0 && symlink("./absolute/../real/./deep", folder("relative")) == 0)
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let fixture = await EngineFixture()
        for (number, way) in ["relative", "absolute/deep", "absolute/deep/../deep/."].enumerated() {
            #expect(try await fixture.run(server.url("/x"), number: UInt64(number)) { $0.directory = folder(way) }.complete != nil)
            #expect(fileExists(folder("real/deep/.todoku-\(number).part")))
        }
        #expect(symlink("real", folder("link-0")) == 0)
        for number in 1...40 { #expect(symlink("link-\(number - 1)", folder("link-\(number)")) == 0) }
        #expect(try await fixture.run(server.url("/x")) { $0.directory = folder("link-39") }.complete != nil)
        #expect(try await fixture.run(server.url("/x")) { $0.directory = folder("link-40") }.failure?.name == .writeFailed)
    }
}
