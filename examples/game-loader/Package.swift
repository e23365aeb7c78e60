// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "game-loader",
    dependencies: [.package(name: "todoku", path: "../..")],
    targets: [.executableTarget(name: "game-loader", dependencies: [.product(name: "TodokuClient", package: "todoku")])]
)
