import ArgumentParser
import DBus
import DownloadModel
import DownloaderInterface
import TestSupport
import Testing

@testable import TodokuClient
@testable import todoku

@Suite struct `The options of get and add` {
    private func options(_ arguments: [String]) throws -> [String: Variant] {
        let arguments = ExtractArguments.separated(["add"] + arguments + ["http://h/f"])
        let command = try #require(try TodokuCommand.parseAsRoot(arguments) as? AddCommand)
        return try command.request.request().options
    }

    @Test func `cover every option of the contract, in a form that the service reads`() throws {
        let folder = TemporaryFolder()
        writeFile(folder("secret"), "pässword\nrest".utf8)
        writeFile(folder("cookies"), "# Netscape\nh\tFALSE\t/\tFALSE\t0\tn\tv\n".utf8)
        let checksum = "sha256:" + String(repeating: "Ab", count: 32)
        let all = try options([
            "--app", "org.example.App", "--token", "ch_1", "-d", "/tmp/x/../y", "--filename", "a.bin", "--if-exists", "replace", "-H",
            "X-A: 1",
            "-H", "X-B:2", "--load-cookies", folder("cookies"),
            "--user-agent", "ua", "--referrer", "http://r/", "--user", "me", "--password-file", folder("secret"), "--proxy",
            "socks5h://u:p@h:1080",
            "--checksum",
            checksum, "--piece-hashes", "md5:4:" + String(repeating: "0b", count: 48), "--size", "10", "--max-size", "10M", "--paused",
            "--priority", "-5", "--speed-limit", "500K", "--stall-timeout", "5s",
            "--mirror", "https://m/a", "--mirror", "https://n/a", "--find-mirrors", "--connections", "8", "--retries", "3", "--tag", "t",
            "--notify", "never",
            "--title", "T", "--body", "B", "--icon", "i",
            "--sound", "",
            "--no-show-progress",
            "--metadata", "k=v=w", "--expect-type", "Image/*", "--not-before", "@1800000000", "--deadline", "90m", "--renewable",
            "--not-metered", "--not-private", "--allow-downgrade", "--request-interval", "1500ms", "--only-if-changed", "--activate",
            "org.example.App",
            "--notify-delay", "1500ms", "--desktop-id", "org.example.App.desktop",
        ])
        // The others contradict some of them, and no header repeats.
        #expect(Set(all.keys).union(["extract", "header-list", "post-data", "post-type", "private"]) == Set(OptionRow.all.map(\.key)))
        let read = try DownloadOptions(decoding: all)
        #expect((read.app, read.token, read.directory, read.fileName) == ("org.example.App", "ch_1", "/tmp/y", "a.bin"))
        #expect(read.ifExists == .replace)
        #expect(read.headers == [HeaderField(name: "X-A", value: "1"), HeaderField(name: "X-B", value: "2")])
        #expect(read.cookies.map(\.line) == ["h\tFALSE\t/\tFALSE\t0\tn\tv"])
        #expect((read.userAgent, read.referrer, read.username, read.password) == ("ua", "http://r/", "me", "pässword"))
        #expect(read.proxy?.text == "socks5h://u:p@h:1080")
        #expect(read.checksum?.description == checksum.lowercased() && read.pieceHashes?.count == 3)
        #expect((read.size, read.maxSize, read.start, read.priority) == (10, 10_485_760, false, -5))
        #expect((read.speedLimit, read.connections, read.stallTimeout, read.retries) == (512_000, 8, .seconds(5), 3))
        #expect(read.mirrors == ["https://m/a", "https://n/a"] && read.findsMirrors)
        #expect((read.tag, read.notify, read.title, read.body, read.icon) == ("t", .never, "T", "B", "i"))
        #expect((read.expectType, read.deadline, read.renewable) == ("image/*", .seconds(5400), true))
        #expect(
            (read.allowsMetered, read.requestInterval, read.onlyIfChanged, read.activate) == (
                false, .milliseconds(1500), true, "org.example.App"
            ))
        #expect((read.allowsPrivate, read.allowsDowngrade) == (false, true))
        #expect(read.notBefore == WallTime(microseconds: 1_800_000_000_000_000))
        #expect((read.notifyDelay, read.desktopID) == (.milliseconds(1500), DesktopID("org.example.App")))
        #expect((read.sound, read.showProgress) == ("", false))
        #expect(Message.value([String: Variant].self, from: read.metadata) == ["k": .string("v=w")])
    }

    @Test func `divide user, header and metadata at a sign that a combining mark follows`() throws {
        let read = try DownloadOptions(decoding: options(["--user", "me:\u{301}:", "-H", "X-A:\u{301}:", "--metadata", "k=\u{301}="]))
        #expect(read.username == "me" && read.password?.isSameBytes(as: "\u{301}:") == true)
        #expect(read.headers.map(\.name) == ["X-A"] && read.headers.first?.value.isSameBytes(as: "\u{301}:") == true)
        #expect(Message.value([String: Variant].self, from: read.metadata) == ["k": .string("\u{301}=")])
    }

    @Test func `take the folder of an archive only after an equals sign`() throws {
        func extract(_ arguments: String...) throws -> [String: Variant] { try options(arguments) }
        #expect(try extract("--extract") == ["extract": .bool(true)])
        #expect(try extract("--extract=maps", "-d", "/tmp") == ["extract": .string("maps"), "directory": .string("/tmp")])
        #expect(try extract("--extract=/tmp/x/../maps") == ["extract": .string("/tmp/maps")])
        #expect(try extract("--extract=./maps")["extract"]?.string?.hasSuffix("/maps") == true)
        #expect(try extract("--extract=x/\u{301}maps")["extract"]?.string?.isAbsolutePath == true)
        #expect(try extract("--extract", "--extract=maps") == ["extract": .string("maps")])
        #expect(ExtractArguments.separated(["get", "--", "--extract=maps"]) == ["get", "--", "--extract=maps"])
        #expect(throws: Never.self, "the service suggests the scheme") {
            try TodokuCommand.parseAsRoot(["add", "--extract", "example.org/a.zip"])
        }
    }

    @Test func `send a text or a file as the body of the request`() throws {
        let folder = TemporaryFolder()
        writeFile(folder("body"), [0, 10, 255])
        let text = try DownloadOptions(decoding: options(["--post-data", "a=ü&b", "--post-type", "text/plain"]))
        #expect(text.postData == Array("a=ü&b".utf8) && text.postType == "text/plain")
        let file = try DownloadOptions(decoding: options(["--post-file", folder("body")]))
        #expect(file.postData == [0, 10, 255] && file.postType == DownloadOptions.formType)
        writeFile(folder("long"), [UInt8](repeating: 7, count: 1 << 20 | 1))
        #expect(throws: CommandFailure.self) { try options(["--post-file", folder("long")]) }
        #expect(throws: CommandFailure.self) { try options(["--post-file", folder("none")]) }
    }

    @Test func `keep a download private`() throws { #expect(try options(["--private"]) == ["private": .bool(true)]) }

    @Test func `are not sent if they are not given`() throws { #expect(try options([]).isEmpty) }

    @Test func `take folder and name from --output`() throws {
        let all = try options(["-o", "/tmp/a b.bin"])
        #expect(all == ["directory": .string("/tmp"), "filename": .string("a b.bin")])
        #expect(try options(["-o", "b.bin"])["directory"]?.string?.hasPrefix("/") == true)
    }

    @Test func `accept user and password in one argument`() throws {
        #expect(try options(["--user", "me:a:b"]) == ["username": .string("me"), "password": .string("a:b")])
    }

    @Test(arguments: ["http://me:secret@h/path", "http://me:secret@", "me:secret@h:3128", "http://me:secret", "ftp://me:secret@h"])
    func `name a proxy whose password no error repeats`(proxy: String) async {
        let exit = await Desk.runAlone(["get", "--proxy", proxy, "http://h/f"])
        #expect(exit.status == 2 && exit.errors.contains("--proxy") && !exit.errors.contains("secret"), "\(exit)")
    }

    @Test(arguments: [
        ["--token", "x"], ["-o", "/tmp"], ["-o", "x/"], ["-o", "a", "-d", "b"], ["--password-file", "x"],
        ["--user", "a:b", "--password-file", "x"],
        ["--checksum", "sha256:12"], ["--checksum", "12"], ["--piece-hashes", "12"], ["--piece-hashes", "sha256:0:00", "--size", "1"],
        ["-H", "novalue"], ["--post-data", "a", "--post-file", "b"], ["--post-type", "a/b"], ["--post-data", "a", "http://h/2"],
        ["--post-file", "a", "http://h/2"], ["--load-cookies", "-", "--post-file", "-"], ["--size", "big"], ["--priority", "high"],
        ["--retries", "-1"], ["--proxy", "h:3128"], ["--proxy", "ftp://h"],
        ["--if-exists", "maybe"], ["--metadata", "x"], ["-o", "a", "http://h/2"], ["--extract=a", "http://h/2"],
        ["--extract=a/b", "-d", "/tmp"], ["--extract=a/b", "-o", "c"], ["--size", "1", "http://h/2"],
    ])
    func `are refused if they make no sense`(arguments: [String]) {
        let arguments = ExtractArguments.separated(["get"] + arguments + ["http://h/f"])
        #expect(throws: (any Error).self) { try TodokuCommand.parseAsRoot(arguments) }
    }
}

@Suite struct `Other arguments` {
    @Test(arguments: [
        ["pause"], ["pause", "--all", "7"], ["remove", "--ended", "7"], ["remove", "--ended", "--all"], ["show"], ["show", "x"], ["wait"],
        ["wait", "--tag", "t", "7"], ["wait", "--app", "a", "7"], ["get"],
        ["list", "--state", "done"], ["settings", "colour"], ["settings", "max-active", "many"], ["settings", "speed-limit", "fast"],
        ["open", "x"], ["open", "7", "8"], ["remove", "--trash", "--delete-file", "7"], ["fly"],
        ["renew", "7", "http://h/", "--user", "me", "--password-file", "-", "--load-cookies", "-"],
    ])
    func `are refused if they make no sense`(arguments: [String]) {
        #expect(throws: (any Error).self) { try TodokuCommand.parseAsRoot(arguments) }
    }

    @Test func `set a setting to a new value`() throws {
        #expect(try SettingsCommand.setting(.speedLimit, "2MiB") == .speedLimit(2 << 20))
        #expect(try SettingsCommand.setting(.speedLimit, "none") == .speedLimit(0))
        #expect(try SettingsCommand.setting(.maxActive, "0") == .maxActive(0))
        #expect(try SettingsCommand.setting(.maxActive, "auto") == .maxActive(.max))
        #expect(throws: (any Error).self) { try SettingsCommand.setting(.maxActive, "4294967295") }
        #expect(try SettingsCommand.setting(.defaultDirectory, "/a/./b") == .defaultDirectory("/a/b"))
    }

    @Test(
        arguments: [
            (0, "none"), (7, "7B"), (1000, "1000B"), (512_000, "500KiB"), (2 << 20, "2MiB"), (3 << 40, "3TiB"),
            (.max, "18446744073709551615B"),
        ] as [(ByteCount, String)])
    func `set a setting to the text that the command has printed`(bytes: ByteCount, text: String) throws {
        var settings = ServiceSettings()
        (settings.speedLimit, settings.diskReserve) = (bytes, .bytes(bytes))
        #expect(SettingsCommand.text(.speedLimit, settings) == text && SettingsCommand.text(.diskReserve, settings) == text)
        #expect(try SettingsCommand.setting(.speedLimit, text) == .speedLimit(bytes))
        #expect(try SettingsCommand.setting(.diskReserve, text) == .diskReserve(.bytes(bytes)))
    }
}
