internal import TestSupport
internal import Testing

/// An app of `examples/`, which the bus starts by its D-Bus service file.
struct ExampleApp {
    static let python = "/usr/bin/python3"
    let id: String
    let program: String
    /// The command in its service file, with the path of the app on this machine.
    let command: String

    /// - Parameter name: of the app's folder. The name of its program has an underscore for each hyphen.
    init(_ id: String, _ name: String) {
        let folder = "\(repository)/examples/\(name)"
        let file = name.replacing("-", with: "_") + ".py"
        (self.id, program) = (id, "\(folder)/\(file)")
        let lines = String(decoding: readFile("\(folder)/\(id).service") ?? [], as: UTF8.self).split(separator: "\n")
        #expect(lines.contains("[D-BUS Service]") && lines.contains("Name=\(id)"))
        let line = lines.first { $0.hasPrefix("Exec=") } ?? ""
        command = line.dropFirst(5).replacing("/usr/libexec/\(file)", with: "\(Self.python) \(program)").description
    }
}
