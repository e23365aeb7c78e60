internal import DownloaderInterface
import EventLoop
internal import Glibc
internal import TestSupport

/// Programs made of a file of `examples/generated-clients`, and of what other programs generate from the interface files.
enum GeneratedClient {
    /// All interfaces, with the names of the files that are generated for Qt.
    static let interfaces = [
        Manager.interface: "downloader", Download.interface: "download", Batch.interface: "batch", Asset.interface: "asset",
        "org.todoku.Push1": "push", Application.interface: "application",
    ]

    private static let examples = "\(repository)/examples/generated-clients"

    static func file(_ interface: String) -> String { "\(repository)/data/dbus-interfaces/\(interface).xml" }

    struct Unusable: Error { let reason: String }

    /// Puts the files that clients are compiled with into `folder`, as an install puts them below its prefix.
    ///
    /// - Returns: the folder of the pkg-config file.
    private static func install(in folder: TemporaryFolder) -> String {
        for name in ["share", "share/pkgconfig", "share/dbus-1", "include"] { folder.makeFolder(name) }
        symlink("\(repository)/data/dbus-interfaces", folder("share/dbus-1/interfaces"))
        symlink(examples, folder("include/todoku"))
        var text = String(decoding: readFile("\(repository)/data/todoku.pc.in") ?? [], as: UTF8.self)
        let values = ["prefix": folder.path, "datadir": "${prefix}/share", "includedir": "${prefix}/include", "version": "0"]
        for (name, value) in values { text = text.replacing("@\(name)@", with: value) }
        writeFile(folder("share/pkgconfig/todoku.pc"), text.utf8)
        return folder("share/pkgconfig")
    }

    /// Runs lines of shell in `folder`, with Todoku's package for pkg-config. Throws if they fail or warn.
    static func make(_ lines: String, _ packages: String, in folder: TemporaryFolder) async throws {
        let environment = processEnvironment().merging(["PKG_CONFIG_PATH": install(in: folder)]) { $1 }
        let exit = await Child.run(["sh", "-ec", lines], environment: environment, folder: folder.path)
        guard exit.status == 0, exit.errors == "" else { throw Unusable(reason: "packages \(packages): \(exit.output)\(exit.errors)") }
    }

    /// Compiles an example with what gdbus-codegen generates, and returns the path of the program.
    static func compileC(_ source: String, in folder: TemporaryFolder) async throws -> String {
        try await make(
            """
            interfaces=$(pkg-config --variable=interface_files todoku)
            gdbus-codegen --interface-prefix org.todoku. --c-namespace Todoku --generate-c-code todoku $interfaces
            cc -std=gnu11 -O0 -Wall -Werror -I. '\(examples)/\(source)' todoku.c -o client $(pkg-config --cflags --libs gio-unix-2.0)
            """, "libglib2.0-dev, libglib2.0-dev-bin, gcc, pkg-config", in: folder)
        return folder("client")
    }

    /// Compiles an example with what qdbusxml2cpp generates of some interfaces, and returns the path of the program.
    static func compileQt(_ source: String, _ interfaces: [String], in folder: TemporaryFolder) async throws -> String {
        var lines = ["interfaces=$(pkg-config --variable=interfaces_dir todoku)"]
        // One compilation unit, so that Qt's headers are read once.
        var unit = "#include \"\(examples)/\(source)\"\n"
        for interface in interfaces.sorted() {
            let name = Self.interfaces[interface] ?? interface
            lines.append("qdbusxml2cpp -i todokutypes.h -p \(name) \"$interfaces/\(interface).xml\"")
            lines.append("moc \(name).h -o \(name).moc")
            unit += "#include \"\(name).cpp\"\n#include \"\(name).moc\"\n"
        }
        // Its own classes may have slots, too.
        let file = "\(examples)/\(source)"
        if String(decoding: readFile(file) ?? [], as: UTF8.self).contains("Q_OBJECT") {
            lines.append("moc '\(file)' -o '\(source.replacing(".cpp", with: ".moc"))'")
        }
        writeFile(folder("all.cpp"), unit.utf8)
        lines.append("c++ -std=c++17 -fPIC -O0 -Wall -Werror -I. all.cpp -o client $(pkg-config --cflags --libs Qt5DBus todoku)")
        try await make(lines.joined(separator: "\n"), "qtbase5-dev, qtbase5-dev-tools, g++, pkg-config", in: folder)
        return folder("client")
    }

    // Several tests run these programs. They are compiled once for this run of the tests.
    private static let folderOfGlib = TemporaryFolder("todoku-glib")
    private static let folderOfQt = TemporaryFolder("todoku-qt")

    private static let glib = Task {
        // A static value has no end.
        atexit { removeTree(GeneratedClient.folderOfGlib.path) }
        return try await compileC("glib.c", in: folderOfGlib)
    }

    private static let qt = Task {
        atexit { removeTree(GeneratedClient.folderOfQt.path) }
        return try await compileQt("qt.cpp", [Manager.interface, Download.interface], in: folderOfQt)
    }

    /// The path of the program made of `glib.c`.
    static func glibProgram() async throws -> String { try await glib.value }

    /// The path of the program made of `qt.cpp`.
    static func qtProgram() async throws -> String { try await qt.value }
}
