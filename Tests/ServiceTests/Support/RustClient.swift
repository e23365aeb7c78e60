internal import Glibc
internal import TestSupport

/// The client of `examples/rust`. Several tests run it; it is compiled once for this run of the tests.
enum RustClient {
    static let packages = "packages cargo, librust-zbus-dev"
    /// Where Debian's packages put the sources of crates.
    private static let crates = "/usr/share/cargo/registry"
    private static let folder = TemporaryFolder("todoku-rust")

    private static let built = Task {
        // A static value has no end.
        atexit { removeTree(RustClient.folder.path) }
        // In a copy, because Cargo writes a lock file beside the sources.
        try await GeneratedClient.make(
            """
            cp -r '\(repository)/examples/rust' source
            cargo build --quiet --offline --manifest-path source/Cargo.toml --target-dir target \
            --config 'source.crates-io.replace-with="debian"' --config 'source.debian.directory="\(crates)"' \
            --config 'future-incompat-report.frequency="never"'
            """, packages, in: folder)
        return folder("target/debug/todoku-client")
    }

    /// The path of the program.
    static func program() async throws -> String { try await built.value }
}
