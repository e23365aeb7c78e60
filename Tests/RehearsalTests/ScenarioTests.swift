import TestSupport
import Testing

@testable import Rehearsal

@Suite struct `A scenario` {
    @Test(arguments: Scenario.Kind.allCases) func `is read from its name, and written with all its parameters`(kind: Scenario.Kind) throws {
        let scenario = try Scenario.parse(kind.rawValue)
        #expect(scenario.kind == kind && scenario.disk == nil)
        #expect(scenario.parameters.map(\.key) == kind.parameters.filter { $0.bounds != nil }.map(\.key))
        for parameter in kind.parameters {
            guard let bounds = parameter.bounds else { continue }
            #expect(bounds.contains(parameter.standard) && scenario.number(parameter.key) == parameter.standard)
        }
        #expect(try Scenario.parse(scenario.description) == scenario)
        #expect(kind.sentence.hasSuffix("."))
    }

    @Test(arguments: [
        ("crash:at=2M", "crash:at=2097152,times=1"), ("crash:times=0,at=1K", "crash:at=1024,times=0"), ("slow:rate=7", "slow:rate=7"),
        ("busy:status=429,retry-after=5", "busy:times=2,status=429,retry-after=5"),
        ("full-disk:disk=/a=b", "full-disk:free=1048576,seconds=0,disk=/a=b"),
    ])
    func `has the parameters that are given`(text: String, whole: String) throws {
        #expect(try Scenario.parse(text).description == whole)
    }

    @Test(arguments: [
        ("", "there is no scenario “”; “todoku rehearse --list” has them all"),
        ("Crash", "there is no scenario “Crash”; “todoku rehearse --list” has them all"),
        ("crash:", "“” is no parameter: write KEY=VALUE, with a comma between two"),
        ("crash:at", "“at” is no parameter: write KEY=VALUE, with a comma between two"),
        ("crash:at=1,", "“” is no parameter: write KEY=VALUE, with a comma between two"),
        ("crash:after=1", "“crash” has no parameter “after”; it has at, times"),
        ("none:at=1", "“none” has no parameter “at”; it has none"), ("crash:at=1,at=2", "“at” is given twice"),
        ("crash:at=-1", "“at” of “crash” must be a number from 0 to 1099511627776, not “-1”"),
        ("crash:at=", "“at” of “crash” must be a number from 0 to 1099511627776, not “”"),
        ("crash:at=1G", "“at” of “crash” must be a number from 0 to 1099511627776, not “1G”"),
        ("crash:at=99999999999999999999", "“at” of “crash” must be a number from 0 to 1099511627776, not “99999999999999999999”"),
        ("crash:at=18446744073709551615M", "“at” of “crash” must be a number from 0 to 1099511627776, not “18446744073709551615M”"),
        ("busy:status=200", "“status” of “busy” must be a number from 400 to 599, not “200”"),
        ("full-disk:disk=small", "“disk” must be an absolute path, not “small”"),
        ("full-disk:disk=/a,disk=/b", "“disk” is given twice"),
    ])
    func `that is wrong is refused with a sentence`(text: String, message: String) {
        #expect(throws: RehearsalError(message)) { try Scenario.parse(text) }
    }
}

@Suite struct `A file of the scripted server` {
    private func bytes(_ file: RehearsalFile, _ version: RehearsalFile.Version = .first, in chunks: Int) -> [UInt8] {
        var all: [UInt8] = []
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: chunks, alignment: 8)
        defer { buffer.deallocate() }
        while true {
            let count = file.fill(buffer, from: UInt64(all.count), version)
            if count == 0 { return all }
            all += buffer[..<count]
        }
    }

    @Test(arguments: [RehearsalFile.small, .file, .large]) func `has the digest that is stated, by sha256sum and by openssl`(
        file: RehearsalFile
    ) async throws {
        let folder = TemporaryFolder()
        writeFile(folder("it"), bytes(file, in: 65_536))
        #expect((await Child.run(["sha256sum", folder("it")])).output.hasPrefix("\(file.sha256) "))
        let script = "openssl dgst -sha256 -binary \"$0\" | openssl base64"
        #expect((await Child.run(["sh", "-c", script, folder("it")])).output == "\(file.base64)\n")
    }

    @Test func `has the same bytes in chunks of any size, and others in its second version`() {
        let whole = bytes(.small, in: 65_536)
        #expect(whole.count == 65_536)
        for size in [1, 7, 4096, 65_535] { #expect(bytes(.small, in: size) == whole, "\(size)") }
        let second = bytes(.small, .second, in: 65_536)
        #expect(second.count == whole.count && zip(second, whole).count(where: { $0.0 == $0.1 }) < 1000)
    }

    @Test(arguments: [
        ("file", "file" as String?), ("file-2", "file"), ("file.tar.gz", "file"), ("small-", "small"), ("large.iso", "large"),
        ("files", nil), ("", nil), ("login", nil), ("-file", nil),
    ])
    func `may have many names`(name: String, file: String?) { #expect(RehearsalFile.named(name)?.name == file) }
}

@Suite struct `The script of a scenario` {
    private typealias Play = ScenarioScript.Play

    /// What the script plays in turn to these requests, each for the whole file.
    private func plays(_ text: String, _ targets: String...) throws -> [String] {
        var script = ScenarioScript(try Scenario.parse(text))
        return targets.map { target in
            let parts = target.split(separator: "?", maxSplits: 1).map(String.init)
            let size = RehearsalFile.named(parts[0])?.size
            let play = script.play(
                parts[0], query: parts.count == 2 ? parts[1] : nil, isHead: false, of: size.map { 0..<$0 })
            return word(play)
        }
    }

    private func word(_ play: Play) -> String {
        switch play {
        case .plain(let status, let fields, let page):
            return "\(status)" + fields.map { " \($0.key): \($0.value)" }.joined() + (page.isEmpty ? "" : " page")
        case .file(let file):
            let fault = file.fault.map { " \($0) at \(file.at)" } ?? ""
            return "\(file.version)\(file.isDamaged ? " damaged" : "")\(fault)\(file.rate.map { " \($0)/s" } ?? "")"
        }
    }

    @Test(arguments: [
        ("none", ["first", "first"], 0 as UInt64), ("unreachable", ["first", "first"], 0), ("full-disk", ["first", "first"], 0),
        ("busy", ["503 Retry-After: 0", "503 Retry-After: 0", "first"], 2),
        ("busy:times=0,status=429,retry-after=7", ["429 Retry-After: 7", "429 Retry-After: 7"], 2), ("missing", ["404", "404"], 2),
        ("stall", ["first silence at 262144", "first"], 1),
        ("stall:times=2,at=0", ["first silence at 0", "first silence at 0", "first"], 2),
        ("slow:rate=9", ["first 9/s", "first 9/s"], 2), ("truncated:at=5", ["first close at 5", "first"], 1),
        ("changed:at=5", ["first close at 5", "second", "second"], 1), ("damaged:times=1", ["first damaged", "first"], 1),
        ("expired:at=5", ["first close at 5", "403", "403"], 3), ("expired:at=0", ["403", "403"], 2),
        ("portal:times=1", ["302 Location: /login", "first"], 1),
        ("portal:redirect=0", ["200 Content-Type: text/html; charset=utf-8 page"], 1),
        ("redirect-loop", ["302 Location: /file?hop=1", "302 Location: /file?hop=2"], 2),
    ])
    func `plays its fault as often as it says`(text: String, words: [String], count: UInt64) throws {
        var script = ScenarioScript(try Scenario.parse(text))
        let size = RehearsalFile.file.size
        let played = words.map { _ in word(script.play("file", query: nil, isHead: false, of: 0..<size)) }
        #expect(played == words && script.played == count)
    }

    @Test func `counts each name by itself`() throws {
        let words = try plays("busy:times=1", "file-1", "file-2", "file-1", "file-2")
        #expect(words == ["503 Retry-After: 0", "503 Retry-After: 0", "first", "first"])
    }

    @Test func `counts crashes, and not the answers that a crash ends`() throws {
        var script = ScenarioScript(try Scenario.parse("crash:at=5,times=2"))
        func play(_ name: String) -> String { word(script.play(name, query: nil, isHead: false, of: 0..<4096)) }
        #expect(play("file-1") == "first crash at 5")
        #expect(play("file-2") == "first crash at 5")
        #expect(script.played == 0)
        script.crashed()
        #expect(play("file-1") == "first crash at 5")
        script.crashed()
        #expect(play("file-1") == "first")
        #expect(script.played == 2)
    }

    @Test func `counts no HEAD, no other path, and no answer that is too short for the fault`() throws {
        var script = ScenarioScript(try Scenario.parse("stall:at=100"))
        func play(_ name: String?, isHead: Bool = false, of range: Range<UInt64>?) -> Play {
            script.play(name, query: nil, isHead: isHead, of: range)
        }
        let whole = Play.file(.init(file: .file))
        #expect(play("file", isHead: true, of: 0..<4096) == whole)
        #expect(play("file", of: 0..<100) == whole)
        #expect(play("file", of: nil) == whole)
        #expect(play("other", of: nil) == .status(404))
        #expect(play(nil, of: nil) == .status(404))
        #expect(script.played == 0)
        #expect(play("file", of: 50..<151) == .file(.init(file: .file, fault: .silence, at: 100)))
        #expect(script.played == 1)
    }

    @Test func `takes a renewed link`() throws {
        let words = try plays("expired:at=5", "file", "file", "file?renewed", "file")
        #expect(words == ["first close at 5", "403", "first", "403"])
    }
}
