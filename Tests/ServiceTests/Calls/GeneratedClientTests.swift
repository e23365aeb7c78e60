internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

/// Compiles what other programs generate from the interface files, and lets it talk to the real service: `examples/generated-clients`.
@Suite(.timeLimit(.minutes(10))) struct `A generated client` {
    private let build = TemporaryFolder()

    @Test func `is made of every interface file`() {
        #expect(listFolder("\(repository)/data/dbus-interfaces") == GeneratedClient.interfaces.keys.map { "\($0).xml" }.sorted())
    }

    @Test func `of gdbus-codegen passes descriptors, and follows Url when that is replaced`() async throws {
        let program = try await GeneratedClient.compileC("glib-descriptors.c", in: build)
        let world = await ServiceWorld()
        _ = await world.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "bytes of it") }
        let ran = await world.run(program, server.url("/a"), world.folder)
        #expect(
            ran.output == """
                path \(world.folder)/a
                own bytes of it
                opened bytes of it
                url now \(server.url("/a"))-fresh

                """, "\(ran.status): \(ran.errors)")
    }

    @Test func `of qdbusxml2cpp has a type for each value`() async throws {
        let program = try await GeneratedClient.compileQt("qt-types.cpp", Array(GeneratedClient.interfaces.keys), in: build)
        let world = await ServiceWorld()
        _ = await world.start()
        let server = ScriptedServer { _, reply in reply.respond(200, text: "bytes of it") }
        let ran = await world.run(program, server.url("/a"), world.folder)
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
        let file = GeneratedClient.file(interface)
        try await GeneratedClient.make(
            """
            gdbus-codegen --generate-rst text '\(file)'
            gdbus-codegen --generate-docbook book '\(file)'
            """, "libglib2.0-dev-bin", in: build)
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
