import ArgumentParser
import DownloadModel
import EventLoop
import TestSupport
import Testing

@testable import TodokuClient
@testable import todoku

/// Ten seconds after its end, a private download leaves the list. Each test waits for that, so they run beside each other.
///
/// The command must look at the download in these ten seconds. On a busy machine, it may be late.
@Suite(.timeLimit(.minutes(10))) struct `The end of a private download that has left the list` {
    private static let late: Comment = "each time, the command looked later than ten seconds after the end"

    /// A session with the script `noting`, and a server that answers /slow… once the gate is open, and /gone with 404.
    private struct Stage {
        let desk: Desk
        let gate = Gate()
        let server: ScriptedServer
        let client: DownloaderClient
        private let folder = TemporaryFolder("todoku-notes")

        init() async throws {
            let noting = "#!/bin/sh\necho \"$TODOKU_OUTCOME $TODOKU_SIZE $1\" >>\"$NOTES\"\n"
            desk = await Desk(tools: ["noting": noting], extra: ["NOTES": folder("notes"), "TODOKU": Desk.command])
            server = ScriptedServer { [gate] request, reply in
                if request.path.hasPrefix("/slow") { gate.wait() }
                if request.path == "/gone" { reply.respond(404) } else { reply.respond(200, text: "text") }
            }
            client = try await DownloaderClient.connect(to: desk.bus.address)
        }

        func urls(_ paths: [String]) -> [String] { paths.map { server.url($0) } }

        /// Waits until these downloads have left the list.
        func haveLeft(_ numbers: UInt64...) async -> Bool {
            await eventually {
                for number in numbers where (try? await client.describe(DownloadReference(number: number))) != nil { return false }
                return true
            }
        }

        /// Whether these downloads are on the list.
        func areListed(_ numbers: [UInt64]) async -> Bool {
            for number in numbers where (try? await client.describe(DownloadReference(number: number))) == nil { return false }
            return true
        }

        /// Waits until the command that has called `Wait` has read these downloads after their ends. It has read them once before, because
        /// they were paused.
        ///
        /// - Returns: whether they were on the list for so long.
        func wereRead(_ numbers: [UInt64], in calls: Calls) async -> Bool {
            guard let command = calls.caller(of: "Wait") else { return false }
            let areRead = await eventually {
                numbers.allSatisfy { calls.count("GetAll", at: DownloadReference(number: $0).path, by: command) >= 2 }
            }
            guard areRead else { return false }
            return await areListed(numbers)
        }

        /// Waits until the command that looks at batch 1 each second has done so after the ends of these members.
        ///
        /// - Returns: whether they were on the list for so long.
        func wereSeen(_ numbers: [UInt64], in calls: Calls) async -> Bool {
            for number in numbers {
                let member = DownloadReference(number: number)
                guard await eventually({ (try? await client.describe(member))?.state.hasEnded == true }) else { return false }
            }
            // The monitor shows the calls in their order. Once it shows this one, the calls that it does not show yet came after the ends.
            _ = try? await client.metadata(of: DownloadReference(number: numbers[0]))
            guard await eventually({ calls.count("GetMetadata") >= 1 }) else { return false }
            // A look is over when the next one begins.
            let batch = BatchReference(number: 1).path
            let former = calls.count("GetAll", at: batch)
            guard await eventually({ calls.count("GetAll", at: batch) >= former + 2 }) else { return false }
            return await areListed(numbers)
        }

        var notes: [String] { String(decoding: readFile(folder("notes")) ?? [], as: UTF8.self).split(separator: "\n").map(String.init) }

        func close() async {
            gate.open()
            await desk.close()
        }
    }

    @Test func `is told by wait in the order of the arguments`() async throws {
        #expect(try await inTime { try await isToldInOrder() }, Self.late)
    }

    /// - Returns: whether the command was not late.
    private func isToldInOrder() async throws -> Bool {
        let stage = try await Stage()
        let desk = stage.desk
        let add = ["add", "--private", "--paused"] + stage.urls(["/slow", "/fast", "/gone"])
        #expect(await desk.start(add).wait().output == "1\n2\n3\n")
        let calls = await Calls(of: desk)
        let wait = desk.start(["wait", "1", "2", "3"])
        #expect(await wait.complains("download 3 is paused"), "\(wait.errors)")
        // The command says so before it waits for the third download, which must not have left the list then.
        #expect(await eventually { calls.count("Wait") >= 3 }, "\(wait.errors)")
        #expect(await desk.run("resume", "1", "2", "3").status == 0)
        guard await stage.wereRead([3], in: calls) else {
            await stage.close()
            return false
        }
        #expect(await stage.haveLeft(2, 3))
        #expect(wait.output == "", "the first file is still missing")
        stage.gate.open()
        let exit = await wait.wait()
        #expect(exit.status == 1 && exit.output == "\(desk.downloads)/slow\n\(desk.downloads)/fast\n", "\(exit)")
        #expect(exit.errors.contains("todoku: gone (download 3) failed: ") && !exit.errors.contains("there is no download"), "\(exit)")
        await stage.close()
        return true
    }

    @Test func `runs the command of wait for each download of a batch`() async throws {
        #expect(try await inTime { try await runsForBatch() }, Self.late)
    }

    /// - Returns: whether the command was not late.
    private func runsForBatch() async throws -> Bool {
        let stage = try await Stage()
        let desk = stage.desk
        writeFile(desk.bus.folder("list"), stage.urls(["/slow", "/fast", "/gone"]).joined(separator: "\n").utf8)
        #expect(await desk.run("pause", "--all").status == 0)
        #expect(await desk.run("batch", "--private", "--quiet", "list").status == 0)
        let calls = await Calls(of: desk)
        let wait = desk.start(["wait", "--exec", "noting", "--exec-failed", "noting", "1"])
        #expect(await wait.complains("everything is paused"), "\(wait.errors)")
        #expect(await desk.run("resume", "--all").status == 0)
        guard await stage.wereSeen([3, 4], in: calls) else {
            await stage.close()
            return false
        }
        #expect(await stage.haveLeft(3, 4))
        #expect(stage.notes == [])
        stage.gate.open()
        let exit = await wait.wait()
        // After the end of the batch, the command looks once more, for the last download.
        if stage.notes.count < 3, await !stage.areListed([2]) {
            await stage.close()
            return false
        }
        #expect(exit.status == 1 && exit.output == "2 finished, 1 failed, 0 cancelled\n", "\(exit)")
        #expect(stage.notes.count == 3 && stage.notes.last == "finished 4 \(desk.downloads)/slow", "\(stage.notes)")
        #expect(Set(stage.notes.dropLast()) == ["finished 4 \(desk.downloads)/fast", "failed 0 "], "\(stage.notes)")
        await stage.close()
        return true
    }

    /// The command of the first download ends once the second one has left the list.
    @Test func `runs the command of wait also after a long command`() async throws {
        #expect(try await inTime { try await runsAfterLongCommand() }, Self.late)
    }

    /// - Returns: whether the command was not late.
    private func runsAfterLongCommand() async throws -> Bool {
        let stage = try await Stage()
        let desk = stage.desk
        let add = ["add", "--private", "--paused"] + stage.urls(["/first", "/second"])
        #expect(await desk.start(add).wait().output == "1\n2\n")
        let command = #"noting "$1"; [ "$TODOKU_DOWNLOAD" = 2 ] || while "$TODOKU" show 2 >/dev/null 2>&1; do sleep 0.2; done"#
        let calls = await Calls(of: desk)
        let wait = desk.start(["wait", "--exec", command, "1", "2"])
        #expect(await wait.complains("download 2 is paused"), "\(wait.errors)")
        #expect(await eventually { calls.count("Wait") >= 2 }, "\(wait.errors)")
        #expect(await desk.run("resume", "1", "2").status == 0)
        guard await stage.wereRead([1, 2], in: calls) else {
            await stage.close()
            return false
        }
        let exit = await wait.wait()
        #expect(exit.status == 0 && exit.output == "\(desk.downloads)/first\n\(desk.downloads)/second\n", "\(exit)")
        #expect(stage.notes == ["first", "second"].map { "finished 4 \(desk.downloads)/\($0)" }, "\(stage.notes)")
        await stage.close()
        return true
    }

    @Test(arguments: [[], ["--quiet"], ["--json"]])
    func `is named by batch --wait, if the download failed`(options: [String]) async throws {
        #expect(try await inTime { try await isNamedByBatch(options) }, Self.late)
    }

    /// - Returns: whether the command was not late.
    private func isNamedByBatch(_ options: [String]) async throws -> Bool {
        let stage = try await Stage()
        let desk = stage.desk
        writeFile(desk.bus.folder("list"), stage.urls(["/slow", "/gone"]).joined(separator: "\n").utf8)
        let calls = await Calls(of: desk)
        let batch = desk.start(["batch", "--wait", "--private", "--notify", "never"] + options + ["list"])
        #expect(await stage.server.waitForRequests(2))
        guard await stage.wereSeen([3], in: calls) else {
            await stage.close()
            return false
        }
        #expect(await stage.haveLeft(3))
        stage.gate.open()
        let exit = await batch.wait()
        let text = options == ["--json"] ? exit.output : exit.errors
        let name = options == ["--json"] ? "\"event\":\"failed\"" : "todoku: gone (download 3) failed: "
        #expect(exit.status == 1 && text.ranges(of: name).count == 1 && text.contains("404"), "\(exit)")
        await stage.close()
        return true
    }

    @Test func `is no failure of a member that was started again`() async throws {
        let stage = try await Stage()
        let desk = stage.desk
        writeFile(desk.bus.folder("list"), stage.urls(["/slow", "/gone"]).joined(separator: "\n").utf8)
        let batch = desk.start(["batch", "--wait", "--notify", "never", "list"])
        #expect(await batch.says("1 progress 0 of 2 finished, 1 failed"), "\(batch.output)")
        #expect(await desk.run("renew", "3", stage.server.url("/slow-again")).status == 0)
        stage.gate.open()
        let exit = await batch.wait()
        #expect(exit.status == 0 && exit.errors == "" && exit.output.hasSuffix("1 ended 2 finished\n"), "\(exit)")
        await stage.close()
    }

    /// As if all others had ended between the two calls of the first look, which knows of one end only. Downloads that are cleared leave
    /// the list as private ones do.
    @Test(arguments: [3, 100]) @BusActor func `is seen by a look, however many others end meanwhile`(members: Int) async throws {
        let stage = try await Stage()
        let items = (0..<members).map { BatchItem(stage.server.url("/file\($0)")) }
        let batch = try await stage.client.downloadBatch(items).reference
        #expect(try await stage.client.wait(for: batch).finished == UInt32(members))
        let ended = EndedMembers(stage.client, of: batch, in: [.finished])
        await ended.look(1)
        await ended.look(UInt32(members))
        #expect(try await stage.client.clearEnded() == UInt32(members))
        let seen = try await ended.all()
        #expect(Set(seen.map(\.reference)).count == members && seen.count == members)
        await stage.close()
    }

    /// As if the download had ended more than ten seconds before `todoku get` has queued its last URL.
    @Test @BusActor func `is told as a removal by get, which follows the others`() async throws {
        let stage = try await Stage()
        let download = try await stage.client.download(stage.server.url("/fast"))
        var lines: [String] = []
        let display = PlainDisplay { lines.append($0) }
        let follower = Follower(stage.client, display: display, exec: try ExecArguments.parse([]), json: false)
        let status = try await follower.follow([DownloadReference(number: 99), download])
        #expect(status == .ended)
        #expect(lines.first == "99 removed\n" && lines.last == "1 finished \(stage.desk.downloads)/fast\n", "\(lines)")
        await stage.close()
    }
}
