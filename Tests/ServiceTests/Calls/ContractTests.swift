internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DownloadService

@Suite struct `The contract` {
    @Test func `of the code is that of the XML, member by member, both ways`() throws {
        for (interface, members, signals) in [
            (Manager.interface, ManagerFace.face.members, ManagerFace.face.signals),
            (Download.interface, DownloadFace.face.members, DownloadFace.face.signals),
            (Batch.interface, BatchFace.face.members, BatchFace.face.signals),
            (Asset.interface, AssetFace.face.members, AssetFace.face.signals),
            (Application.interface, ApplicationFace.face.members, ApplicationFace.face.signals),
        ] {
            let xml = InterfaceText(try #require(InterfaceXML.document(of: interface)))
            #expect(xml.name == interface)
            let code = members + signals.map { "signal \($0.key)(\($0.value))" }
            #expect(code.sorted() == xml.members.sorted(), "\(Set(code).symmetricDifference(xml.members))")
            #expect(Set(xml.members).count == xml.members.count)
        }
    }

    @Test func `annotates constant properties as const, and properties without a signal as false`() throws {
        let manager = InterfaceText(try #require(InterfaceXML.document(of: Manager.interface))).changes
        let download = InterfaceText(try #require(InterfaceXML.document(of: Download.interface))).changes
        let batch = InterfaceText(try #require(InterfaceXML.document(of: Batch.interface))).changes
        let asset = InterfaceText(try #require(InterfaceXML.document(of: Asset.interface))).changes
        #expect(asset.filter { $0.value == "const" }.keys.sorted() == ["App", "Name", "Path"])
        #expect(asset.filter { $0.value == "false" }.isEmpty)
        #expect(batch.filter { $0.value == "const" }.keys.sorted() == ["Title"])
        #expect(batch.filter { $0.value == "false" }.keys.sorted() == ["Fraction", "Received", "Total"])
        #expect(manager.filter { $0.value == "const" }.keys.sorted() == ["SupportedOptions", "Version"])
        #expect(manager.filter { $0.value == "false" }.keys.sorted() == ["Fraction", "Received", "Speed", "Total"])
        #expect(download.filter { $0.value == "const" }.keys.sorted() == ["App", "Batch", "QueuedAt", "Tag", "Token"])
        #expect(download.filter { $0.value == "false" }.keys.sorted() == ["Ahead", "Fraction", "Received", "Speed", "Total"])
        func wire(_ change: PropertyOf<String>.Change) -> String { change == .constant ? "const" : change == .untold ? "false" : "true" }
        #expect(download["Url"] == wire(Download.url.change) && download["Path"] == wire(Download.path.change))
    }

    @Test func `names every error that the service can give`() throws {
        let text = try [Manager.interface, Download.interface, Asset.interface].map { try #require(InterfaceXML.document(of: $0)) }.joined()
        for name in ErrorName.allCases { #expect(text.contains(name.rawValue), "\(name.rawValue)") }
    }

    /// The daemons that these tests start also assert that each error in an answer is on the same lists.
    @Test func `names the errors of each method, and those that a download ends in`() throws {
        for (interface, members) in [
            (Manager.interface, ManagerFace.face.methods.keys.sorted()), (Download.interface, DownloadFace.face.methods.keys.sorted()),
            (Batch.interface, BatchFace.face.methods.keys.sorted()), (Asset.interface, AssetFace.face.methods.keys.sorted()),
        ] {
            for member in members { #expect(DocumentedErrors.names(of: member, in: interface) != nil, "\(interface).\(member)") }
        }
        #expect(DocumentedErrors.names(of: "Pause", in: Download.interface) == [todokuError("InvalidState"), todokuError("Storage")])
        #expect(DocumentedErrors.names(of: "GetUrl", in: Download.interface) == [])
        #expect(
            DocumentedErrors.names(of: "Describe", in: Manager.interface)?.contains("org.freedesktop.DBus.Error.UnknownProperty") == true)
        #expect(DocumentedErrors.ends.isSuperset(of: [todokuError("Network"), todokuError("Cancelled")]))
        #expect(DocumentedErrors.names(of: "Wait", in: Download.interface)?.isSuperset(of: DocumentedErrors.ends) == true)
        #expect(!DocumentedErrors.permits(todokuError("TooLarge"), of: "Pause", in: Download.interface))
        #expect(!DocumentedErrors.permits("org.freedesktop.DBus.Error.Failed", of: "Pause", in: Download.interface))
        #expect(DocumentedErrors.permits("org.freedesktop.DBus.Error.InvalidArgs", of: "Pause", in: Download.interface))
    }

    @Test func `is returned by introspection for every node, valid by the D-Bus project's DTD`() async throws {
        let running = try await Running.start()
        _ = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        let token = try await running.download(
            "http://127.0.0.1:1/a", ["start": .bool(false), "app": .string("org.example.App"), "token": .string("t")])
        let (batch, _) = try await running.batch(["http://127.0.0.1:1/b"], ["start": .bool(false)])
        let asset = try await running.client.call(Manager.registerAsset, ("org.example.App", "maps", "http://127.0.0.1:1/m", [:]))
        var nodes: [String] = []
        var open = ["/"]
        while let node = open.popLast() {
            nodes.append(node)
            let document = try await running.client.call(Standard.introspect, at: ObjectPath(node), ())
            let file = running.world.bus.folder("node\(nodes.count).xml")
            writeFile(file, document.utf8)
            let lint = await running.world.run(
                "xmllint", "--nonet", "--noout", "--dtdvalid", "/usr/share/xml/dbus-1/introspect.dtd", file)
            #expect(lint.status == 0, "\(node): \(lint.errors)")
            let children = Elements(document).all.filter { $0.name == "node" && $0.attributes["name"] != nil }.compactMap {
                $0.attributes["name"]
            }
            open += children.map { node == "/" ? "/\($0)" : "\(node)/\($0)" }
            let interfaces = Set(Elements(document).all.filter { $0.name == "interface" }.compactMap { $0.attributes["name"] })
            var expected: Set = ["org.freedesktop.DBus.Introspectable", "org.freedesktop.DBus.Peer"]
            if node == BusName.managerPath.value {
                expected.formUnion([Manager.interface, Application.interface, "org.freedesktop.DBus.Properties"])
            }
            if node == "\(BusName.downloadsPath)/1" || node == token.value {
                expected.formUnion([Download.interface, "org.freedesktop.DBus.Properties"])
            }
            if node == "\(BusName.downloadsPath)/4" { expected.formUnion([Download.interface, "org.freedesktop.DBus.Properties"]) }
            if node == asset.value { expected.formUnion([Asset.interface, "org.freedesktop.DBus.Properties"]) }
            if node == batch.value { expected.formUnion([Batch.interface, "org.freedesktop.DBus.Properties"]) }
            #expect(interfaces == expected, "\(node)")
        }
        let root = BusName.managerPath.value
        #expect(
            Set(nodes) == [
                "/", "/org", "/org/todoku", root, "\(root)/download", "\(root)/download/1", "\(root)/download/by_token",
                "\(root)/download/by_token/org_2eexample_2eApp", token.value, "\(root)/download/4", "\(root)/batch", batch.value,
                "\(root)/asset", "\(root)/asset/org_2eexample_2eApp", asset.value,
            ])
    }

    @Test func `lists at most 1000 children of a node`() async throws {
        let running = try await Running.start()
        let (client, options) = (running.client, running.options(["start": .bool(false)]))
        try await withThrowingTaskGroup(of: Void.self) { group in
            for index in 0..<1010 { group.addTask { _ = try await client.download("http://127.0.0.1:1/\(index)", options) } }
            try await group.waitForAll()
        }
        let document = try await client.call(Standard.introspect, at: ObjectPath(BusName.downloadsPath), ())
        #expect(Elements(document).all.count { $0.name == "node" && $0.attributes["name"] != nil } <= 1000)
        #expect(try await client.list().count == 1000)
        let last = try #require(try await client.list().last)
        #expect(try await client.list(["after": .objectPath(last)]).count == 10)
    }

    @Test func `says of a node above objects that it has no such interface`() async throws {
        let running = try await Running.start()
        // Without a token, so that the node of the downloads has no other child.
        _ = try await running.download("http://127.0.0.1:1/a", ["start": .bool(false)])
        for path in ["/org", "/org/todoku", BusName.downloadsPath] {
            let error = await thrown { try await running.client.call(Download.pause, at: ObjectPath(path), ()) }
            #expect(error?.name == "org.freedesktop.DBus.Error.UnknownInterface", "\(path): \(error?.message ?? "")")
        }
    }

    @Test func `answers Ping and GetMachineId on every object`() async throws {
        let running = try await Running.start()
        for path in ["/", BusName.managerPath.value] {
            #expect(await running.world.gdbus(path, "org.freedesktop.DBus.Peer.Ping").output == "()\n")
            let id = await running.world.gdbus(path, "org.freedesktop.DBus.Peer.GetMachineId")
            #expect(id.status == 0 && id.output.count == 38, "\(id)")  // ('32 digits',)
        }
    }

    /// Each wrong call gets its standard error at once, by gdbus and by busctl.
    @Test(
        arguments: [
            ("/org/todoku/Downloader1/download/99", "org.todoku.Download1", "Pause", "", [], "UnknownObject"),
            ("/org/todoku/Downloader1/download/01", "org.todoku.Download1", "Pause", "", [], "UnknownObject"),
            ("/nowhere", "org.todoku.Downloader1", "List", "a{sv}", ["0"], "UnknownObject"),
            ("/nowhere", "org.freedesktop.DBus.Properties", "GetAll", "s", ["org.todoku.Downloader1"], "UnknownObject"),
            ("/nowhere", "org.freedesktop.DBus.Introspectable", "Introspect", "", [], "UnknownObject"),
            ("/org/todoku/Downloader1", "org.todoku.Nothing1", "List", "a{sv}", ["0"], "UnknownInterface"),
            ("/org/todoku/Downloader1", "org.todoku.Download1", "Pause", "", [], "UnknownInterface"),
            ("/org/todoku/Downloader1", "org.todoku.Downloader1", "Nothing", "", [], "UnknownMethod"),
            ("/org/todoku/Downloader1", "org.todoku.Downloader1", "DownloadBatch", "", [], "InvalidArgs"),
            ("/org/todoku/Downloader1/batch/99", "org.todoku.Batch1", "Pause", "", [], "UnknownObject"),
            ("/org/todoku/Downloader1", "org.freedesktop.DBus.Properties", "Nothing", "", [], "UnknownMethod"),
            ("/org/todoku/Downloader1", "org.freedesktop.DBus.Introspectable", "Nothing", "", [], "UnknownMethod"),
            ("/org/todoku/Downloader1", "org.freedesktop.DBus.Peer", "Nothing", "", [], "UnknownMethod"),
            ("/org/todoku/Downloader1", "org.todoku.Downloader1", "Download", "s", ["http://a/"], "InvalidArgs"),
            ("/org/todoku/Downloader1", "org.todoku.Downloader1", "List", "", [], "InvalidArgs"),
            ("/org/todoku/Downloader1", "org.todoku.Downloader1", "List", "a{ss}", ["0"], "InvalidArgs"),
            ("/org/todoku/Downloader1", "org.todoku.Downloader1", "PauseAll", "s", ["x"], "InvalidArgs"),
            ("/org/todoku/Downloader1", "org.freedesktop.DBus.Properties", "Get", "s", ["org.todoku.Downloader1"], "InvalidArgs"),
            (
                "/org/todoku/Downloader1", "org.freedesktop.DBus.Properties", "Get", "ss", ["org.todoku.Downloader1", "Nothing"],
                "UnknownProperty"
            ),
            (
                "/org/todoku/Downloader1", "org.freedesktop.DBus.Properties", "Get", "ss", ["org.todoku.Nothing1", "Paused"],
                "UnknownInterface"
            ),
            ("/org/todoku/Downloader1", "org.freedesktop.DBus.Properties", "GetAll", "s", ["org.todoku.Nothing1"], "UnknownInterface"),
            (
                "/org/todoku/Downloader1", "org.freedesktop.DBus.Properties", "Set", "ssv",
                ["org.todoku.Downloader1", "Nothing", "u", "1"], "UnknownProperty"
            ),
            (
                "/org/todoku/Downloader1", "org.freedesktop.DBus.Properties", "Set", "ssv",
                ["org.todoku.Downloader1", "MaxActive", "s", "1"], "InvalidArgs"
            ),
            (
                "/org/todoku/Downloader1", "org.freedesktop.DBus.Properties", "Set", "ssv", ["org.todoku.Downloader1", "Paused", "b", "1"],
                "PropertyReadOnly"
            ),
        ] as [(String, String, String, String, [String], String)])
    func `gives the standard errors at once`(
        path: String, interface: String, member: String, signature: String, arguments: [String], name: String
    ) async throws {
        let world = await ServiceWorld()
        _ = await world.start()
        let busctl = await Child.run(
            ["busctl", "--user", "--timeout=60", "call", BusName.service, path, interface, member] + (signature.isEmpty ? [] : [signature])
                + arguments,
            environment: world.environment)
        #expect(busctl.status == 1)
        // dbus-send prints the name of the error.
        let sent = await Child.run(
            [
                "dbus-send", "--session", "--print-reply", "--reply-timeout=60000", "--dest=\(BusName.service)", path,
                "\(interface).\(member)",
            ]
                + Self.typed(signature, arguments), environment: world.environment)
        if let text = Self.expressible(signature) {
            #expect(sent.errors.contains("org.freedesktop.DBus.Error.\(name)"), "\(text): \(sent.errors)")
        }
        #expect(!busctl.errors.contains("timed out") && !busctl.errors.isEmpty, "\(busctl.errors)")
    }

    /// Arguments for dbus-send(1), which has no empty dictionaries of variants.
    private static func typed(_ signature: String, _ arguments: [String]) -> [String] {
        switch signature {
        case "s", "ss": arguments.map { "string:\($0)" }
        case "ssv":
            [
                "string:\(arguments[0])", "string:\(arguments[1])",
                "variant:\(["u": "uint32", "s": "string", "b": "boolean"][arguments[2]]!):\(arguments[3] == "1" && arguments[2] == "b" ? "true" : arguments[3])",
            ]
        case "a{ss}", "a{sv}": ["dict:string:string:"]
        default: []
        }
    }
    private static func expressible(_ signature: String) -> String? { signature == "a{sv}" ? nil : signature }

    @Test func `serves gdbus and busctl as it serves us`() async throws {
        let running = try await Running.start()
        let world = running.world
        let server = ScriptedServer { _, reply in reply.respond(200, text: "x") }
        let manager = BusName.managerPath.value
        let added = await world.gdbus(
            manager, "org.todoku.Downloader1.Download", server.url("/a"),
            "{'directory': <'\(world.folder)'>, 'notify': <'never'>, 'tag': <'t'>}")
        #expect(added.output == "(objectpath '\(manager)/download/1',)\n", "\(added.errors)")
        let waited = await world.gdbus("\(manager)/download/1", "org.todoku.Download1.Wait", "{}")
        #expect(waited.output == "('\(world.folder)/a',)\n", "\(waited.errors)")
        let state = await world.run(
            "busctl", "--user", "--timeout=120", "get-property", BusName.service, "\(manager)/download/1", Download.interface, "State")
        #expect(state.output == "s \"finished\"\n", "\(state.errors)")
        let set = await world.run(
            "busctl", "--user", "--timeout=120", "set-property", BusName.service, manager, Manager.interface, "MaxActive", "u", "3")
        #expect(set.status == 0, "\(set.errors)")
        #expect(try await running.client.get(Manager.maxActive) == 3)
        let all = await world.run("busctl", "--user", "--timeout=120", "introspect", BusName.service, manager)
        for word in [".Download", ".DownloadEnded", ".MaxActive", "a(oa{sv})", "emits-change writable"] {
            #expect(all.output.contains(word), "\(word): \(all.output)\(all.errors)")
        }
        let tree = await world.run("busctl", "--user", "--timeout=120", "tree", "--list", BusName.service)
        #expect(tree.output.contains("\(manager)/download/1\n"), "\(tree.output)\(tree.errors)")
        let described = await world.gdbus(manager, "org.todoku.Downloader1.Describe", "{'tag': <'t'>}", "['State', 'Total']")
        #expect(
            described.output == "([(objectpath '\(manager)/download/1', {'State': <'finished'>, 'Total': <int64 1>})],)\n",
            "\(described.errors)")
        let batch = await world.gdbus(
            manager, "org.todoku.Downloader1.DownloadBatch",
            "[('\(server.url("/b"))', \(noOptions)), ('\(server.url("/c"))', {'filename': <'own'>})]",
            "{'directory': <'\(world.folder)'>, 'notify': <'never'>}")
        #expect(
            batch.output
                == "(objectpath '\(manager)/batch/2', [objectpath '\(manager)/download/3', '\(manager)/download/4'])\n", "\(batch.errors)")
        let ends = await world.run(
            "busctl", "--user", "--timeout=60", "call", BusName.service, "\(manager)/batch/2", Batch.interface, "Wait", "a{sv}", "0")
        #expect(ends.output == "uuu 2 0 0\n", "\(ends.errors)")
        let counts = await world.run(
            "busctl", "--user", "--timeout=120", "get-property", BusName.service, "\(manager)/batch/2", Batch.interface, "Succeeded",
            "Fraction")
        #expect(counts.output == "u 2\nd 1\n", "\(counts.errors)")
        let bad = await world.gdbus(manager, "org.todoku.Downloader1.DownloadBatch", "[('ftp://h/', \(noOptions))]", "{}")
        #expect(bad.errors.contains("org.todoku.Error.UnsupportedScheme: Item 0: ftp: "), "\(bad.errors)")
        var interface = ""
        // gdbus waits only three seconds for the answer.
        let isDescribed = await eventually {
            let exit = await world.run(
                "gdbus", "introspect", "--session", "--dest", BusName.service, "--object-path", "\(manager)/download/1")
            interface = exit.output
            return exit.status == 0
        }
        #expect(isDescribed && interface.contains("Completed(s error_name"), "\(interface)")
        let file = await world.run(
            "busctl", "--user", "--timeout=120", "call", BusName.service, "\(manager)/download/1", Download.interface, "OpenFile")
        #expect(file.status == 0, "\(file.errors)")
    }
}

/// The start tags of an XML text, in order. Enough for interface files: ignores CDATA and entities.
struct Elements {
    struct Element { let name: String, attributes: [String: String] }
    private(set) var all: [Element] = []

    init(_ text: String) {
        var rest = Substring(text)
        while let open = rest.firstIndex(of: "<") {
            rest = rest[open...].dropFirst()
            if rest.hasPrefix("!--") {
                var end = rest.startIndex
                while !rest[end...].hasPrefix("-->") { end = rest.index(after: end) }
                rest = rest[end...]
                continue
            }
            guard let close = rest.firstIndex(of: ">"), rest.first?.isLetter == true else { continue }
            let tag = rest[..<close]
            let name = tag.prefix { !$0.isWhitespace && $0 != "/" }
            var attributes: [String: String] = [:]
            let parts = tag.dropFirst(name.count).split(separator: "\"", omittingEmptySubsequences: false)
            for index in stride(from: 0, to: parts.count - 1, by: 2) {
                attributes[String(parts[index].filter { !$0.isWhitespace && $0 != "=" })] = String(parts[index + 1])
            }
            all.append(Element(name: String(name), attributes: attributes))
            rest = rest[close...]
        }
    }
}

/// An interface file in the format of `Face.members`.
struct InterfaceText {
    private(set) var name = ""
    private(set) var members: [String] = []
    /// The value of `EmitsChangedSignal` for each property.
    private(set) var changes: [String: String] = [:]

    init(_ document: String) {
        var kind = "", member = "", ins = "", outs = "", access = "", changed = "true"
        func end(_ members: inout [String], _ changes: inout [String: String]) {
            switch kind {
            case "method": members.append("method \(member)(\(ins))->(\(outs))")
            case "signal": members.append("signal \(member)(\(ins + outs))")
            case "property":
                members.append("property \(member) \(ins) \(access) \(changed == "true" ? "true" : "false")")
                changes[member] = changed
            default: break
            }
        }
        for element in Elements(document).all {
            let attributes = element.attributes
            switch element.name {
            case "interface": name = attributes["name"] ?? ""
            case "method", "signal", "property":
                end(&members, &changes)
                (kind, member, ins, outs, changed) = (element.name, attributes["name"] ?? "", attributes["type"] ?? "", "", "true")
                access = attributes["access"] ?? ""
            case "arg": if attributes["direction"] == "out" { outs += attributes["type"] ?? "" } else { ins += attributes["type"] ?? "" }
            case "annotation" where attributes["name"]?.hasSuffix("EmitsChangedSignal") == true: changed = attributes["value"] ?? ""
            default: break
            }
        }
        end(&members, &changes)
    }
}
