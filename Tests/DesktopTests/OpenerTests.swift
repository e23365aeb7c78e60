internal import DBus
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import Desktop

@Suite struct `A click on a finished file` {
    @Test(arguments: [
        ("photo.jpg", "\u{FF}\u{D8}", true), ("写真.zip", "PK\u{3}\u{4}", true), ("empty", "", true), ("notes.txt", "MX", true),
        ("page.html", "<html>", true), ("tool", "\u{7F}ELF\u{2}", false), ("photo.jpg.exe", "x", false), ("setup.EXE", "MZ", false),
        ("renamed.pdf", "MZ", false), ("x.desktop", "x", false), ("x.txt", "[Desktop Entry]\n", false), ("App.AppImage", "x", false),
        ("script", "#!/bin/sh\n", false), ("script.sh", "", false), ("x.py", "", false), ("x.jar", "PK", false),
    ])
    func `opens documents and starts no program`(name: String, head: String, opens: Bool) {
        let folder = TemporaryFolder()
        writeFile(folder(name), head.unicodeScalars.map { UInt8($0.value & 0xFF) })
        #expect(FinishedFile.opensByClick(folder(name)) == opens)
    }

    @Test func `does not open what is no plain file`() {
        let folder = TemporaryFolder()
        mkfifo(folder("pipe"), 0o600)
        #expect(!FinishedFile.opensByClick(folder("pipe")))
        #expect(!FinishedFile.opensByClick(folder.path))
        #expect(!FinishedFile.opensByClick(folder("gone")))
    }

    @Test func `runs xdg-open with the token, and asks the file manager by an encoded URI`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let folder = TemporaryFolder()
            folder.makeFolder("bin")
            // Tells how it was started: arguments, token, blocked signals, session, then stays a while as a program may.
            let script = """
                #!/bin/sh
                { echo "$1"; echo "$XDG_ACTIVATION_TOKEN $DESKTOP_STARTUP_ID"; grep -E '^Sig(Blk|Ign)' /proc/$$/status | tr -d '\\n'; echo
                  readlink /proc/$$/fd/0; } > \(folder("told.tmp"))
                mv \(folder("told.tmp")) \(folder("told"))
                """
            writeFile(folder("bin/xdg-open"), script.utf8, mode: 0o755)
            writeFile(folder("写真 1.jpg"), "x".utf8)
            writeFile(folder("run.sh"), "#!/bin/sh\n".utf8)
            var environment = bus.environment
            environment["PATH"] = "\(folder("bin")):/usr/bin:/bin"
            let connection = try await Connection.session()
            let opener = await Opener(connection: connection, environment: environment)
            expect(await opener.open(folder("写真 1.jpg"), activationToken: "token-9"), is: .opened)
            expect(await eventually { fileExists(folder("told")) }, is: true)
            let lines = String(decoding: readFile(folder("told")) ?? [], as: UTF8.self).split(separator: "\n").map(String.init)
            expect(lines.first, is: folder("写真 1.jpg"))
            expect(lines[1], is: "token-9 token-9")
            expect(lines[2].contains("SigBlk:\t0000000000000000"), is: true)
            expect(lines.last, is: "/dev/null")
            unlink(folder("told"))

            // No file manager: the folder is opened instead, for a script too.
            expect(await opener.open(folder("run.sh")), is: .shown)
            expect(await eventually { fileExists(folder("told")) }, is: true)
            expect(
                String(decoding: readFile(folder("told")) ?? [], as: UTF8.self).split(separator: "\n").first.map(String.init),
                is: folder.path)

            unlink(folder("told"))
            expect(await opener.openFolder(folder("bin")), is: .shown)
            expect(await eventually { fileExists(folder("told")) }, is: true)
            expect(
                String(decoding: readFile(folder("told")) ?? [], as: UTF8.self).split(separator: "\n").first.map(String.init),
                is: folder("bin"))

            let manager = try await FileManagerStandIn()
            expect(await opener.openFolder(folder.path, activationToken: "token-8"), is: .shown)
            expect(await manager.shown, is: ["folder", "file://\(folder.path)", "token-8"])
            expect(await opener.showInFolder(folder("写真 1.jpg"), activationToken: "token-10"), is: .shown)
            expect(await manager.shown, is: ["file://\(folder.path)/%E5%86%99%E7%9C%9F%201.jpg", "token-10"])

            environment["PATH"] = folder.path
            let helpless = await Opener(connection: connection, environment: environment)
            expect(await helpless.open(folder("写真 1.jpg")), is: .failed)
            await bus.stop()
        }
    }
}

/// Owns the file manager's name and remembers what it was asked to show.
@BusActor private final class FileManagerStandIn: ObjectTree {
    private static let showItems = MethodOf("org.freedesktop.FileManager1", "ShowItems", in: [String].self, String.self)
    private static let showFolders = MethodOf("org.freedesktop.FileManager1", "ShowFolders", in: [String].self, String.self)
    private static let face = Face<FileManagerStandIn>(
        "org.freedesktop.FileManager1", xml: { "" },
        methods: [
            Row(showItems) { manager, arguments, reply in
                manager.shown = arguments.0 + [arguments.1]
                reply()
            },
            Row(showFolders) { manager, arguments, reply in
                manager.shown = ["folder"] + arguments.0 + [arguments.1]
                reply()
            },
        ], properties: [])
    private let connection: Connection
    private(set) var shown: [String] = []

    init() throws {
        connection = try Connection.session()
        connection.export(self)
        _ = try connection.requestName("org.freedesktop.FileManager1")
    }

    func faces(at path: String, for caller: CallerIdentity) -> [BoundFace]? {
        path == "/org/freedesktop/FileManager1" ? [Self.face.of(self)] : nil
    }
    func children(of path: String, limit: Int, for caller: CallerIdentity) -> [String] { [] }
}
