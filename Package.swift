// swift-tools-version: 6.2
import PackageDescription

let strict: [SwiftSetting] = [
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .enableUpcomingFeature("InferIsolatedConformances"),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]

/// Lets suites see the internal declarations (`@testable import`) of a room that is optimized. Compiling takes up to three times as long:
/// what is seen from outside is kept, and so is each specialization of it. Only `meson-helpers/build tests`, which names the folder
/// below, builds such rooms. SwiftPM refuses a package that another depends on, if a room of it has unsafe flags.
let seen: [SwiftSetting] =
    Context.environment["TODOKU_SUITES_FOLDER"] == nil ? [] : [.unsafeFlags(["-enable-testing"], .when(configuration: .release))]

/// A room of the architecture (docs/architecture.md). What it may import is what it depends on here;
/// `meson-helpers/check-imports` holds the sources to that.
func room(_ name: String, _ dependencies: [Target.Dependency] = [], isTestable: Bool = false) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: strict + (isTestable ? seen : []))
}

func program(_ name: String, _ dependencies: [Target.Dependency], isTestable: Bool = false) -> Target {
    .executableTarget(name: name, dependencies: dependencies, swiftSettings: strict + (isTestable ? seen : []))
}

/// Suites are not optimized, also beside optimized rooms: they run once, and are most of what a build compiles. Nobody waits for their
/// modules, which would be compiled twice.
let plain: [SwiftSetting] =
    strict + [.unsafeFlags(["-Onone", "-no-emit-module-separately-wmo"], .when(configuration: .release))]

/// The folder of the suites. `meson-helpers/build tests` names a link to it, beside which SwiftPM finds `Tests/AllSuites.swift`.
let suites = Context.environment["TODOKU_SUITES_FOLDER"] ?? "Tests"

func suite(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .testTarget(name: name, dependencies: dependencies + ["TestSupport"], path: "\(suites)/\(name)", swiftSettings: plain)
}

/// The targets that only suites use. `game-loader` and `swift-client` are also packages of their own, which depend on this one.
let targetsOfSuites = ["TestSupport", "todoku-segments", "todoku-unpack", "game-loader", "swift-client"]

/// The suites to build: those that `TODOKU_SUITES` names, comma-separated, or all. A rebuild of one suite takes a fraction of the time of
/// all. `none`: no suite, and none of the targets that only suites use.
func isWanted(_ target: Target) -> Bool {
    guard let wanted = Context.environment["TODOKU_SUITES"], !wanted.isEmpty else { return true }
    if wanted == "none" {
        return target.type != .test && !targetsOfSuites.contains(target.name)
    }
    return target.type != .test || wanted.split(separator: ",").contains { $0 == target.name }
}

/// A package of Apple's. `TODOKU_SWIFT_PACKAGES` names a folder that has its sources, for builds without a network (docs/packaging.md).
/// `meson-helpers/fetch-swift-packages` fills such a folder: it reads the names and versions below.
func applePackage(_ name: String, from version: Version) -> Package.Dependency {
    guard let folder = Context.environment["TODOKU_SWIFT_PACKAGES"], !folder.isEmpty else {
        return .package(url: "https://github.com/apple/\(name)", from: version)
    }
    return .package(path: "\(folder)/\(name)")
}

let package = Package(
    name: "todoku",
    products: [
        .library(name: "TodokuClient", targets: ["TodokuClient"]),
        .executable(name: "todokud", targets: ["todokud"]),
        .executable(name: "todoku", targets: ["todoku"]),
        .executable(name: "todoku-tray", targets: ["todoku-tray"]),
        .executable(name: "todoku-push", targets: ["todoku-push"]),
        .executable(name: "todoku-browser", targets: ["todoku-browser"]),
    ],
    dependencies: [
        applePackage("swift-argument-parser", from: "1.8.2"),
        applePackage("swift-log", from: "1.16.2"),
    ],
    targets: [
        // C boundary
        .target(name: "CSystem"),
        .systemLibrary(name: "CDBus", pkgConfig: "dbus-1", providers: [.apt(["libdbus-1-dev"])]),
        .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
        .target(name: "CCurl"),
        .target(name: "CNotify"),
        .target(name: "CSound"),
        .target(name: "CCrypto"),
        .target(name: "CCoding"),
        .target(name: "CArchive"),
        .target(name: "CConfine"),
        .target(name: "CJSON"),
        .target(name: "CXML"),
        .target(name: "CEmbedded"),

        // Rooms
        room("EventLoop", ["CSystem"], isTestable: true),
        room("DBus", ["CDBus", "EventLoop"], isTestable: true),
        room("JSON", ["CJSON"]),
        room("DownloadModel", isTestable: true),
        room("Metalink", ["CXML", "DownloadModel"]),
        room("Scheduling", ["DownloadModel"], isTestable: true),
        room("Assets", ["DownloadModel", "JSON"]),
        room("PartFiles", ["CCrypto", "CSystem", "DownloadModel", "EventLoop"], isTestable: true),
        room("Transport", ["CCurl", "CCoding", "CSystem", "DownloadModel", "EventLoop"], isTestable: true),
        room("TransferEngine", ["PartFiles", "Transport", "CSystem", "DownloadModel", "EventLoop"], isTestable: true),
        room("Extraction", ["CArchive", "CCoding", "CConfine", "CSystem", "PartFiles", "DownloadModel", "EventLoop"], isTestable: true),
        room("Packing", ["CArchive", "Assets", "Extraction", "PartFiles", "DownloadModel", "EventLoop"], isTestable: true),
        room("DownloadStore", ["CSQLite", "CSystem", "DownloadModel", "EventLoop"], isTestable: true),
        room("Localization", ["CEmbedded", "DownloadModel"], isTestable: true),
        room("Desktop", ["CNotify", "CSound", "DBus", "DownloadModel", "EventLoop", "Localization"], isTestable: true),
        room("DownloaderInterface", ["CEmbedded", "DBus", "DownloadModel"]),
        room(
            "DownloadService",
            [
                "EventLoop", "DBus", "DownloadModel", "Scheduling", "Assets", "Extraction", "Metalink", "PartFiles", "Transport",
                "TransferEngine",
                "DownloadStore",
                "Desktop", "DownloaderInterface", "Localization", "Sandboxes",
                .product(name: "Logging", package: "swift-log"),
            ], isTestable: true),
        room("Sandboxes", ["DBus", "DownloadModel", "DownloaderInterface", "EventLoop"], isTestable: true),
        room("TodokuClient", ["DownloaderInterface", "DBus", "EventLoop", "DownloadModel"], isTestable: true),
        room("StatusNotifier", ["DBus", "EventLoop"], isTestable: true),
        room("Rehearsal", ["CSystem", "DBus", "DownloadModel", "DownloaderInterface", "EventLoop"], isTestable: true),
        room(
            "Upkeep",
            [
                "EventLoop", "CSystem", "DBus", "DownloadModel", "PartFiles", "Transport", "DownloadStore", "Desktop",
                "DownloaderInterface", "PushInterface",
            ], isTestable: true),
        room("WebPush", ["CCrypto"]),
        room("PushModel", ["DBus", "DownloadModel", "DownloaderInterface", "JSON", "WebPush"]),
        room("PushInterface", ["CEmbedded", "DBus", "DownloaderInterface", "EventLoop"], isTestable: true),
        room(
            "PushService",
            [
                "EventLoop", "DBus", "DownloadModel", "DownloaderInterface", "TodokuClient", "WebPush", "PushModel", "PushInterface",
                "Sandboxes", .product(name: "Logging", package: "swift-log"),
            ], isTestable: true),

        // Programs
        program("todokud", ["DownloadService", "EventLoop", .product(name: "Logging", package: "swift-log")]),
        program(
            "todoku",
            [
                "TodokuClient", "Packing", "Rehearsal", "Upkeep", "DownloadStore", "EventLoop", "DownloadModel", "Localization",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ], isTestable: true),
        program(
            "todoku-tray", ["TodokuClient", "StatusNotifier", "DBus", "Desktop", "DownloadModel", "EventLoop", "Localization"],
            isTestable: true),
        program("todoku-push", ["PushService", "Desktop", "EventLoop", .product(name: "Logging", package: "swift-log")]),
        program("todoku-browser", ["DBus", "DownloadModel", "DownloaderInterface", "EventLoop", "JSON"], isTestable: true),
        program("todoku-demo", ["DBus", "EventLoop"]),

        // Tests
        .executableTarget(
            name: "todoku-simulation", dependencies: ["Assets", "DownloadModel", "Scheduling"], path: "Tests/Simulation",
            swiftSettings: strict),
        .executableTarget(
            name: "todoku-segments", dependencies: ["DownloadModel", "PartFiles"], path: "Tests/SegmentWriter", swiftSettings: strict),
        .executableTarget(
            name: "todoku-unpack", dependencies: ["CSystem", "DownloadModel", "Extraction", "Transport"], path: "Tests/Unpacker",
            swiftSettings: strict),
        .executableTarget(
            name: "game-loader", dependencies: ["TodokuClient"], path: "examples/game-loader/Sources/game-loader", swiftSettings: strict),
        .executableTarget(
            name: "swift-client", dependencies: ["TodokuClient"], path: "examples/swift/Sources/swift-client", swiftSettings: strict),
        .target(name: "TestSupport", dependencies: ["DBus", "EventLoop", "CSystem"], path: "Tests/TestSupport", swiftSettings: strict),
        suite("EventLoopTests", ["EventLoop"]),
        suite("DBusTests", ["DBus", "EventLoop"]),
        suite("JSONTests", ["JSON"]),
        suite("WebPushTests", ["WebPush"]),
        suite("MetalinkTests", ["Metalink", "DownloadModel"]),
        suite("DownloadModelTests", ["DownloadModel"]),
        suite("SchedulingTests", ["DownloadModel", "Scheduling"]),
        suite("AssetsTests", ["Assets", "DownloadModel"]),
        suite("PartFilesTests", ["PartFiles", "DownloadModel", "EventLoop"]),
        suite("TransferEngineTests", ["TransferEngine", "PartFiles", "Transport", "DownloadModel", "EventLoop", "CSystem"]),
        suite("ExtractionTests", ["Extraction", "PartFiles", "DownloadModel", "EventLoop", "CArchive", "todoku-unpack"]),
        suite("PackingTests", ["Packing", "DownloadModel", "EventLoop"]),
        suite("RehearsalTests", ["Rehearsal", "DBus", "DownloadModel", "EventLoop"]),
        suite("DownloadStoreTests", ["DownloadStore", "Scheduling", "DownloadModel", "EventLoop"]),
        suite("LocalizationTests", ["Localization", "DownloadModel"]),
        suite("DesktopTests", ["Desktop", "Localization", "DBus", "DownloadModel", "EventLoop"]),
        suite(
            "ServiceTests",
            [
                "todokud", "swift-client", "DownloadService", "DownloadStore", "DownloaderInterface", "Sandboxes", "DBus", "DownloadModel",
                "EventLoop",
            ]),
        suite("AssetTests", ["todokud", "DownloaderInterface", "DBus", "DownloadModel", "EventLoop"]),
        suite("FaultTests", ["todokud", "todoku-segments", "DownloaderInterface", "DBus", "DownloadModel", "EventLoop"]),
        suite(
            "CommandTests",
            [
                "todoku", "game-loader", "Packing", "Upkeep", "Transport", "Localization", "TodokuClient", "DownloaderInterface", "DBus",
                "DownloadModel",
                "EventLoop", "CSystem",
            ]),
        suite(
            "TrayTests",
            ["todoku-tray", "todokud", "StatusNotifier", "TodokuClient", "DownloaderInterface", "DBus", "DownloadModel", "EventLoop"]),
        suite(
            "PushTests",
            [
                "todoku-push", "todokud", "todoku", "PushService", "PushModel", "PushInterface", "Upkeep", "WebPush", "DownloaderInterface",
                "DBus", "DownloadModel",
                "EventLoop",
            ]),
        suite("BrowserTests", ["todoku-browser", "todokud", "DownloaderInterface", "DBus", "DownloadModel", "EventLoop", "JSON"]),
    ].filter(isWanted)
)
