/// The folder of `Package.swift`, as the compiler saw it.
public let repository = "/" + #filePath.split(separator: "/").dropLast(4).joined(separator: "/")

/// The version in `meson.build`, which is that of all programs; empty if the file names none.
public let projectVersion: String = {
    let lines = String(decoding: readFile("\(repository)/meson.build") ?? [], as: UTF8.self).split(separator: "\n")
    return lines.first { $0.hasPrefix("  version: ") }?.split(separator: "'").dropFirst().first.map(String.init) ?? ""
}()
