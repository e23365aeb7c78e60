import Testing

/// The start of the program with all suites; `meson-helpers/build tests` links this file to where SwiftPM looks for `XCTMain.swift`.
///
/// Without such a file, SwiftPM generates one, and needs an index of all sources for that, to look for tests of XCTest. There are none.
/// Writing the index was half of the work of compiling a suite.
@main struct AllSuites {
    static func main() async { await Testing.__swiftPMEntryPoint() as Never }
}
