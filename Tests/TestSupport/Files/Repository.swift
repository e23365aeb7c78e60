/// The folder of `Package.swift`, as the compiler saw it.
public let repository = "/" + #filePath.split(separator: "/").dropLast(4).joined(separator: "/")
