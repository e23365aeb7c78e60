import DBus
import DownloadModel
import DownloaderInterface
import EventLoop
import TestSupport
import Testing

@testable import TodokuClient
@testable import todoku

@Suite(.serialized) struct `An input file of aria2` {
    /// The lines of a list: each URL with the options of its call.
    private func read(_ text: String, in directory: String? = nil) throws(CommandFailure) -> [(url: String, options: [String: Variant])] {
        try URLList(Array(text.utf8), name: "f", directory: directory).lines.map { ($0.url, $0.request.options) }
    }

    /// The options of one URL with these option lines.
    private func options(_ lines: String...) throws(CommandFailure) -> [String: Variant] {
        let lines = try read("http://h/f\n" + lines.map { "  \($0)\n" }.joined())
        return lines.count == 1 ? lines[0].options : [:]
    }

    private func fault(_ text: String, in directory: String? = nil) -> String? {
        do throws(CommandFailure) { _ = try read(text, in: directory) } catch { return error.message }
        return nil
    }

    @Test func `has mirrors after tabs, and options in indented lines`() throws {
        let lines = try read(
            """
            \u{FEFF}# from aria2's session\r
            http://h/a?x=1\thttps://m/a \t http://h/a?x=1\thttps://m/a\r
            \tout=b.iso\r
              # not an option

             dir = /srv/../tmp  \r
            http://h/b
              http://h/c?out=d
            """)
        #expect(lines.map(\.url) == ["http://h/a?x=1", "http://h/b", "http://h/c?out=d"])
        #expect(
            lines[0].options == [
                "filename": .string("b.iso"), "directory": .string("/tmp"), "mirrors": .array(of: "s", [.string("https://m/a")]),
            ])
        #expect(lines[1].options.isEmpty && lines[2].options.isEmpty, "an indented URL is a URL")
    }

    @Test func `means by each option what aria2 does`() throws {
        let digest = String(repeating: "Ab", count: 32)
        #expect(try options("checksum=sha-256=\(digest)") == ["checksum": .string("sha256:\(digest)")])
        let long = String(repeating: "0a", count: 48)
        #expect(try options("checksum=sha-384=\(long)") == ["checksum": .string("sha384:\(long)")])
        #expect(try options("allow-overwrite=true", "auto-file-renaming=false") == ["if-exists": .string("replace")])
        #expect(try options("allow-overwrite=false", "auto-file-renaming=false") == ["if-exists": .string("fail")])
        #expect(try options("auto-file-renaming=true") == ["if-exists": .string("rename")])
        #expect(try options("http-user=me", "http-passwd=a=b c") == ["username": .string("me"), "password": .string("a=b c")])
        #expect(try options("out=\u{301}=.iso") == ["filename": .string("\u{301}=.iso")], "a combining mark follows the equals sign")
        #expect(try options("referer=http://r/", "user-agent=ua") == ["referrer": .string("http://r/"), "user-agent": .string("ua")])
        #expect(try options("referer=*") == ["referrer": .string("http://h/f")])
        #expect(try options("max-download-limit=0") == ["speed-limit": .uint64(0)])
        #expect(try options("max-download-limit=10K", "max-download-limit=2M") == ["speed-limit": .uint64(2 << 20)])
        #expect(try options("max-tries=5") == ["retries": .uint32(4)])
        #expect(try options("max-tries=0") == ["retries": .uint32(.max)])
        #expect(try options("split=8") == ["connections": .uint32(8)])
        #expect(try options("split=99") == ["connections": .uint32(16)])
        #expect(try options("split=8", "max-connection-per-server=2") == ["connections": .uint32(2)])
        #expect(try read("http://h/f\thttp://m/f\n split=8\n max-connection-per-server=2\n")[0].options["connections"] == .uint32(4))
        #expect(try options("max-connection-per-server=4294967295") == ["connections": .uint32(16)])
        #expect(try options("connect-timeout=5", "timeout=60") == ["stall-timeout": .uint32(60_000)])
        #expect(try options("pause=true") == ["start": .bool(false)])
        #expect(try options("pause=false", "dry-run=false", "parameterized-uri=false", "hash-check-only=false") == ["start": .bool(true)])
        #expect(try options("conditional-get=true") == ["only-if-changed": .bool(true)])
        let headers = try DownloadOptions(decoding: try options("header=X-A: 1", "header=X-B:2", "http-no-cache=true")).headers
        #expect(headers.map { "\($0.name)=\($0.value)" } == ["X-A=1", "X-B=2", "Cache-Control=no-cache"])
    }

    @Test func `names the proxy by the scheme of the URL`() throws {
        func proxy(_ url: String, _ lines: String...) throws(CommandFailure) -> String? {
            try read(url + "\n" + lines.map { " \($0)\n" }.joined())[0].options["proxy"]?.string
        }
        let both = ["all-proxy=socks5h://a:1", "http-proxy=p:3128"]
        #expect(try proxy("http://h/", both[0], both[1]) == "http://p:3128")
        #expect(try proxy("https://h/", both[0], both[1]) == "socks5h://a:1")
        #expect(try proxy("https://h/", "http-proxy=p:3128") == nil, "the file names none for https")
        #expect(try proxy("http://h/", "all-proxy=http://p:1", "all-proxy=") == "direct://")
        #expect(try proxy("http://h/") == nil)
        #expect(
            try proxy("http://h/", "http-proxy=http://x@p:1", "http-proxy-user=m e", "http-proxy-passwd=a:@") == "http://m%20e:a%3a%40@p:1")
        #expect(try proxy("http://h/", "http-proxy=p:1", "all-proxy-user=me") == "http://p:1")
        for (exceptions, isDirect) in [("h", true), ("x, .Example.org", false), ("a,h", true), ("10.0.0.0/8", false)] {
            #expect(try proxy("http://h/", "all-proxy=p:1", "no-proxy=\(exceptions)") == (isDirect ? "direct://" : "http://p:1"))
        }
    }

    @Test(arguments: [
        ("proxy.example", "http://proxy.example:80"), ("http://p", "http://p:80"), ("HTTPS://p/", "https://p:443"),
        ("[2001:db8::1]", "http://[2001:db8::1]:80"), ("[2001:db8::1]:3128", "http://[2001:db8::1]:3128"),
        ("http://me:a%3ab@p", "http://me:a%3ab@p:80"), ("p:", "http://p:80"), ("https://p:80", "https://p:80"),
        ("socks5h://p", "socks5h://p"),
    ])
    func `names a proxy with the port that aria2 takes`(value: String, proxy: String) throws {
        #expect(try options("all-proxy=\(value)")["proxy"]?.string == proxy)
    }

    @Test func `adds the login of another option to a proxy without a port`() throws {
        #expect(try options("all-proxy=p", "all-proxy-user=me")["proxy"]?.string == "http://me@p:80")
    }

    @Test func `puts a file where out and dir say`() throws {
        let home = try #require(processEnvironment()["HOME"])
        #expect(try options("dir=${HOME}/iso")["directory"]?.string == LocalPath.absolute("\(home)/iso"))
        #expect(try options("dir=iso")["directory"]?.string?.hasSuffix("/iso") == true)
        let below = try read("http://h/f\n dir=/srv\n out=a/b/c.iso\nhttp://h/g\n out=a/d\nhttp://h/i\n out=j", in: "/tmp")
        #expect(below[0].options == ["directory": .string("/srv/a/b"), "filename": .string("c.iso")])
        #expect(below[1].options == ["directory": .string("/tmp/a"), "filename": .string("d")])
        #expect(below[2].options == ["filename": .string("j")], "the batch's folder is that of the call")
        let list = try URLList(Array("http://h/f\n dir=/srv\nhttp://h/g\n dir=/srv\nhttp://h/i\n dir=/tmp\n".utf8), name: "f")
        #expect(list.folders == ["/srv", "/tmp"])
    }

    @Test(arguments: [
        ("  out=x\nhttp://h/f", 1, "belongs to no URL"), ("http://h/f\n\n  outt=x", 3, "“outt” is not an option"),
        ("http://h/f\n  load-cookies=x", 2, "“load-cookies” is not an option"), ("http://h/f\n  out", 2, "URL"),
        ("http://h/f\n  out=", 2, "“out” must be"), ("http://h/f\n  out=a/", 2, "“out” must be"),
        ("http://h/f\n  out=../x", 2, "“out” must be"), ("http://h/f\n  out=../\u{301}x", 2, "“out” must be"),
        ("http://h/f\n#\n  out=a/x", 3, "“dir” or --directory"),
        ("http://h/f\n  dir=", 2, "“dir” is empty"), ("http://h/f\n  checksum=adler32=00", 2, "sha-256"),
        ("http://h/f\n  checksum=sha-256", 2, "sha-256"), ("http://h/f\n  checksum=sha-256=00", 2, "64 hexadecimal digits"),
        ("http://h/f\n  all-proxy=http://u:secret@", 2, "“all-proxy”"), ("http://h/f\n  header=secret", 2, "no “:”"),
        ("http://h/f\n  http-proxy=foo://x", 2, "“http-proxy” has a scheme"),
        ("http://h/f\n  header=A: b\n  header=Host: secret\n  header=C: d", 3, "“header”: Host is set by the service itself"),
        ("http://h/f\n  split=0", 2, "above 0"), ("http://h/f\n  split=x", 2, "above 0"),
        ("http://h/f\n  split=4294967296", 2, "above 0"), ("http://h/f\n  timeout=601", 2, "from 1 to 600"),
        ("http://h/f\n  max-tries=-1", 2, "whole number"), ("http://h/f\n  max-download-limit=fast", 2, "not a speed"),
        ("http://h/f\n  pause=yes", 2, "true or false"), ("http://h/f\n  dry-run=true", 2, "a batch downloads"),
        ("http://h/{a,b}\n  parameterized-uri=true", 2, "a line for each"), ("http://h/f\tftp://h/f", 1, "only http and https"),
        ("http://h/f\n  out=a\u{0}b", 2, "not UTF-8"), ("http://h/f\n  header=A: b\u{0}", 2, "not UTF-8"),
        ("h\u{0}t\u{0}t\u{0}p\u{0}", 1, "not UTF-8"), ("http://h/f\n  all-proxy=http://p/%00", 2, "a path or a query"),
        ("http://h/f\n  all-proxy=http://u:secret%00@p", 2, "cannot be sent"), ("http://h/f\n  all-proxy=direct://p", 2, "no proxy"),
        ("http://h/f\n  all-proxy=p\n  all-proxy-user=a:b", 3, "cannot be sent"),
    ])
    func `is refused with the line of its fault`(text: String, line: Int, reason: String) throws {
        let message = try #require(fault(text))
        #expect(message.hasPrefix("f, line \(line): ") && message.contains(reason), "\(message)")
        #expect(!message.contains("secret"))
    }

    @Test func `has lines of a bounded length, and a bounded number of mirrors`() {
        let line = String(repeating: "x", count: 300_000)
        #expect(fault(line)?.hasPrefix("f, line 1: it is longer than ") == true)
        let urls = (0...Limits.mirrors + 1).map { "http://h/\($0)" }
        #expect(fault(urls.dropLast().joined(separator: "\t")) == nil)
        #expect(fault(urls.joined(separator: "\t")) == "f, line 1: A URL has at most 32 mirrors.")
    }

    @Test func `counts the URLs over the limit of a batch without keeping them`() throws {
        let lines = String(repeating: "http://h/f\n  split=2\n", count: Limits.batchItems)
        #expect(try read(lines).count == Limits.batchItems)
        #expect(fault(lines + "http://h/f\nhttp://h/f\n")?.contains("but a batch takes at most") == true)
        #expect(fault(lines + "http://h/f\nnonsense\n")?.hasPrefix("f, line 20002: ") == true)
        #expect(fault(String(repeating: "\n", count: 1_000_000))?.contains("no URL") == true)
        #expect(try read("# \(String(repeating: "x", count: 300_000))\nhttp://h/f").count == 1)
    }

    @Test func `says once of each option that it has no effect here`() throws {
        let text = "http://h/f\n  file-allocation=none\n  seed-time=0\nhttp://h/g\n  file-allocation=none\n  gid=1\n"
        let list = try URLList(Array(text.utf8), name: "f")
        #expect(list.lines.allSatisfy { $0.request.options.isEmpty })
        #expect(
            list.warnings == [
                "f, line 2: “file-allocation” has no effect: Todoku decides this by itself",
                "f, line 3: “seed-time” has no effect: it is for BitTorrent", "f, line 6: “gid” has no effect: Todoku has nothing like it",
            ])
    }

    /// The table of the guide has each option once, and says of each what the command does.
    @Test func `has a row of the guide for each option`() throws {
        let guide = String(decoding: try #require(readFile("\(repository)/docs/guides/from-aria2.md")), as: UTF8.self)
        let start = try #require(guide.firstRange(of: "## Input files"))
        let rest = guide[start.upperBound...]
        let section = rest[..<(try #require(rest.firstRange(of: "\n## ")).lowerBound)]
        var seen: [String: Bool] = [:]
        for row in section.split(separator: "\n") where row.hasPrefix("| `") {
            let cells = row.split(separator: "|")
            let names = cells[0].split(separator: "`").map(String.init).filter { $0.contains { $0.isLetter } }
            for name in names {
                #expect(seen[name] == nil, "\(name) is there twice")
                seen[name] = !cells[1].contains("no effect")
            }
        }
        #expect(Set(seen.keys) == Aria2Options.mapped.union(Aria2Options.ignored.keys))
        for (name, hasEffect) in seen { #expect(Aria2Options.mapped.contains(name) == hasEffect, "\(name)") }
        for name in Aria2Options.mapped { #expect(fault("http://h/f\n  \(name)=")?.contains("is not an option") != true, "\(name)") }
    }

    @Test func `is queued by todoku batch`() async throws {
        let desk = await Desk()
        let body = patternBytes(3000)
        let server = ScriptedServer { request, reply in
            if request.path == "/gone" { return reply.respond(404) }
            guard request.field("X-Key") == "k" || request.path == "/plain" else { return reply.respond(403) }
            reply.serve(body, for: request)
        }
        let sum = TestSupport.hexadecimal(await digest(of: body))
        let text = """
            \(server.url("/gone"))\t\(server.url("/plain"))
              out=sub/mirrored
              checksum=sha-256=\(sum)
              file-allocation=falloc
            \(server.url("/keyed"))
              header=X-Key: k
              dir=\(desk.bus.folder("there"))
            """
        writeFile(desk.bus.folder("list"), text.utf8)
        let exit = await desk.run("batch", "--wait", "--parents", "--directory", "here", "--notify", "never", "list")
        #expect(exit.status == 0 && exit.output.hasSuffix("1 ended 2 finished\n"), "\(exit)")
        #expect(exit.errors == "todoku: list, line 4: “file-allocation” has no effect: Todoku decides this by itself\n", "\(exit)")
        #expect(readFile(desk.bus.folder("here/sub/mirrored")) == body)
        #expect(readFile(desk.bus.folder("there/keyed")) == body)

        writeFile(desk.bus.folder("bad"), "\n\(server.url("/plain"))\n  out=.hidden\n".utf8)
        let refused = await desk.run("batch", "bad")
        #expect(refused.status == 3 && refused.errors.hasPrefix("todoku: bad, line 3: “out” must be a bare name"), "\(refused)")
        writeFile(desk.bus.folder("bad"), "\(server.url("/plain"))\n  out=a\n  dir=\(desk.bus.folder("none"))\n".utf8)
        let folder = await desk.run("batch", "bad")
        #expect(folder.status == 3 && folder.errors.hasPrefix("todoku: bad, line 3: The folder "), "\(folder)")
        writeFile(desk.bus.folder("bad"), "\(server.url("/plain"))\n  out=a\n  referer=x\n".utf8)
        let elsewhere = await desk.run("batch", "--directory", desk.bus.folder("none"), "bad")
        #expect(elsewhere.status == 3 && !elsewhere.errors.contains("line 2") && !elsewhere.errors.contains("line 3"), "\(elsewhere)")
        let quiet = await desk.run("batch", "--quiet", "--paused", "--parents", "--directory", "here", "list")
        #expect(quiet.succeeded(saying: ""), "\(quiet)")
        let json = await desk.run("batch", "--json", "--paused", "--directory", "here", "list")
        #expect(json.status == 0 && JSON(json.output)?["downloads"]?.array?.count == 2 && json.errors.contains("line 4"), "\(json)")
        await desk.close()
    }
}
