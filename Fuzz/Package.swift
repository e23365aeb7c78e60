// swift-tools-version: 6.2
import PackageDescription

/// The rooms that read what strangers write, built with libFuzzer's counters; `meson-helpers/fuzz` builds and runs it.
///
/// A package of its own, so that the build of the service knows nothing of it. The rooms are links to those of `Sources`: a package
/// can reach into another by its library products only, and these rooms are none.
let settings: [SwiftSetting] = [
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .enableUpcomingFeature("InferIsolatedConformances"),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]
/// For rooms whose internal declarations the fuzzer calls. Compiling takes up to three times as long.
let seen: SwiftSetting = .unsafeFlags(["-enable-testing"])
let counted: SwiftSetting = .unsafeFlags(["-sanitize=fuzzer"])
/// For few inputs: rooms that are compiled in a quarter of the time, and check their assertions. What compares with them stays fast.
let unoptimized: SwiftSetting = .unsafeFlags(Context.environment["TODOKU_FUZZ_UNOPTIMIZED"] == nil ? [] : ["-Onone"])

func room(_ name: String, _ dependencies: [Target.Dependency] = [], isTestable: Bool = false) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: settings + [counted, unoptimized] + (isTestable ? [seen] : []))
}

let package = Package(
    name: "todoku-fuzz",
    targets: [
        .target(name: "CFuzzer"),
        .target(name: "CSystem"),
        .systemLibrary(name: "CDBus", pkgConfig: "dbus-1"),
        .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3"),
        .target(name: "CCurl"),
        .target(name: "CCrypto"),
        .target(name: "CCoding"),
        .target(name: "CArchive"),
        .target(name: "CConfine"),
        .target(name: "CJSON"),
        .target(name: "CXML"),
        .target(name: "CEmbedded"),
        room("EventLoop", ["CSystem"]),
        room("DBus", ["CDBus", "EventLoop"]),
        room("JSON", ["CJSON"]),
        room("WebPush", ["CCrypto"]),
        room("DownloadModel"),
        room("Metalink", ["CXML", "DownloadModel"]),
        room("Assets", ["DownloadModel", "JSON"]),
        room("PartFiles", ["CCrypto", "CSystem", "DownloadModel", "EventLoop"], isTestable: true),
        room("Transport", ["CCurl", "CCoding", "CSystem", "DownloadModel", "EventLoop"], isTestable: true),
        room("TransferEngine", ["PartFiles", "Transport", "CSystem", "DownloadModel", "EventLoop"], isTestable: true),
        room("Extraction", ["CArchive", "CCoding", "CConfine", "CSystem", "PartFiles", "DownloadModel", "EventLoop"]),
        room("DownloadStore", ["CSQLite", "CSystem", "DownloadModel", "EventLoop"], isTestable: true),
        room("DownloaderInterface", ["CEmbedded", "DBus", "DownloadModel"]),
        room("PushModel", ["DBus", "DownloadModel", "DownloaderInterface", "JSON", "WebPush"]),
        .executableTarget(
            name: "todoku-fuzz",
            dependencies: [
                "Assets", "CCoding", "CFuzzer", "CSystem", "DBus", "DownloadModel", "DownloadStore", "DownloaderInterface", "EventLoop",
                "Extraction", "Metalink", "PartFiles", "PushModel", "Transport", "TransferEngine", "WebPush",
            ],
            swiftSettings: settings),
    ]
)
