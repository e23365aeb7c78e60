internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

/// Compiles what other programs generate from the interface files, and lets it talk to the real service: `examples/generated-clients`.
@Suite(.timeLimit(.minutes(5))) struct `A generated client` {
    private let build = TemporaryFolder()
    /// All interfaces, with the names of the generated files.
    private let files = [
        Manager.interface: "downloader", Download.interface: "download", Batch.interface: "batch", Asset.interface: "asset",
        "org.todoku.Push1": "push", Application.interface: "application",
    ]

    private func file(_ interface: String) -> String { "\(repository)/data/dbus-interfaces/\(interface).xml" }

    /// Runs a line of shell in the build folder.
    private func shell(_ line: String, environment: [String: String] = currentEnvironment()) async -> Child.Exit {
        await Child.run(["sh", "-ec", "cd '\(build.path)'; \(line)"], environment: environment)
    }

    private func expectMade(_ exit: Child.Exit, _ packages: String) throws {
        try #require(exit.status == 0, "packages \(packages): \(exit.output)\(exit.errors)")
        #expect(exit.errors == "", "it warns")
    }

    @Test func `is made of every interface file`() {
        #expect(listFolder("\(repository)/data/dbus-interfaces") == files.keys.map { "\($0).xml" }.sorted())
    }

    @Test func `of gdbus-codegen passes descriptors, and follows Url when that is replaced`() async throws {
        let xml = files.keys.sorted().map { "'\(file($0))'" }.joined(separator: " ")
        let made = await shell(
            """
            gdbus-codegen --interface-prefix org.todoku. --c-namespace Todoku --generate-c-code todoku \(xml)
            cc -std=gnu11 -O0 -Wall -Werror -I. '\(repository)/examples/generated-clients/glib.c' todoku.c -o client $(pkg-config --cflags --libs gio-unix-2.0)
            """)
        try expectMade(made, "libglib2.0-dev, libglib2.0-dev-bin, gcc")
        let world = await ServiceWorld()
        _ = await world.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "bytes of it") }
        let ran = await shell("exec ./client '\(server.url("/a"))' '\(world.folder)'", environment: world.environment)
        #expect(
            ran.output == """
                path \(world.folder)/a
                own bytes of it
                opened bytes of it
                url now \(server.url("/a"))-fresh

                """, "\(ran.status): \(ran.errors)")
    }

    @Test func `of qdbusxml2cpp has a type for each value`() async throws {
        let examples = "\(repository)/examples/generated-clients"
        var lines: [String] = []
        // One compilation unit, so that Qt's headers are read once.
        var unit = "#include \"\(examples)/qt.cpp\"\n"
        for (interface, name) in files.sorted(by: { $0.key < $1.key }) {
            lines.append("qdbusxml2cpp -i todokutypes.h -p \(name) '\(file(interface))'")
            lines.append("moc \(name).h -o \(name).moc")
            unit += "#include \"\(name).cpp\"\n#include \"\(name).moc\"\n"
        }
        writeFile(build("all.cpp"), unit.utf8)
        lines.append("c++ -std=c++17 -fPIC -O0 -Wall -Werror -I. -I'\(examples)' all.cpp -o client $(pkg-config --cflags --libs Qt5DBus)")
        try expectMade(await shell(lines.joined(separator: "\n")), "qtbase5-dev, qtbase5-dev-tools, g++")
        let world = await ServiceWorld()
        _ = await world.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "bytes of it") }
        let ran = await shell("exec ./client '\(server.url("/a"))' '\(world.folder)'", environment: world.environment)
        #expect(
            ran.output == """
                path \(world.folder)/a
                directory \(world.folder)
                error ''
                own bytes of it
                opened bytes of it
                batch 2
                listed 1
                described finished
                described finished
                rules 1000

                """, "\(ran.status): \(ran.errors)")
    }

    /// Generators take the first line of a comment as the description of the member, lines with @ as its arguments, and the rest as
    /// paragraphs. Where they expect one line, they misplace text that continues on the next.
    @Test(arguments: [Manager.interface, Download.interface, Batch.interface, Asset.interface, Application.interface])
    func `'s documentation says of each member what it is, and of each method its errors`(interface: String) async throws {
        let made = await shell(
            "gdbus-codegen --generate-rst text '\(file(interface))' && gdbus-codegen --generate-docbook book '\(file(interface))'")
        try expectMade(made, "libglib2.0-dev-bin")
        let text = String(decoding: try #require(readFile(build("text-\(interface).rst"))), as: UTF8.self)
        let book = String(decoding: try #require(readFile(build("book-\(interface).xml"))), as: UTF8.self)
        let members = InterfaceText(try #require(InterfaceXML.document(of: interface))).members
        #expect(members.count > (interface == Application.interface ? 2 : 10))
        for member in members {
            let words = member.split(separator: " ")
            let title = String(words[1].prefix { $0 != "(" })
            // A signal or property may have the name of a method.
            let mark =
                words[0] == "property"
                ? "\(interface):\(title)\n" : words[0] == "signal" ? "\(interface)::\(title)\n" : "\(interface).\(title)\n"
            let start = try #require(text.firstRange(of: mark), "\(mark)")
            let section = text[start.upperBound...].split(separator: "\n\(interface)", maxSplits: 1).first.map(String.init) ?? ""
            let all: [[Substring]] = section.split(separator: "\n\n").map { $0.split(separator: "\n") }
            let paragraphs = all.filter { $0.contains { line in line.first?.isLetter == true || line.first == "(" } }
            #expect(!paragraphs.isEmpty, "\(member) is not documented: \(section)")
            if words[0] == "method" { #expect(section.contains("\nErrors: "), "\(member)") }
        }
        // No argument has run into the text, and each item of a list is its own paragraph.
        #expect(book.contains("</para><para>\nErrors: "))
        if interface == Manager.interface { #expect(book.contains("</para><para>\ntag (s): its option tag;")) }
    }
}
