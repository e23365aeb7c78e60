import DownloadModel
import Testing

@Suite struct `The field Link` {
    private func read(_ field: String) -> [String] {
        LinkField.duplicates(in: Array(field.utf8)).map { "\($0.priority) \(String(decoding: $0.reference, as: UTF8.self))" }
    }

    @Test(arguments: [
        ("<http://m/a>; rel=duplicate", ["999999 http://m/a"]),
        (
            "<http://m/a>; rel=duplicate; pri=2; pref; geo=gb; depth=1,<http://n/a>;rel=\"duplicate\";pri=1",
            ["1 http://n/a", "2 http://m/a"]
        ),
        ("<a,b;c>;rel=duplicate", ["999999 a,b;c"]), ("<>; rel=duplicate", ["999999 "]),
        ("<x>; REL=\"next Duplicate\"", ["999999 x"]), ("<x>; rel=next, <y>; rel=duplicate", ["999999 y"]),
        ("<x>; rel=duplicate; anchor=\"#other\"", []), ("<x>; rel=next; rel=duplicate", []), ("<x>", []), ("", []), (" , ,", []),
        ("<x>; rel=duplicate; pri=0", ["999999 x"]), ("<x>; rel=duplicate; pri=4294967296", ["999999 x"]),
        ("<x>; rel=duplicate; pri=-1", ["999999 x"]), ("<x>; rel=duplicate; pri=\"7\"", ["7 x"]),
        ("<x> ; ; rel = duplicate ; title=\"a\\\"b, <z>; rel=duplicate\" , <y> ; rel=duplicate", ["999999 x", "999999 y"]),
        ("<x>; rel=duplicate, broken, <y>; rel=duplicate", ["999999 x"]), ("<x; rel=duplicate", []),
        ("<x>; rel=duplicate; title=\"no end", []), ("<x>; rel=duplicate; title=\"no end\\", []), ("<x>; rel=duplicate y", []),
        ("<x>; rel=\"duplicate\"z, <y>; rel=duplicate", []), ("x; rel=duplicate", []),
    ])
    func `names duplicates, by their priority`(field: String, expected: [String]) { #expect(read(field) == expected) }

    @Test func `is read in time, however long it is`() {
        #expect(read(String(repeating: "<x>;rel=duplicate,", count: 100_000)).count == 100_000)
        #expect(read(String(repeating: "<", count: 1_000_000)).isEmpty)
        #expect(read("<x>" + String(repeating: ";", count: 1_000_000) + "rel=duplicate").count == 1)
        #expect(read("<x>; rel=\"" + String(repeating: "\\\"", count: 500_000)).isEmpty)
    }
}
