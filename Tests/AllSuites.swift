import Dispatch
import Testing

/// The start of the program with all suites; `meson-helpers/build tests` links this file to where SwiftPM looks for `XCTMain.swift`.
///
/// Without such a file, SwiftPM generates one, and needs an index of all sources for that, to look for tests of XCTest. There are none.
/// Writing the index was half of the work of compiling a suite.
///
/// `main` is not async: optimized, an async `main` has a helper function of the same name in each program, and the linker keeps one of
/// them. The example game, which is linked into the suites too, then started in place of the tests.
@main struct AllSuites {
    static func main() {
        Task { await Testing.__swiftPMEntryPoint() as Never }
        dispatchMain()
    }
}
