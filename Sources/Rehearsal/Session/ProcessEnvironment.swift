internal import Glibc

/// The variables of a process. Their names and values are bytes, which need not be UTF-8 (environ(7)).
struct ProcessEnvironment: Sendable {
    private var values: [[UInt8]: [UInt8]] = [:]

    /// The variables of this process.
    static func own() -> ProcessEnvironment {
        var result = ProcessEnvironment()
        var entry = environ
        while let text = entry.pointee {
            let bytes = UnsafeRawBufferPointer(start: text, count: strlen(text))
            if let end = bytes.firstIndex(of: UInt8(ascii: "=")) {
                result.values[Array(bytes[..<end])] = Array(bytes[end...].dropFirst())
            }
            entry = entry.successor()
        }
        return result
    }

    subscript(name: String) -> [UInt8]? {
        get { values[Array(name.utf8)] }
        set { values[Array(name.utf8)] = newValue }
    }

    mutating func set(_ variables: [String: String]) {
        for (name, value) in variables { self[name] = Array(value.utf8) }
    }

    /// The same variables without those of these names.
    func without(_ names: Set<String>) -> ProcessEnvironment {
        var result = self
        for name in names { result[name] = nil }
        return result
    }

    /// `NAME=VALUE` of each variable, with a zero byte at the end.
    var entries: [[CChar]] {
        values.map { name, value in
            [name, [UInt8(ascii: "=")], value, [0]].joined().map { CChar(bitPattern: $0) }
        }
    }
}
