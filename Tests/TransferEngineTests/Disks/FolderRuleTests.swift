import DownloadModel
import Glibc
import TestSupport
import Testing
import TransferEngine

@testable import PartFiles

@Suite(.timeLimit(.minutes(5)))
struct `The rules of a folder` {
    @Test func `apply when a transfer starts: a folder that became a link to a hidden one is refused, without a request`()
        async throws
    {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "[Desktop Entry]") }
        let fixture = await EngineFixture()
        let folder = TemporaryFolder("todoku-moved")
        folder.makeFolder("files")
        folder.makeFolder(".config")
        folder.makeFolder(".config/autostart")
        #expect(rename(folder("files"), folder("away")) == 0 && symlink(".config/autostart", folder("files")) == 0)
        let end = try await fixture.run(server.url("/a.desktop")) { $0.directory = folder("files") }
        #expect(end.failure?.name == .permissionDenied && end.failure?.wait == nil && end.failure?.isRetryable == false)
        #expect(
            end.failure?.message
                == "Todoku does not write into the folder \(folder("files")): it is at \(folder(".config")) now, which is hidden.")
        #expect(server.requests.count == 0 && listFolder(folder(".config/autostart")) == [])
        // A download that waits for such a folder fails with the reason, and does not wait any longer.
        #expect(Destination.room(in: folder("files"), allowHidden: false, reserve: .automatic) == .max)
        #expect(unlink(folder("files")) == 0 && rename(folder("away"), folder("files")) == 0)
        #expect(try await fixture.run(server.url("/a.desktop")) { $0.directory = folder("files") }.complete != nil)
    }

    @Test func `see the dot of a hidden folder, also with a combining mark`() throws {
        let folder = TemporaryFolder("todoku-marks")
        let hidden = folder.makeFolder(".\u{301}config")
        guard case .failure(let refusal) = Destination.check(hidden, allowHidden: false, create: false) else {
            return #expect(Bool(false))
        }
        #expect(refusal.name == .notAllowed)
        #expect(throws: Never.self) { try Destination.check(hidden, allowHidden: true, create: false).get() }
    }

    @Test func `let no server choose which file is replaced`() async throws {
        let server = ScriptedServer { request, reply in
            if request.target == "/go" { return reply.respond(302, ["Location": "/precious.txt"], text: "") }
            let disposition = "attachment; filename=\"precious.txt\""
            reply.head(200, ["Content-Disposition": disposition, "Content-Type": "text/html"], length: 1)
            reply.send("x")
        }
        func name(_ path: String, _ policy: ExistingFilePolicy, _ given: String? = nil) async throws -> String? {
            let fixture = await EngineFixture()
            return try await fixture.run(server.url(path)) { ($0.ifExists, $0.fileName) = (policy, given) }.complete?.facts.fileName
        }
        #expect(try await name("/data.csv?x=1", .replace) == "data.csv")
        #expect(try await name("/go", .replace) == "go")
        #expect(try await name("/", .replace) == "127.0.0.1", "not even the extension")
        #expect(try await name("/data.csv", .replace, "own.csv") == "own.csv")
        #expect(try await name("/data.csv", .rename) == "precious.txt")
    }
}

@Suite(.timeLimit(.minutes(5)), .serialized, .enabled("only root can set up an automount") { await Automount.isPossible() })
struct `An automount` {
    @Test func `is mounted by a transfer that goes there, which writes onto its disk`() async throws {
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let fixture = await EngineFixture()
        try await Automount.with { automount in
            var below = stat()
            #expect(stat(automount.path, &below) == 0 && !automount.isMounted)
            #expect(Destination.check(automount.path, allowHidden: false, create: false) == .success(automount.path))
            #expect(await eventually { automount.isMounted })
            var disk = stat()
            #expect(stat(automount.path, &disk) == 0 && disk.st_dev != below.st_dev)
            let end = try await fixture.run(server.url("/x")) { $0.directory = automount.path }
            #expect(end.complete?.identity.device == UInt64(disk.st_dev))
        }
    }

    @Test func `is mounted behind a link of the user's own, too`() async throws {
        let folder = TemporaryFolder("todoku-link")
        try await Automount.with { automount in
            #expect(symlink(automount.path, folder("stick")) == 0)
            #expect(Destination.check(folder("stick"), allowHidden: false, create: false) == .success(folder("stick")))
            #expect(await eventually { automount.isMounted })
        }
    }
}
