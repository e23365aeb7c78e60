internal import Glibc

/// The path of a program of ours for a test. The environment variable may name it (the release build in CI). Otherwise it is the program
/// that was built together with the tests, in the same folder as their bundle.
public func builtProgram(_ name: String, variable: String) -> String {
    if let path = getenv(variable).map({ String(cString: $0) }), !path.isEmpty {
        precondition(access(path, X_OK) == 0, "\(variable) names \(path), which is no program")
        return path
    }
    // The bundle is the test process itself, or a file that the process loads by an argument.
    var candidates = CommandLine.arguments
    var own = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink("/proc/self/exe", &own, own.count)
    if count > 0 { candidates.append(String(decoding: own.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)) }
    for candidate in candidates where candidate.hasPrefix("/") {
        let path = candidate.split(separator: "/").dropLast().reduce("") { "\($0)/\($1)" } + "/\(name)"
        if access(path, X_OK) == 0 { return path }
    }
    preconditionFailure("\(name) is not there: build it (swift build --product \(name)), or name it by \(variable)")
}

/// Which sanitizer the programs under test are built with, as `meson-helpers/sanitize` says; nil: none. Tests that measure their time,
/// memory or threads check less then, and print that.
public func underSanitizer() -> String? { getenv("TODOKU_SANITIZER").map { String(cString: $0) } }
