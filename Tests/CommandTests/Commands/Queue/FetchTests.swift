import CSystem
import DownloadModel
import Glibc
import TestSupport
import Testing

@testable import TodokuClient

@Suite(.serialized) struct `todoku fetch` {
    private func server(_ body: [UInt8] = Array("hello".utf8)) -> ScriptedServer {
        ScriptedServer { request, reply in
            if request.path == "/gone" { return reply.respond(404) }
            if request.field("If-None-Match") == "\"1\"" { return reply.head(304) }
            reply.respond(200, ["ETag": "\"1\""], body: body)
        }
    }

    @Test func `prints the path, and with --exit-code reports new data by its status`() async throws {
        let desk = await Desk()
        let server = server()
        let path = "\(desk.downloads)/a.bin\n"
        #expect(await desk.run("fetch", "--exit-code", server.url("/a.bin")).succeeded(saying: path))
        #expect(await desk.run("fetch", server.url("/a.bin")).succeeded(saying: path))
        let same = await desk.run("fetch", "--exit-code", server.url("/a.bin"))
        #expect(same.status == 4 && same.output == path && same.errors == "")
        let quiet = await desk.run("fetch", "-q", "--exit-code", server.url("/a.bin"))
        #expect(quiet.status == 4 && quiet.output == "" && quiet.errors == "")
        #expect(await desk.run("fetch", "-q", server.url("/a.bin")).succeeded(saying: ""))
        let json = JSON(await desk.run("fetch", "--json", server.url("/a.bin")).output)
        #expect(json?["outcome"]?.string == "no-data" && json?["path"]?.string == "\(desk.downloads)/a.bin")
        let there = await desk.run("fetch", "--json", "-o", "b", server.url("/a.bin"))
        #expect(JSON(there.output)?["outcome"]?.string == "new-data")
        #expect(readFile(desk.bus.folder("b")) == Array("hello".utf8))
        #expect(server.requests.count(where: { $0.field("If-None-Match") == nil }) == 2)
        await desk.close()
    }

    @Test(arguments: [["--extract"], ["--private"], ["--post-data", "x"], ["--post-file", "/dev/null"]])
    func `names the option that compares nothing`(option: [String]) async throws {
        let desk = await Desk()
        let exit = await desk.start(["fetch", "http://127.0.0.1:1/a"] + option).wait()
        #expect(exit.status == 2 && exit.errors.contains("\(option[0]) is not for todoku fetch"), "\(exit)")
        await desk.close()
    }

    @Test func `exits with 1 after a failure, 3 after a refusal, 2 for a wrong command line`() async throws {
        let desk = await Desk()
        let server = server()
        let failed = await desk.run("fetch", server.url("/gone"))
        #expect(failed.status == 1 && failed.output == "" && failed.errors.contains("404"))
        let json = await desk.run("fetch", "--json", server.url("/gone"))
        #expect(json.status == 1 && JSON(json.output)?["error"]?["name"]?.string == "org.todoku.Error.HttpStatus")
        #expect(await desk.run("fetch", "ftp://example.org/a").status == 3)
        #expect(await desk.run("fetch", "-d", "/no/such", server.url("/a")).status == 3)
        #expect(await desk.run("fetch", server.url("/a"), server.url("/b")).status == 2)
        await desk.close()
    }

    @Test func `tells a refusal from a failure also by an error whose name both may have`() async throws {
        let desk = await Desk()
        let server = server()
        func fetch(_ url: String, _ options: String...) async -> Child.Exit { await desk.start(["fetch", url] + options).wait() }
        let token = ["--app", "org.example.App", "--token", "t"]
        #expect(await fetch(server.url("/a"), token[0], token[1], token[2], token[3]).status == 0)
        let named = await fetch(server.url("/b"), token[0], token[1], token[2], token[3])
        #expect(named.status == 3 && named.errors.contains("token"), "AlreadyExists: \(named)")
        writeFile("\(desk.downloads)/c", "mine".utf8)
        let taken = await fetch(server.url("/c"), "--if-exists", "fail")
        #expect(taken.status == 1 && taken.errors.contains("/c exists already"), "AlreadyExists: \(taken)")
        #expect(await fetch("http://127.0.0.1:1/a", "--not-private").status == 3, "NotAllowed")
        // The engine looks the name up. If the name leads nowhere, the download fails, too.
        if todoku_has_interface(), !isPrivateAddress(ownHostName()) {
            let own = await fetch("http://\(ownHostName()):1/a", "--not-private", "--retries", "0")
            #expect(own.status == 1, "NotAllowed: \(own)")
        }
        if geteuid() != 0 {  // root may write everywhere
            let folder = desk.bus.folder.makeFolder("closed")
            chmod(folder, 0o500)
            let closed = await fetch(server.url("/d"), "-d", folder)
            #expect(closed.status == 3, "PermissionDenied: \(closed)")
        }
        await desk.close()
    }

    @Test func `keeps waiting if the service is killed, and treats unknown data as new`() async throws {
        let desk = await Desk()
        let gate = Gate()
        let server = ScriptedServer { request, reply in
            if request.number == 0 { gate.wait() }
            reply.respond(200, ["ETag": "\"1\""], text: "hello")
        }
        let child = desk.start(["fetch", "--exit-code", server.url("/a")])
        #expect(await server.waitForRequests(1))
        let process = try #require(await desk.serviceProcess())
        kill(process, SIGKILL)
        let exit = await child.wait()
        gate.open()
        #expect(exit.succeeded(saying: "\(desk.downloads)/a\n"), "\(exit)")
        await desk.close()
    }

    @Test func `works through the Swift client, which also downloads into a descriptor`() async throws {
        let desk = await Desk()
        let server = server()
        let client = try await DownloaderClient.connect(to: desk.bus.address)
        #expect(try await client.fetch(server.url("/a")) == FetchedFile(isNew: true, path: "\(desk.downloads)/a"))
        #expect(try await client.fetch(server.url("/a")) == FetchedFile(isNew: false, path: "\(desk.downloads)/a"))
        let descriptor = open(desk.bus.folder("own"), O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        let download = try await client.download(server.url("/b"), into: descriptor)
        #expect(try await client.wait(for: download) == "")
        #expect(fcntl(descriptor, F_GETFD) != -1, "it is the caller's still")
        close(descriptor)
        #expect(readFile(desk.bus.folder("own")) == Array("hello".utf8))
        await desk.close()
    }
}
