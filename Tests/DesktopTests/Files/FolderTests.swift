internal import TestSupport
internal import Testing

@testable internal import Desktop

@Suite struct `The user's folders` {
    @Test(
        arguments: [
            ("XDG_DOWNLOAD_DIR=\"$HOME/ダウンロード\"\n", "/home/u/ダウンロード"), ("XDG_DOWNLOAD_DIR=\"/srv/in box/\"", "/srv/in box"),
            ("  XDG_DOWNLOAD_DIR = \"$HOME/a//b/\"", "/home/u/a/b"), ("XDG_DOWNLOAD_DIR=\"$HOME/a\\\"b\\$c\"", "/home/u/a\"b$c"),
            ("# XDG_DOWNLOAD_DIR=\"/x\"\nXDG_DESKTOP_DIR=\"/y\"", nil), ("XDG_DOWNLOAD_DIR=\"/x\"\nXDG_DOWNLOAD_DIR=\"/y\"", "/y"),
            ("XDG_DOWNLOAD_DIR=\"$HOME/\"", nil), ("XDG_DOWNLOAD_DIR=\"$HOME\"", nil), ("XDG_DOWNLOAD_DIR=\"relative\"", nil),
            ("XDG_DOWNLOAD_DIR=\"$OTHER/x\"", nil), ("XDG_DOWNLOAD_DIR=/x", nil), ("XDG_DOWNLOAD_DIR=\"/x", nil),
            ("XDG_DOWNLOAD_DIR=\"\"", nil),
            ("XDG_DOWNLOAD_DIR=\"$HOME/.hidden/x\"", nil), ("XDG_DOWNLOAD_DIR=\"$HOME/a/../../v\"", nil), ("XDG_DOWNLOAD_DIR=\"/\"", nil),
            ("XDG_DOWNLOAD_DIR=\"$HOME/\u{301}x\"", "/home/u/\u{301}x"), ("XDG_DOWNLOAD_DIR=\"$HOME/.\u{301}x\"", nil),
            ("XDG_DOWNLOAD_DIR=\"/home/u/x\"", "/home/u/x"), ("XDG_DOWNLOAD_DIR_2=\"/x\"", nil), ("", nil),
        ] as [(String, String?)])
    func `are read from user-dirs.dirs with shell quoting`(text: String, folder: String?) {
        #expect(Folders.downloadFolder(inUserDirectories: text, home: "/home/u") == folder)
    }

    @Test func `may be inside a hidden home directory`() {
        let text = "XDG_DOWNLOAD_DIR=\"$HOME/in\""
        #expect(Folders.downloadFolder(inUserDirectories: text, home: "/var/.u") == "/var/.u/in")
    }

    @Test func `come from the environment and its files`() {
        let folder = TemporaryFolder()
        #expect(Folders.downloads(environment: ["HOME": folder.path + "/"]) == "\(folder.path)/Downloads")
        folder.makeFolder(".config")
        writeFile(folder(".config/user-dirs.dirs"), "XDG_DOWNLOAD_DIR=\"$HOME/取\"\n".utf8)
        #expect(Folders.downloads(environment: ["HOME": folder.path]) == folder("取"))
        folder.makeFolder("other")
        #expect(Folders.downloads(environment: ["HOME": folder.path, "XDG_CONFIG_HOME": folder("other")]) == folder("Downloads"))
        #expect(Folders.downloads(environment: ["HOME": folder.path, "XDG_CONFIG_HOME": "relative"]) == folder("取"))
        #expect(Folders.state(environment: ["HOME": "/h"]) == "/h/.local/state")
        #expect(Folders.state(environment: ["HOME": "/h", "XDG_STATE_HOME": "/s/"]) == "/s")
        #expect(Folders.state(environment: ["HOME": "/h", "XDG_STATE_HOME": "s"]) == "/h/.local/state")
    }
}
