internal import DBus
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import Desktop

@Suite struct `A click on a finished file` {
    @Test(
        arguments: [
            ("photo.jpg", "\u{FF}\u{D8}", true), ("写真.zip", "PK\u{3}\u{4}", true), ("empty", "", true), ("notes.txt", "MX", true),
            ("page.html", "<html>", true), ("report.doc", compoundFile, true), ("thing.deb", "!<arch>\n", true),
            ("x.flatpakref", "[Flatpak Ref]", true),
            ("notes.md", "# Title\n\n## [Desktop Entry]\n", true), ("README", "# [Desktop Entry]\n", true),
            ("x.ini", "[Other]\n[Desktop Entry]", true),
            ("tool", "\u{7F}ELF\u{2}", false), ("photo.jpg", "\u{7F}ELF\u{2}", false), ("photo.jpg.exe", "x", false),
            ("setup.EXE", "MZ", false),
            ("renamed.pdf", "MZ", false), ("x.desktop", "x", false), ("x.txt", "[Desktop Entry]\n", false), ("App.AppImage", "x", false),
            ("script", "#!/bin/sh\n", false), ("photo.jpg", "#! /bin/sh", false), ("script.sh", "", false), ("x.py", "", false),
            ("x.jar", "PK", false),
            ("x.txt", "\u{EF}\u{BB}\u{BF}[Desktop Entry]\n", false), ("x.txt", "\n# by hand\n  [Desktop Entry]\r\nType=Link", false),
            ("photo", "[KDE Desktop Entry]\n", false), ("x.txt", "[InternetShortcut]\r\n", false),
            ("x.txt", "\u{EF}\u{BB}\u{BF}#!/bin/sh", false),
            ("setup.msi", "x", false), ("setup", compoundFile, false), ("photo.jpg", compoundFile, false), ("go.bat", "@echo off", false),
            ("go.CMD ", "x", false), ("go.exe.", "x", false), ("x.ps1", "", false), ("x.lnk", "", false),
            ("photo.jpg", "L\u{0}\u{0}\u{0}\u{1}\u{14}\u{2}\u{0}", false), ("x.url", "", false), ("x.hta", "", false),
            ("x.class", "", false),
            ("photo.jpg", "\u{CA}\u{FE}\u{BA}\u{BE}", false), ("x", "\u{0}asm", false), ("x.jnlp", "", false), ("x.service", "", false),
            ("installer.run", "", false), ("a.\u{301}b.exe", "", false), ("game.x86_64", "", false),
            ("disk.iso", "x", false), ("disk.IMG", "x", false), ("disk.img.xz", "x", false), ("disk.iso.gz", "x", false),
            ("x.tar.xz", "x", true),
            ("x.qcow2", "x", false), ("x.dmg", "x", false), ("photo.jpg", "hsqs", false), ("x", "QFI\u{FB}", false),
            ("x.bin2", "KDMV", false),
            ("x.pdf", String(repeating: "\u{0}", count: 0x8001) + "CD001", false),
            ("x.pdf", String(repeating: "\u{0}", count: 0x8000) + "CD001", true),
        ] as [(String, String, Bool)])
    func `opens documents, but nothing that is a program by its name or content`(name: String, head: String, opens: Bool) {
        let folder = TemporaryFolder()
        writeFile(folder(name), head.unicodeScalars.map { UInt8($0.value & 0xFF) })
        #expect(FinishedFile.click(folder(name)) == (opens ? .opens : .shows))
    }

    /// Every file on FAT is executable, so the mode counts only if the name has no extension.
    @Test func `opens no executable file without an extension`() {
        let folder = TemporaryFolder()
        for (name, opens) in [("photo.jpg", true), ("program", false), (".hidden", false)] {
            writeFile(folder(name), "text".utf8, mode: 0o755)
            #expect(FinishedFile.click(folder(name)) == (opens ? .opens : .shows), "\(name)")
        }
    }

    @Test func `opens regular files only`() {
        let folder = TemporaryFolder()
        mkfifo(folder("pipe"), 0o600)
        writeFile(folder("photo.jpg"), "x".utf8)
        symlink(folder("photo.jpg"), folder("link.jpg"))
        for path in [folder("pipe"), folder("link.jpg"), "/proc/self/mem"] { #expect(FinishedFile.click(path) == .shows) }
        for path in [folder("gone"), folder("photo.jpg/gone"), ""] { #expect(FinishedFile.click(path) == .isGone) }
    }

    @Test func `opens no other file with the same name`() {
        let folder = TemporaryFolder()
        writeFile(folder("photo.jpg"), "x".utf8)
        #expect(FinishedFile.click(folder("photo.jpg")) { _ in true } == .opens)
        #expect(FinishedFile.click(folder("photo.jpg")) { _ in false } == .isGone)
        // A folder is opened only if it was unpacked by us.
        #expect(FinishedFile.click(folder.path) { _ in true } == .opensFolder)
        #expect(FinishedFile.click(folder.path) { _ in false } == .shows)
    }

    @Test(
        arguments: [
            ("[Desktop Entry]\nType=Application\nName=Viewer\nName[ja]=x\n", "Viewer"),
            ("# c\n[Desktop Entry]\n Name = Two words\n", "Two words"),
            ("[Desktop Action a]\nName=Not\n[Desktop Entry]\nName=This", "This"), ("[Desktop Action a]\nName=Not\n", nil),
            ("Name=Not", nil),
            ("[Desktop Entry]\nGenericName=Not\n", nil), ("", nil),
        ] as [(String, String?)])
    func `names the sandboxed app by its desktop entry`(text: String, name: String?) { #expect(SandboxedApp.name(of: text) == name) }

    @Test(
        arguments: [
            ("[Desktop Entry]\nName=Viewer\nName[ja]=閲覧\nName[en_GB]=Looker\n", "ja", "閲覧"),
            ("[Desktop Entry]\nName[ja]=閲覧\nName=Viewer\n", "ja_JP", "閲覧"),
            ("[Desktop Entry]\nName[ja]=閲覧\nName[ja_JP]=見る\nName=Viewer\n", "ja_JP", "見る"),
            ("[Desktop Entry]\nName=Viewer\nName[ja]=閲覧\n", "en", "Viewer"), ("[Desktop Entry]\nName=Viewer\nName[ja]=\n", "ja", "Viewer"),
            ("[Desktop Entry]\nName=Viewer\n[Desktop Action a]\nName[ja]=閲覧\n", "ja", "Viewer"),
        ])
    func `names the sandboxed app in the user's language`(text: String, locale: String, name: String) {
        #expect(SandboxedApp.name(of: text, locale: locale) == name)
    }

    @Test func `finds the desktop entry of a snap, and none of another instance`() {
        #expect(SandboxedApp.desktopPrefix(ofSnap: "firefox") == "firefox")
        #expect(SandboxedApp.desktopPrefix(ofSnap: "firefox_test") == "firefox+test")
        #expect(SandboxedApp("snap.nobody-has-this_key").entry == "nobody-has-this+key_nobody-has-this")
    }

    @Test func `runs xdg-open with the token, and calls the file manager with an encoded URI`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let folder = TemporaryFolder()
            folder.makeFolder("bin")
            // Records its argument, the token, the blocked and ignored signals, and its standard input.
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

            // Without a file manager the folder is opened, also for a script.
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

            let manager = try await StandInFileManager(on: bus.address)
            expect(await opener.openFolder(folder.path, activationToken: "token-8"), is: .shown)
            expect(await manager.shown.last, is: ["folders", "file://\(folder.path)", "token-8"])
            expect(await opener.showInFolder(folder("写真 1.jpg"), activationToken: "token-10"), is: .shown)
            expect(await manager.shown.last, is: ["items", "file://\(folder.path)/%E5%86%99%E7%9C%9F%201.jpg", "token-10"])
            // If a file or folder is gone, the nearest existing folder is opened.
            expect(await opener.open(folder("gone/gone/x.jpg")), is: .shown)
            expect(await manager.shown.last, is: ["folders", "file://\(folder.path)", ""])

            environment["PATH"] = folder.path
            let helpless = await Opener(connection: connection, environment: environment)
            expect(await helpless.open(folder("写真 1.jpg")), is: .failed)
            await bus.stop()
        }
    }

    @Test func `has systemd start what it opens, where systemd has started it, and passes nothing of its own on`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let folder = TemporaryFolder()
            folder.makeFolder("bin")
            let script = """
                #!/bin/sh
                { echo "$1|$XDG_ACTIVATION_TOKEN|$SYSTEMD_EXEC_PID|$NOTE"; } > \(folder("told.tmp"))
                mv \(folder("told.tmp")) \(folder("told"))
                case $1 in *bad*) exit 4;; *long*) exec sleep 100;; esac
                """
            writeFile(folder("bin/xdg-open"), script.utf8, mode: 0o755)
            for name in ["a.jpg", "bad.jpg", "long.jpg", "$HOME ${HOME}.jpg"] { writeFile(folder(name), "x".utf8) }
            var environment = bus.environment
            environment["PATH"] = "\(folder("bin")):/usr/bin:/bin"
            environment["SYSTEMD_EXEC_PID"] = "\(getpid())"
            environment["NOTE"] = "kept"
            // systemd would refuse the whole environment.
            environment["BELL"] = "\u{7}"
            environment["1BAD"] = "x"
            environment["BASH_FUNC_x%%"] = "() { :; }"
            let connection = try await Connection.session()
            let opener = await Opener(connection: connection, environment: environment)
            // Without systemd nothing is started as a child, which would be bound as the service is.
            expect(await opener.open(folder("a.jpg")), is: .failed)
            expect(fileExists(folder("told")), is: false)

            let systemd = try await StandInSystemd(on: bus.address)
            expect(await opener.open(folder("a.jpg"), activationToken: "token-1"), is: .opened)
            expect(await eventually { fileExists(folder("told")) }, is: true)
            expect(
                String(decoding: readFile(folder("told")) ?? [], as: UTF8.self), is: "\(folder("a.jpg"))|token-1||kept\n")
            let unit = await systemd.units[0]
            expect(unit.name.hasPrefix("todoku-open-") && unit.name.hasSuffix(".service"), is: true)
            expect(unit.properties["KillMode"]?.string, is: "process")
            expect(unit.properties["CollectMode"]?.string, is: "inactive-or-failed")
            let passed = unit.properties["Environment"]?.strings ?? []
            expect(passed.contains { $0.hasPrefix("BELL=") || $0.hasPrefix("1BAD=") || $0.hasPrefix("BASH_FUNC") }, is: false)

            // The opener waits for an error for 2 s only, so on a busy machine the error may come too late.
            expect(await eventually { await opener.open(folder("bad.jpg")) == .failed }, is: true)
            // systemd puts no variable into a name.
            expect(await opener.open(folder("$HOME ${HOME}.jpg")), is: .opened)
            expect(
                await eventually { String(decoding: readFile(folder("told")) ?? [], as: UTF8.self).contains("/$HOME ${HOME}.jpg||") },
                is: true)
            // A program that goes on has been opened.
            expect(await opener.open(folder("long.jpg")), is: .opened)
            await BusActor.run { systemd.refuses = true }
            expect(await opener.open(folder("a.jpg")), is: .failed)
            await bus.stop()
        }
    }

    @Test func `closes a descriptor that a slow disk gives too late for the portal`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let folder = TemporaryFolder()
            writeFile(folder("a.jpg"), "x".utf8)
            let connection = try await Connection.session()
            let opener = await Opener(connection: connection, environment: bus.environment)
            let manager = try await StandInFileManager(on: bus.address)
            let portal = try await StandInFilePortal(on: bus.address)
            // The first check reads the type of the file, the second one the descriptor for the portal.
            let (hasLooked, gate) = (Gate(), Gate())
            let outcome = await opener.open(folder("a.jpg"), byPortal: true) { _ in
                if hasLooked.isOpen { gate.wait() }
                hasLooked.open()
                return true
            }
            expect(outcome, is: .shown)
            expect(await manager.shown, is: [["items", "file://\(folder("a.jpg"))", ""]])
            expect(openDescriptors(of: folder("a.jpg")), is: 1)
            gate.open()
            expect(await eventually { openDescriptors(of: folder("a.jpg")) == 0 }, is: true)
            expect(await portal.opened, is: [])
            await bus.stop()
        }
    }

    @Test func `falls back from the file manager to the portal, then to opening the folder`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let folder = TemporaryFolder()
            writeFile(folder("a.jpg"), "x".utf8)
            let tool = StandInOpener()
            var environment = bus.environment
            environment["PATH"] = tool.path
            environment["DISPLAY"] = ":77"
            let connection = try await Connection.session()
            let opener = await Opener(connection: connection, environment: environment)
            let manager = try await StandInFileManager(on: bus.address)
            let portal = try await StandInFilePortal(on: bus.address)

            await BusActor.run { manager.lacks = ["items"] }
            expect(await opener.showInFolder(folder("a.jpg"), activationToken: "t"), is: .shown)
            expect(await manager.shown, is: [["folders", "file://\(folder.path)", "t"]])
            await BusActor.run { manager.lacks = ["items", "folders"] }
            expect(await opener.showInFolder(folder("a.jpg"), activationToken: "t"), is: .shown)
            expect(await portal.opened, is: [["directory", folder("a.jpg"), "t"]])
            await BusActor.run { portal.opens = false }
            expect(await opener.showInFolder(folder("a.jpg"), activationToken: "t"), is: .shown)
            expect(await tool.hasOpened(1), is: true)
            expect(tool.opened.last, is: "\(folder.path)|t|t")

            // A hanging file manager is not called again through the portal.
            await BusActor.run {
                manager.lacks = []
                manager.hangs = true
                portal.opens = true
            }
            let hasty = await Opener(connection: connection, environment: environment, patience: .milliseconds(300))
            expect(await hasty.showInFolder(folder("a.jpg")), is: .shown)
            expect(await hasty.openFolder(folder.path), is: .shown)
            expect(await tool.hasOpened(3), is: true)
            expect(tool.opened.dropFirst().map { $0 }, is: ["\(folder.path)||", "\(folder.path)||"])
            expect(await portal.opened.count, is: 1)

            // If xdg-open fails, the portal is called. Without a display the portal comes first.
            let failing = TemporaryFolder()
            writeFile(failing("xdg-open"), "#!/bin/sh\nexit 4\n".utf8, mode: 0o755)
            environment["PATH"] = "\(failing.path):/usr/bin:/bin"
            let refused = await Opener(connection: connection, environment: environment)
            // The opener waits for an error for 2 s only, so on a busy machine the error may come too late, and counts at the next try.
            let isPassedOn = await eventually {
                expect(await refused.open(folder("a.jpg"), activationToken: "u"), is: .opened)
                return await portal.opened.last == ["file", folder("a.jpg"), "u"]
            }
            expect(isPassedOn, is: true)
            await BusActor.run { portal.opens = false }
            expect(await eventually { await refused.open(folder("a.jpg")) == .failed }, is: true)
            await BusActor.run { portal.opens = true }
            environment["DISPLAY"] = ""
            environment["PATH"] = tool.path
            let blind = await Opener(connection: connection, environment: environment)
            expect(await blind.open(folder("a.jpg"), activationToken: "v"), is: .opened)
            expect(await portal.opened.last, is: ["file", folder("a.jpg"), "v"])
            expect(await tool.hasOpened(3), is: true)

            // Without xdg-open the portal opens files, and also folders that no file manager shows.
            environment["PATH"] = folder.path
            let bare = await Opener(connection: connection, environment: environment)
            expect(await bare.open(folder("a.jpg"), activationToken: "t"), is: .opened)
            expect(await portal.opened.last, is: ["file", folder("a.jpg"), "t"])
            await BusActor.run {
                manager.lacks = ["folders"]
                manager.hangs = false
            }
            expect(await bare.openFolder(folder.path), is: .shown)
            expect(await portal.opened.last, is: ["file", folder.path, ""])
            await bus.stop()
        }
    }

    @Test func `opens a page by the portal if nothing can run xdg-open, and no page twice`() async {
        await #expect(processExitsWith: .success) {
            let bus = await beginSession()
            let (tool, empty) = (StandInOpener(), TemporaryFolder())
            var environment = bus.environment
            environment["PATH"] = tool.path
            environment["DISPLAY"] = ":77"
            let connection = try await Connection.session()
            let portal = try await StandInFilePortal(on: bus.address)
            let page = "http://login.example/?a=$HOME"
            let usual = await Opener(connection: connection, environment: environment)
            expect(await usual.openPage(page, activationToken: "t"), is: .opened)
            expect(await tool.hasOpened(1), is: true)
            expect(await portal.opened, is: [])

            // Where systemd has started this process, no child is started, and systemd does not answer here.
            environment["SYSTEMD_EXEC_PID"] = "\(getpid())"
            let bound = await Opener(connection: connection, environment: environment)
            expect(await bound.openPage(page, activationToken: "u"), is: .opened)
            expect(await portal.opened, is: [["page", page, "u"]])
            environment["SYSTEMD_EXEC_PID"] = nil
            environment["PATH"] = empty.path
            let bare = await Opener(connection: connection, environment: environment)
            expect(await bare.openPage(page), is: .opened)
            expect(await portal.opened.last, is: ["page", page, ""])
            // Without a display the portal comes first.
            (environment["PATH"], environment["DISPLAY"]) = (tool.path, "")
            let blind = await Opener(connection: connection, environment: environment)
            expect(await blind.openPage(page, activationToken: "v"), is: .opened)
            expect(await portal.opened.last, is: ["page", page, "v"])
            expect(await tool.hasOpened(1), is: true)

            await BusActor.run { portal.opens = false }
            expect(await bare.openPage(page), is: .failed)
            expect(await blind.openPage(page), is: .opened)
            expect(await tool.hasOpened(2), is: true)
            for other in ["file:///etc/passwd", "javascript:x", "-x", ""] { expect(await usual.openPage(other), is: .failed) }
            await bus.stop()
        }
    }
}

/// How many open descriptors this process has of the file at `path`.
private func openDescriptors(of path: String) -> Int {
    listFolder("/proc/self/fd").count { number in
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/fd/\(number)", &bytes, bytes.count)
        return count > 0 && String(decoding: bytes.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self) == path
    }
}

/// The first bytes of a Windows installer, and of a Word 97 document.
private let compoundFile = "\u{D0}\u{CF}\u{11}\u{E0}\u{A1}\u{B1}\u{1A}\u{E1}"
