internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// What an app does with its asset.
enum AssetStep: Sendable, Equatable {
    case update(String)
    /// Cancels the update once half of the archive has come.
    case cancel(String)
    /// Cancels the update once a part of its files is unpacked.
    case cancelUnpacking(String)
    /// Updates, while the daemon is ended by SIGTERM and started again once half of the archive has come.
    case interrupt(String)
    /// Another program deletes the installed version, this one; it is installed again.
    case repair(String)
    case rollBack(to: String)
    case unregister

    /// A whole life, from the registration on.
    static let life: [AssetStep] = [
        .update("1"), .update("2"), .cancel("3"), .cancelUnpacking("3"), .update("3"), .rollBack(to: "2"), .update("4"), .unregister,
    ]
    /// A life with updates that are cancelled, and none after them.
    static let cancelledLife: [AssetStep] = [.update("1"), .cancel("2"), .cancelUnpacking("2"), .unregister]

    /// The archive that the step is about; empty: none.
    var version: String {
        switch self {
        case .update(let name), .cancel(let name), .cancelUnpacking(let name), .interrupt(let name), .repair(let name), .rollBack(let name):
            name
        case .unregister: ""
        }
    }
    /// The file whose writing waits while an unpacking is held.
    static let heldFile = "/parts/5"
}

/// An app and its asset, while daemons die and calls fail. It repeats each call until it is answered, as an app would, and looks at the
/// asset's path each time when no daemon runs.
@BusActor final class AssetLife {
    static let (app, name) = ("org.example.App", "maps")

    let place: Place
    let lane: Lane
    let publisher: AssetPublisher
    var verdict: Verdict
    /// The versions that the path may lead to; the empty one: it may be absent.
    var allowed: Set<String> = [""]
    /// The fault of the next daemon; nil: none.
    var nextFault: () -> Fault? = { nil }
    /// Further variables of every daemon.
    var more: [String: String] = [:]
    private(set) var kills = 0
    private var hasStarted = false
    private var asset: ObjectPath?
    /// Whether the update that is to be cancelled has ended by itself: after a fault, or a kill.
    private var isAnswered = false
    /// The lengths of the archives that may have been fetched.
    private var wanted = 0

    init(_ verdict: Verdict, _ place: Place, _ lane: Lane, _ publisher: AssetPublisher) {
        (self.verdict, self.place, self.lane, self.publisher) = (verdict, place, lane, publisher)
    }

    /// The default directory, below the folder that the shim looks at.
    var directory: String { "\(place.files)/todoku/assets/\(Self.app)/\(Self.name)" }
    /// The folders of apps with assets.
    var folders: [String] { listFolder("\(place.files)/todoku/assets") }
    private var manifests: String { "\(place.state)/todoku/manifests" }

    // MARK: The daemon

    /// Starts a daemon if none runs. Its start may be killed, or refused after a fault, and is repeated.
    func wake() async -> Bool {
        for _ in 0..<6 {
            if lane.isRunning { return true }
            await bury()
            let variables = ["XDG_DATA_HOME": place.files, "FAULTSHIM_HOLD": AssetStep.heldFile]
            guard let ending = await lane.start(place, nextFault(), more: more.merging(variables) { $1 }) else {
                hasStarted = true
                return true
            }
            await lane.end(SIGKILL)
            if ending.status == 128 + SIGKILL {
                kills += 1
            } else {
                verdict.errors += 1
                verdict.expect(
                    ending.status == 1 && ending.errors.contains("cannot start"), "it ended with \(ending.status): \(ending.errors)")
            }
            look("after a start that failed")
        }
        verdict.wrong.append("it did not start six times")
        return false
    }

    /// After the daemon's death: looks at the path.
    private func bury() async {
        guard hasStarted else { return }
        hasStarted = false
        let ending = await lane.end(SIGKILL)
        verdict.expect(ending.status == 128 + SIGKILL, "it died with \(ending.status): \(ending.errors.suffix(300))")
        kills += 1
        look("after a kill")
    }

    /// The daemon was ended by somebody else, as it should.
    func hasEnded() { hasStarted = false }

    /// Ends the daemon. The next one has no faults.
    func restart() async -> Bool {
        nextFault = { nil }
        // A file that this daemon has made may have the number of one that was rebuilt and is gone.
        more["FAULTSHIM_INODES"] = nil
        if lane.isRunning {
            let ending = await lane.end(SIGTERM)
            // A late fault may kill it while it leaves.
            verdict.expect(
                [0, 128 + SIGKILL].contains(ending.status), "SIGTERM ended it with \(ending.status): \(ending.errors.suffix(300))")
            if ending.status != 0 { kills += 1 }
            hasStarted = false
            look("after an end")
        }
        return await wake()
    }

    /// Repeats a call until it is answered.
    ///
    /// - Parameter accepts: whether a refusal is an answer.
    private func insist<R>(
        _ what: String, accepts: (DBusError) -> Bool = { _ in false }, _ body: () async throws(DBusError) -> R
    ) async -> R? {
        var refusals = 0
        for _ in 0..<10 {
            guard await wake() else { return nil }
            do { return try await body() } catch {
                if accepts(error) { return nil }
                guard error.name.hasPrefix("org.todoku.Error.") else {
                    if await eventually({ !lane.isRunning }) { continue }
                    verdict.wrong.append("\(what): \(error.name) \(error.message), and the daemon lives")
                    return nil
                }
                refusals += 1
                verdict.tell(error.message, "the caller of \(what)")
                look("after a refusal of \(what)")
                if refusals > 3 { break }
            }
        }
        verdict.wrong.append("\(what) was never answered")
        return nil
    }

    // MARK: The steps

    func register() async -> Bool {
        asset = await insist("RegisterAsset") { () async throws(DBusError) in try await tryToRegister() }
        return asset != nil
    }

    func tryToRegister() async throws(DBusError) -> ObjectPath {
        try await lane.registerAsset(Self.app, Self.name, publisher.url, ["notify": .string("never")])
    }

    /// Takes a step; false: it cannot go on.
    func take(_ step: AssetStep, as version: String? = nil) async -> Bool {
        guard let asset else { return false }
        let before = verdict.wrong.count
        switch step {
        case .update(let name): await update(asset, name, as: version)
        case .cancel(let name): await cancel(asset, name, as: version)
        case .cancelUnpacking(let name): await cancelUnpacking(asset, name, as: version)
        case .interrupt(let name): await interrupt(asset, name, as: version)
        case .repair(let name): await repair(asset, name, as: version)
        case .rollBack(let name):
            allowed.insert(name)
            // An earlier call may have been carried out, and its answer lost.
            _ = await insist("Rollback", accepts: { $0.name.hasSuffix("InvalidState") && self.installed == name }) {
                () async throws(DBusError) in try await lane.rollBack(asset)
            }
            allowed = [name]
            look("after Rollback")
        case .unregister: await unregister(asset)
        }
        return verdict.wrong.count == before
    }

    private func update(_ asset: ObjectPath, _ name: String, as version: String?) async {
        publisher.publish(name, as: version)
        allowed.insert(name)
        wanted += publisher.versions[name]?.archive.count ?? 0
        guard let path = await insist("Update", { () async throws(DBusError) in try await lane.updateAsset(asset) }) else { return }
        verdict.expect(path == "\(directory)/current", "Update answered with \(path)")
        allowed = [name]
        look("after Update")
        verdict.right += 1
    }

    private func cancel(_ asset: ObjectPath, _ name: String, as version: String?) async {
        publisher.publish(name, as: version)
        _ = publisher.hold(name)
        wanted += publisher.versions[name]?.archive.count ?? 0
        await cancelLater(asset, "while downloading") { [self] in
            publisher.isHeld
        } release: {
            publisher.release(name)
        }
    }

    private func cancelUnpacking(_ asset: ObjectPath, _ name: String, as version: String?) async {
        publisher.publish(name, as: version)
        wanted += publisher.versions[name]?.archive.count ?? 0
        guard await wake() else { return }
        let before = place.held
        place.hold(true)
        await cancelLater(asset, "while unpacking") { [self] in
            place.held > before
        } release: {
            place.hold(false)
        }
    }

    /// Updates, and cancels the update once it is held: it cannot end before `release`, whatever happens meanwhile.
    private func cancelLater(
        _ asset: ObjectPath, _ when: String, isHeld: @escaping @BusActor () -> Bool, release: () -> Void
    ) async {
        guard await wake() else { return }
        let answer = answerLater(asset)
        _ = await eventually { isHeld() || isAnswered || !lane.isRunning }
        _ = await insist("Cancel") { () async throws(DBusError) in try await lane.cancelUpdate(asset) }
        release()
        let path = await answer.value
        verdict.expect(path == nil, "an update that was cancelled \(when) answered with \(path ?? "")")
        look("after Cancel \(when)")
    }

    private func interrupt(_ asset: ObjectPath, _ name: String, as version: String?) async {
        publisher.publish(name, as: version)
        _ = publisher.hold(name)
        allowed.insert(name)
        guard await wake() else { return }
        let answer = answerLater(asset)
        _ = await eventually { hasHalf(of: name) || isAnswered || !lane.isRunning }
        let ending = await lane.end(SIGTERM)
        verdict.expect(ending.status == 0, "SIGTERM ended it with \(ending.status): \(ending.errors.suffix(300))")
        hasStarted = false
        look("after an end in the middle")
        publisher.release(name)
        _ = await answer.value
        await update(asset, name, as: version)
    }

    /// Whether half of an archive is in its part file.
    private func hasHalf(of name: String) -> Bool {
        let half = UInt64((publisher.versions[name]?.archive.count ?? 0) / 2)
        return publisher.isHeld && lane.received.values.contains { $0 >= half }
    }

    private func repair(_ asset: ObjectPath, _ name: String, as version: String?) async {
        allowed.insert("")
        // The changes of this program are recorded, too.
        let script = """
            set -e; cd "$1"; version=$(readlink current); rm current; sync .; rm -r "$version"; sync .
            """
        var environment = place.environment(lane.shim, nil, more: more)
        environment["PATH"] = "/usr/bin:/bin"
        let exit = await Child(["sh", "-c", script, "sh", directory], environment: environment).wait()
        verdict.expect(exit.status == 0, "the version could not be deleted: \(exit.errors)")
        look("after somebody has deleted the version")
        await update(asset, name, as: version)
    }

    /// Calls `Update`. `isAnswered` tells when it has ended.
    private func answerLater(_ asset: ObjectPath) -> Task<String?, Never> {
        isAnswered = false
        return Task { @BusActor in
            let path = try? await lane.updateAsset(asset)
            isAnswered = true
            return path
        }
    }

    private func unregister(_ asset: ObjectPath) async {
        allowed.insert("")
        _ = await insist("UnregisterAsset", accepts: { $0.name.hasSuffix("NoSuchObject") }) { () async throws(DBusError) in
            try await lane.unregisterAsset(asset)
        }
        allowed = [""]
        look("after UnregisterAsset")
    }

    // MARK: What must hold

    /// The version that the path leads to.
    var installed: String? { readFile("\(directory)/current/version").map { String(decoding: $0, as: UTF8.self) } }

    /// The path is absent, or one link to a whole version that is allowed. Needs no daemon.
    func look(_ when: String) {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("\(directory)/current", &bytes, bytes.count - 1)
        guard count >= 0 else {
            let code = errno
            verdict.expect(code == ENOENT, "\(when) the path is no link: \(code)")
            return verdict.expect(allowed.contains(""), "\(when) the path is absent, and not one of \(allowed.sorted())")
        }
        let target = String(decoding: bytes.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        verdict.expect(target.hasPrefix("version-") && !target.contains("/"), "\(when) the path leads to \(target)")
        var files: [String: [UInt8]] = [:]
        read("\(directory)/\(target)", "", &files)
        let name = files["version"].map { String(decoding: $0, as: UTF8.self) } ?? ""
        guard allowed.contains(name), let version = publisher.versions[name] else {
            verdict.wrong.append("\(when) the path leads to “\(name)”, and not to one of \(allowed.sorted()): \(files.keys.sorted())")
            return
        }
        let wrong = Set(files.keys).union(version.files.keys).filter { name in
            guard let file = files[name], let expected = version.files[name] else { return true }
            // `==` compares megabytes one by one, as the suites are not optimized.
            return file.count != expected.count || memcmp(file, expected, file.count) != 0
        }
        verdict.expect(wrong.isEmpty, "\(when) version \(name) has wrong files: \(wrong.sorted())")
    }

    /// The version on the bus is the one that the path leads to. An update that goes on by itself may be between the two.
    func expectVersionOnBus() async {
        guard let asset = try? await lane.assets().first else { return }
        var told: String?
        let isSame = await eventually(within: .seconds(60)) {
            guard let before = try? await lane.installedVersion(asset) else {
                told = nil
                // An end that was under way has gone on.
                return (try? await lane.assets().isEmpty) == true
            }
            let found = installed ?? ""
            told = try? await lane.installedVersion(asset)
            // What stands behind the archive's name makes it another version.
            return told == before && before.split(separator: "-").first.map(String.init) ?? "" == found
        }
        verdict.expect(isSame, "InstalledVersion is “\(told ?? "")”, and the path leads to “\(installed ?? "")”")
    }

    /// All files below the asset's directory, and the link.
    var content: [String: [UInt8]] {
        var files: [String: [UInt8]] = [:]
        read(directory, "\(directory)/", &files)
        return files
    }

    private func read(_ folder: String, _ prefix: String, _ files: inout [String: [UInt8]]) {
        for name in listFolder(folder) {
            var status = stat()
            guard lstat("\(folder)/\(name)", &status) == 0 else { continue }
            if status.st_mode & S_IFMT == S_IFDIR {
                read("\(folder)/\(name)", "\(prefix)\(name)/", &files)
            } else if status.st_mode & S_IFMT == S_IFLNK {
                files["\(prefix)\(name)"] = []
            } else {
                files["\(prefix)\(name)"] = readFile("\(folder)/\(name)") ?? []
            }
        }
    }

    /// Nothing is left of what is over: no archive, no half-unpacked version, none but the installed one and another, no part file, no map,
    /// no download. What a fault has kept from being deleted is deleted by the next start.
    func expectTidy() async {
        guard await wake() else { return }
        // Without a fault no start is needed, and one that is recorded would look like that of an interrupted update.
        let patience = place.hits > 0 ? 3 : more["FAULTSHIM_RECORD"] == nil ? 15 : 60
        if await eventually(within: .seconds(patience), { await isTidy() }) { return }
        guard await restart() else { return }
        if await eventually(within: .seconds(60), { await isTidy() }) { return }
        let downloads = (try? await lane.urls().values.sorted()) ?? []
        verdict.wrong.append("left behind: \(leftovers), downloads \(downloads)")
    }

    private func isTidy() async -> Bool {
        guard leftovers.isEmpty else { return false }
        return (try? await lane.urls().isEmpty) ?? false
    }

    private var leftovers: [String] {
        let names = listFolder(directory).filter { $0 != "current" }
        let versions = names.filter { $0.hasPrefix("version-") && !$0.contains(".") }
        return names.filter { !versions.contains($0) } + (versions.count > 2 ? versions : [])
            + listFolder("\(place.state)/todoku/segments")
            + listFolder(manifests).filter { $0 != "\(Self.app) \(Self.name).json" }
    }

    /// After the end of the registration: no file and no row is left.
    func expectNothingLeft() async {
        guard await restart() else { return }
        // The row may be there if a kill came before the answer.
        if let path = (try? await lane.assets())?.first {
            _ = await insist("UnregisterAsset") { () async throws(DBusError) in try await lane.unregisterAsset(path) }
        }
        let isGone = await eventually(within: .seconds(60)) {
            listFolder("\(place.files)/todoku/assets").isEmpty && listFolder(manifests).isEmpty
                && listFolder("\(place.state)/todoku/segments").isEmpty
        }
        verdict.expect(
            isGone, "the end leaves \(listFolder("\(place.files)/todoku/assets")) \(listFolder(directory)), \(listFolder(manifests))")
        // A start takes some time to repeat the deletions that a fault has interrupted.
        _ = await eventually { await rowsLeft() == "" }
        await lane.end(SIGTERM)
        hasStarted = false
        let rows = await rowsLeft()
        verdict.expect(rows == "", "rows are left: \(rows)")
    }

    /// What `countRows` finds, or why it fails.
    private func rowsLeft() async -> String {
        let rows = await Child.run(["sqlite3", "\(place.state)/todoku/todoku.db", Self.countRows])
        return rows.status == 0 ? rows.output : "\(rows.output)\(rows.errors)"
    }

    /// The tables that still have rows, and how many.
    private static let countRows =
        "SELECT * FROM ("
        + ["asset", "download", "course", "sweep"].map { "SELECT '\($0)', count(*) AS rows FROM \($0)" }.joined(separator: " UNION ALL ")
        + ") WHERE rows > 0"

    /// A kill costs at most 1 MiB, and nothing else is fetched twice.
    func expectFetchedOnce() {
        let fetched = place.received(from: publisher.server.port)
        let most = wanted + kills << 20 + publisher.server.requests.count * 700
        verdict.expect(fetched <= most, "\(fetched) bytes were fetched, and \(most) are enough (\(kills) kills)")
    }
}

extension Lane {
    func registerAsset(_ app: String, _ name: String, _ url: String, _ options: [String: Variant]) async throws(DBusError) -> ObjectPath {
        try await connection.call(
            Manager.registerAsset, on: BusName.service, at: BusName.managerPath, (app, name, url, options), timeout: .seconds(60))
    }
    func unregisterAsset(_ path: ObjectPath) async throws(DBusError) {
        try await connection.call(
            Manager.unregisterAsset, on: BusName.service, at: BusName.managerPath, (path, true), timeout: .seconds(60))
    }
    func assets() async throws(DBusError) -> [ObjectPath] {
        try await connection.call(Manager.assets, on: BusName.service, at: BusName.managerPath, "", timeout: .seconds(60))
    }
    /// Returns the path of the version that is ready.
    func updateAsset(_ path: ObjectPath) async throws(DBusError) -> String {
        try await connection.call(Asset.update, on: BusName.service, at: path, [:], timeout: .seconds(180)).1
    }
    func installedVersion(_ path: ObjectPath) async throws(DBusError) -> String {
        try await connection.call(
            Standard.get, on: BusName.service, at: path, (Asset.interface, Asset.installedVersion.name), timeout: .seconds(60)
        ).string ?? ""
    }
    func rollBack(_ path: ObjectPath) async throws(DBusError) -> String {
        try await connection.call(Asset.rollback, on: BusName.service, at: path, (), timeout: .seconds(60))
    }
    func cancelUpdate(_ path: ObjectPath) async throws(DBusError) {
        try await connection.call(Asset.cancel, on: BusName.service, at: path, (), timeout: .seconds(60))
    }
}
