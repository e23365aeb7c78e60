import EventLoop
import TestSupport
import Testing

@testable import Rehearsal

/// What Python, a foreign client, gets from the URL.
@BusActor private func fetch(_ url: String, _ script: String) async -> Child.Exit {
    let start = "import hashlib, http.client, socket, sys, urllib.error, urllib.request\nurl = sys.argv[1]\n"
    let environment = processEnvironment().merging(["no_proxy": "*"]) { $1 }
    return await Child.run(["/usr/bin/python3", "-c", start + script, url], environment: environment)
}

@BusActor private final class Places {
    private(set) var seen: [UInt64] = []
    func add(_ place: UInt64) { seen.append(place) }
}

@Suite(.timeLimit(.minutes(5))) struct `The scripted server` {
    @BusActor private func open(_ text: String) throws -> ScenarioServer {
        let server = try ScenarioServer(try Scenario.parse(text))
        try server.open()
        return server
    }

    @Test @BusActor func `serves files and ranges to a foreign client`() async throws {
        let server = try open("none")
        let exit = await fetch(
            server.url,
            """
            whole = urllib.request.urlopen(url + "/file").read()
            print(hashlib.sha256(whole).hexdigest())
            part = urllib.request.urlopen(urllib.request.Request(url + "/file", headers={"Range": "bytes=1000-1999"}))
            print(part.status, part.read() == whole[1000:2000], part.headers["Content-Range"])
            head = urllib.request.urlopen(urllib.request.Request(url + "/large", method="HEAD"))
            print(head.status, head.headers["Content-Length"], len(head.read()))
            """)
        let lines = "\(RehearsalFile.file.sha256)\n206 True bytes 1000-1999/4194304\n200 16777216 0\n"
        #expect(exit.output == lines && exit.status == 0, "\(exit)")
        #expect(server.requests.map(\.status) == [200, 206, 200] && server.requestCount == 3)
        #expect(server.requests[1] == RehearsalReport.Request(method: "GET", path: "/file", range: "bytes=1000-1999", status: 206))
    }

    @Test @BusActor func `is reached only once it is open`() async throws {
        let server = try ScenarioServer(try Scenario.parse("unreachable"))
        let script = "try: print(urllib.request.urlopen(url + '/small').status)\nexcept urllib.error.URLError as e: print(e.reason.errno)"
        #expect((await fetch(server.url, script)).output == "111\n")  // ECONNREFUSED
        try server.open()
        #expect((await fetch(server.url, script)).output == "200\n")
    }

    @Test @BusActor func `breaks off, stalls and damages at the byte that the scenario says`() async throws {
        let cut = try open("truncated:at=1000")
        let script = "try: urllib.request.urlopen(url + '/file').read()\nexcept http.client.IncompleteRead as e: print(len(e.partial))"
        #expect((await fetch(cut.url, script)).output == "1000\n")

        let stalled = try open("stall:at=1000")
        let silence = await fetch(
            stalled.url,
            """
            connection = http.client.HTTPConnection(url.removeprefix("http://"))
            connection.request("GET", "/file")
            answer = connection.getresponse()
            print(len(answer.read(1000)))
            connection.sock.settimeout(0.5)  # only now: a busy machine may take longer for the first bytes
            try: print(answer.read(1))
            except socket.timeout: print("silence")
            """)
        #expect(silence.output == "1000\nsilence\n", "\(silence)")

        let damaged = try open("damaged")
        let exit = await fetch(
            damaged.url,
            """
            answer = urllib.request.urlopen(url + "/small")
            print(answer.headers["Repr-Digest"], hashlib.sha256(answer.read()).hexdigest())
            """)
        let words = exit.output.split(separator: " ")
        #expect(words.first == "sha-256=:\(RehearsalFile.small.base64):" && words.last?.contains(RehearsalFile.small.sha256) == false)
    }

    @Test @BusActor func `says when the place of a crash is reached`() async throws {
        let server = try open("crash:at=1000")
        let places = Places()
        server.crash = { places.add($0) }
        let script = """
            request = urllib.request.Request(url + "/file", headers={"Range": "bytes=500-"})
            print(len(urllib.request.urlopen(request).read(1000)))
            """
        #expect((await fetch(server.url, script)).output == "1000\n")
        #expect(await eventually { places.seen == [1500] })
    }

    /// The buffers of the connections are smaller than the bytes before the crash, so no answer reaches its place before it is read.
    @Test @BusActor func `asks for no more crashes than the scenario has, although further answers have begun`() async throws {
        let server = try open("crash:at=15M")
        let places = Places()
        server.crash = { [weak server] in
            places.add($0)
            server?.crashed()
        }
        let exit = await fetch(
            server.url,
            """
            def begin():
                connection = http.client.HTTPConnection(url.removeprefix("http://"))
                connection.request("GET", "/large")
                return connection.getresponse()
            first, second = begin(), begin()
            for answer in (first, second): print(len(answer.read(15 << 20)))
            """)
        #expect(exit.output == "15728640\n15728640\n", "\(exit)")
        #expect(places.seen == [15 << 20] && server.played == 1)
    }

    /// A busy machine is only slower.
    @Test(arguments: [("1M", 524_288, 400 as Int64), ("4M", 1_048_576, 200), ("4", 3, 450)])
    @BusActor func `keeps to a rate`(rate: String, bytes: Int, milliseconds: Int64) async throws {
        let server = try open("slow:rate=\(rate)")
        let begun = ContinuousClock.now
        let exit = await fetch(server.url, "print(len(urllib.request.urlopen(url + '/file').read(\(bytes))))")
        #expect(exit.output == "\(bytes)\n")
        #expect(.now - begun >= .milliseconds(milliseconds))
    }
}
