internal import Desktop
internal import DownloaderInterface

/// The file by which the session bus starts the service (D-Bus specification, "Message Bus Starting Services").
struct ActivationFile: Equatable, Sendable {
    let path: String
    /// The program in `Exec`; empty: none.
    let program: String
    /// The further words in `Exec`, without their quotes. A word with a blank counts as several.
    let arguments: [String]
    /// The unit in `SystemdService`; nil: none.
    let unit: String?

    /// Most bytes of such a file; a longer one counts as absent.
    private static let mostBytes = 1 << 20

    /// The file that counts: that of the first folder which has one. nil: none is in the usual folders. Blocks.
    static func find(_ environment: [String: String]) -> ActivationFile? {
        for folder in folders(environment) {
            let path = "\(folder)/\(BusName.service).service"
            if let text = SmallFile.text(path, atMost: mostBytes) { return ActivationFile(path, text) }
        }
        return nil
    }

    /// In the bus's order of precedence (dbus-daemon(1), `standard_session_servicedirs`).
    private static func folders(_ environment: [String: String]) -> [String] {
        let shared = environment["XDG_DATA_DIRS"].flatMap { $0.isEmpty ? nil : $0 } ?? "/usr/local/share:/usr/share"
        var bases = [Folders.data(environment: environment)]
        bases.append(contentsOf: shared.split(separator: ":").map(String.init))
        bases.append("/usr/share")
        if let runtime = environment["XDG_RUNTIME_DIR"], !runtime.isEmpty { bases.insert(runtime, at: 0) }
        return bases.map { "\($0)/dbus-1/services" }
    }

    init(_ path: String, _ text: String) {
        var values: [String: String] = [:]
        for line in text.split(separator: "\n") {
            guard let equals = line.firstIndex(of: "=") else { continue }
            let key = line[..<equals].filter { $0 != " " }
            values[String(key)] = String(line[equals...].dropFirst().drop { $0 == " " })
        }
        self.path = path
        let command = values["Exec"] ?? ""
        program = Self.firstWord(command)
        let marks: Set<Character> = [" ", "\t", "\"", "'"]
        arguments = command.split { marks.contains($0) }.dropFirst().map(String.init)
        unit = values["SystemdService"]
    }

    /// The first word of a command line, with or without quotes.
    private static func firstWord(_ command: String) -> String {
        guard let first = command.first, first == "\"" || first == "'" else { return String(command.prefix { $0 != " " }) }
        return String(command.dropFirst().prefix { $0 != first })
    }
}
