import Glibc
import TestSupport
import Testing

@testable import Localization

/// Prints the forms of each msgid that a foreign reader, Python's gettext, finds in a catalogue compiled by msgfmt.
private let foreign = """
    import gettext, json, sys
    with open(sys.argv[1], "rb") as file:
        catalogue = gettext.GNUTranslations(file)
    forms = {}
    for key, text in catalogue._catalog.items():
        if key != "":
            forms.setdefault(key[0] if isinstance(key, tuple) else key, {})[key[1] if isinstance(key, tuple) else 0] = text
    json.dump({key: [value[index] for index in sorted(value)] for key, value in forms.items()}, sys.stdout)
    """

private func readByOthers(_ po: [UInt8]) async throws -> [String: [String]] {
    let folder = TemporaryFolder("todoku-po")
    writeFile(folder("x.po"), po)
    let compiled = await Child.run(["msgfmt", "--check", "-o", folder("x.mo"), folder("x.po")])
    try #require(compiled.status == 0, "msgfmt, of the Debian package gettext: \(compiled.errors)")
    let read = await Child.run(["python3", "-c", foreign, folder("x.mo")])
    try #require(read.status == 0, "python3: \(read.errors)")
    return try #require(JSON(read.output)?.object).mapValues { $0.array?.compactMap(\.string) ?? [] }
}

@Suite struct `A catalogue’s file` {
    @Test func `reads as gettext reads it`() async throws {
        for file in [Catalog.file, HelpCatalog.file] {
            #expect(Messages(file).forms == (try await readByOthers(file)))
            #expect(Messages(file).plural != nil)
        }
    }

    @Test func `may be written in all of gettext’s ways`() async throws {
        let file = Array(
            #"""
            # A comment
            msgid ""
            msgstr ""
            "Content-Type: text/plain; charset=UTF-8\n"
            "Plural-Forms: nplurals=2; plural=(n != 1);\n"

            #: a.swift
            msgid "one \"two\"\tthree\\ \n"
            msgstr "一 \"二\"\t三\\ \n"
            #, c-format
            msgid ""
            "over "
            "lines"
            msgstr "行"
            "々"
            msgid "%1$s file"
            msgid_plural ""
            "%1$s "
            "files"
            msgstr[0] "eins %1$s"
            msgstr[1] "viele "
            "%1$s"

            msgid "not yet"
            msgstr ""
            #~ msgid "obsolete"
            #~ msgstr "obsolete"
            """#.utf8)
        let messages = Messages(file)
        #expect(messages.forms == (try await readByOthers(file)))
        #expect(messages["one \"two\"\tthree\\ \n"] == "一 \"二\"\t三\\ \n")
        #expect(messages["over lines"] == "行々")
        #expect([1, 0, 9].map { messages["%1$s file", $0] } == ["eins %1$s", "viele %1$s", "viele %1$s"])
        #expect(messages["not yet"] == nil)
        #expect(messages["obsolete"] == nil)
    }

    @Test(arguments: [
        "", "nonsense", "msgid", "msgid \"", "\"\"", "msgstr \"x\"", "msgid \"a\"\nmsgid \"b\"", "msgid \"a\\", "\"a\" \"b\"\nmsgstr",
    ])
    func `that is not valid gives no text, and reading it ends`(text: String) {
        #expect(Messages(Array(text.utf8)).forms.isEmpty)
    }
}
