import TestSupport
import Testing

@testable import todoku_tray

@Suite struct `Starting at login` {
    private static let installed = "[Desktop Entry]\nType=Application\nName=T\nExec=/usr/bin/todoku-tray\n"

    /// A session's folders, with or without an installed entry.
    private func session(installed: String? = installed, own: String? = nil) -> Desk {
        let folder = TemporaryFolder("todoku-autostart")
        folder.makeFolder("system")
        folder.makeFolder("system/autostart")
        if let installed { writeFile(folder("system/autostart/\(Autostart.fileName)"), installed.utf8) }
        if let own {
            folder.makeFolder("config")
            folder.makeFolder("config/autostart")
            writeFile(folder("config/autostart/\(Autostart.fileName)"), own.utf8)
        }
        let environment = ["XDG_CONFIG_HOME": folder("config"), "XDG_CONFIG_DIRS": "\(folder("nothing")):\(folder("system"))"]
        return Desk(
            folder: folder, autostart: Autostart(environment: environment, home: "/nowhere", program: "/opt/a \"b\" %/todoku-tray"))
    }

    private struct Desk {
        let folder: TemporaryFolder
        let autostart: Autostart
        var isOn: Bool { autostart.isOn }
        func set(_ isOn: Bool) -> Bool { autostart.set(isOn) }
        /// The text of the user's own entry.
        var own: String? { readFile(autostart.path).map { String(decoding: $0, as: UTF8.self) } }
    }

    @Test func `follows the installed entry, until the user decides otherwise, and back`() {
        let desk = session()
        #expect(desk.isOn && desk.own == nil)
        #expect(desk.set(true) && desk.own == nil)
        #expect(desk.set(false) && !desk.isOn)
        #expect(desk.own == "[Desktop Entry]\nType=Application\nName=Todoku tray\nHidden=true\n")
        #expect(desk.set(false) && !desk.isOn)
        #expect(desk.set(true) && desk.isOn && desk.own == nil)
        #expect(listFolder(desk.folder("config/autostart")) == [])
    }

    @Test func `writes an entry of its own if none is installed`() {
        let desk = session(installed: nil)
        #expect(!desk.isOn)
        #expect(desk.set(true) && desk.isOn)
        #expect(desk.own?.contains("Exec=\"/opt/a \\\"b\\\" %%/todoku-tray\"\n") == true)
        #expect(desk.set(false) && !desk.isOn)
    }

    @Test func `keeps everything else in the user's own entry`() {
        let own =
            "# mine\n[Desktop Entry]\nExec=sh -c 'sleep 9; todoku-tray'\nX-GNOME-Autostart-enabled=false\nName=x\n\n[Other]\nHidden=x\n"
        let desk = session(own: own)
        #expect(!desk.isOn)
        #expect(desk.set(true) && desk.isOn)
        #expect(desk.own == "# mine\n[Desktop Entry]\nExec=sh -c 'sleep 9; todoku-tray'\nName=x\n\n[Other]\nHidden=x\n")
        #expect(desk.set(false) && !desk.isOn)
        #expect(desk.own == "# mine\n[Desktop Entry]\nHidden=true\nExec=sh -c 'sleep 9; todoku-tray'\nName=x\n\n[Other]\nHidden=x\n")
    }

    @Test func `can be switched on although the installed entry is off`() {
        let desk = session(installed: Self.installed + "Hidden=true\n")
        #expect(!desk.isOn)
        #expect(desk.set(true) && desk.isOn && desk.own?.contains("Exec=/usr/bin/todoku-tray") == true)
    }

    @Test func `makes each missing folder above the entry, also one whose name begins with a combining mark`() {
        let folder = TemporaryFolder("todoku-autostart")
        let environment = ["XDG_CONFIG_HOME": folder("new/\u{301}config"), "XDG_CONFIG_DIRS": folder("nothing")]
        let autostart = Autostart(environment: environment, home: "/nowhere", program: "/t")
        #expect(autostart.set(true) && autostart.isOn)
    }

    @Test func `reports an entry that cannot be written`() {
        let folder = TemporaryFolder("todoku-autostart")
        writeFile(folder("config"), "a file".utf8)
        let autostart = Autostart(environment: ["XDG_CONFIG_HOME": folder("config")], home: "/nowhere", program: "/t")
        #expect(!autostart.set(true))
        #expect(Autostart(environment: [:], home: "/home/u", program: "").path == "/home/u/.config/autostart/todoku-tray.desktop")
    }
}
