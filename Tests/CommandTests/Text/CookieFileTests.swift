import ArgumentParser
import DBus
import DownloadModel
import DownloaderInterface
import TestSupport
import Testing

@testable import TodokuClient
@testable import todoku

@Suite struct `A cookie file` {
    private static let now = WallTime(microseconds: 1_700_000_000_000_000)

    private func cookies(_ text: String) throws -> [String] {
        try CookieFile(Array(text.utf8), name: "cookies.txt", now: Self.now).cookies.map(\.name)
    }

    @Test func `has comments, empty lines and expired cookies, which are skipped`() throws {
        let text = """
            \u{FEFF}# Netscape HTTP Cookie File
            # https://curl.se/docs/http-cookies.html

            .example.org\tTRUE\t/\tTRUE\t1800000000\ta\t1\r
            #HttpOnly_example.org\tFALSE\t/\tFALSE\t0\tb\t2
            example.org\tFALSE\t/\tFALSE\t1700000000\told\t3
            \t \n
            """
        #expect(try cookies(text) == ["a", "b"])
        #expect(try cookies("") == [])
    }

    @Test(arguments: [
        ("# c\nexample.org\tTRUE\t/\tno\t0\ta\tsecret\n", "cookies.txt, line 2: Field 4 must be TRUE or FALSE."),
        ("<html>secret</html>", "cookies.txt, line 1: A cookie has 7 fields between tabs, and this line has 1."),
        ("\n\nexample.org TRUE / FALSE 0 a secret", "cookies.txt, line 3: A cookie has 7 fields between tabs, and this line has 1."),
    ]) func `with a bad line is refused, with its line, its fault and not its value`(text: String, message: String) {
        do throws(CommandFailure) {
            _ = try CookieFile(Array(text.utf8), name: "cookies.txt", now: Self.now)
            Issue.record("it is taken")
        } catch { #expect(error.message == message && error.status == .usage) }
    }

    @Test func `that is not UTF-8, or not there, is refused`() {
        #expect(throws: CommandFailure.self) { try CookieFile([0x61, 0xFF, 0x0A], name: "c", now: Self.now) }
        #expect(throws: CommandFailure.self) { try CookieFile(file: "/no/such/file", now: Self.now) }
        #expect(throws: CommandFailure.self) { try CookieFile(file: "/proc/self/mem", now: Self.now) }
    }

    @Test func `gives all its cookies, or those of the URLs' sites if they are too many`() throws {
        func file(_ count: Int) throws -> CookieFile {
            let foreign = (0..<count).map { "site\($0).org\tFALSE\t/\tFALSE\t0\tn\tv\n" }.joined()
            let own = ".example.org\tTRUE\t/\tFALSE\t0\ta\tv\nlogin.example.org\tFALSE\t/\tFALSE\t0\tb\tv\n"
            return try CookieFile(Array((foreign + own).utf8), name: "c", now: Self.now)
        }
        let all = try file(900).cookies(for: ["https://www.example.org/a"])
        #expect(all.cookies.count == 902 && all.leftOut == 0)
        let own = try file(2000).cookies(for: ["https://www.example.org/a", "https://site7.org/"])
        #expect(own.cookies.map(\.name) == ["n", "a", "b"] && own.leftOut == 1999)
        #expect(throws: CommandFailure.self) { try file(2000).cookies(for: ["https://elsewhere.org/"]) }
        #expect(throws: CommandFailure.self) { try file(2000).cookies(for: []) }
    }

    @Test func `and repeated headers become the options of the call`() throws {
        let folder = TemporaryFolder()
        writeFile(folder("cookies.txt"), "h\tFALSE\t/\tFALSE\t0\ta\t1\n".utf8)
        let arguments = ["add", "--load-cookies", folder("cookies.txt"), "-H", "X-A: 1", "-H", "X-B: 2", "-H", "x-a: 3", "http://h/f"]
        let command = try #require(try TodokuCommand.parseAsRoot(arguments) as? AddCommand)
        let options = try command.request.request(for: command.urls).options
        #expect(Set(options.keys) == ["cookies", "header-list"])
        let read = try DownloadOptions(decoding: options)
        #expect(read.cookies.map(\.line) == ["h\tFALSE\t/\tFALSE\t0\ta\t1"])
        #expect(read.headers.map(\.name) == ["X-A", "X-B", "x-a"] && read.headers.map(\.value) == ["1", "2", "3"])
    }
}
