// swift-tools-version: 6.2
import PackageDescription

// In a package of your own, write the address of Todoku's repository and a version in place of the path.
let package = Package(
    name: "swift-client",
    dependencies: [.package(name: "todoku", path: "../..")],
    targets: [.executableTarget(name: "swift-client", dependencies: [.product(name: "TodokuClient", package: "todoku")])]
)
