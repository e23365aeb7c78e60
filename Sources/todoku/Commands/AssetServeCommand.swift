internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import Localization
internal import Packing
internal import Rehearsal
internal import TodokuClient

struct AssetServe: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve", abstract: "Serve data to this machine, to rehearse an update.",
        discussion: """
            Serves a folder that “todoku asset pack” has written, on 127.0.0.1 only, with conditional requests and ranges. Any other folder is \
            packed first, and again whenever its files change; its version is the archive's digest. Prints the commands that register and \
            update the asset, and then a line for each request. Ctrl-C ends it.

            EXAMPLES:
              todoku asset serve levels
              todoku asset serve levels --asset org.example.Game/levels --key publisher.pem
              todoku asset serve public --port 8080
            """)

    @Argument(help: ArgumentHelp("The folder with the data, or with packed files.", valueName: "folder")) var folder: String
    @Option(parsing: .unconditional, help: "The port; without it, any that is free.", transform: AssetServe.parsePort) var port: UInt16 = 0
    @Option(
        help: ArgumentHelp("How to name the asset in the commands that are printed.", valueName: "app/name"),
        transform: AssetReference.parse) var asset: AssetReference?
    @OptionGroup var packing: PackArguments
    @OptionGroup var output: OutputArguments
    @Flag(name: .shortAndLong, help: "Print the commands and errors only.") var quiet = false

    @Sendable static func parsePort(_ text: String) throws -> UInt16 {
        if let port = UInt16(text) { return port }
        throw ValidationError(
            catalog.text("“%1$s” is not a port; write a number from 1 to %2$s, or 0 (any that is free).", text, String(UInt16.max)))
    }

    func run() throws {
        let (source, key) = Program.require(json: output.json) { () throws(CommandFailure) in
            (
                try LocalPath.absolute(folder),
                try packing.key.map { path throws(CommandFailure) in try PackArguments.signingKey(at: path) }
            )
        }
        SignalSource.block(SignalSource.endSignals + [SIGPIPE])  // block before the first thread starts
        BusActor.runMain {
            let rehearsal = UpdateRehearsal(self, source, key)
            do throws(PackingError) { try await rehearsal.begin() } catch {
                rehearsal.end()
                Program.finish(rehearsal.report(error))
            }
        }
    }
}

/// A served folder. If it is not packed, its files are watched, and packed into a temporary folder.
@BusActor private final class UpdateRehearsal {
    /// Time between two looks at the files. A look takes at most a twentieth of the time.
    private static let interval: Duration = .seconds(1)

    private let command: AssetServe
    private let source: String
    private let key: SigningKey?
    private var temporary: String?
    private var server: FolderServer?
    private var signals: SignalSource?
    /// The state of the files when they were packed, and when they were last looked at.
    private var packed: FolderState?
    private var seen: FolderState?
    /// The state that was tried last: what cannot be packed is not tried again before it changes.
    private var refused: FolderState?
    private var archives: [String] = []
    private var failure: String?

    init(_ command: AssetServe, _ source: String, _ key: SigningKey?) { (self.command, self.source, self.key) = (command, source, key) }

    func begin() async throws(PackingError) {
        signals = SignalSource(SignalSource.endSignals) { [self] _ in  // which keeps this object
            end()
            Program.finish(.success)
        }
        Output.willEnd = { [weak self] in self?.deleteTemporary() }
        var manifests = await onDisk { [source] in PackedFolder.manifests(in: source) }
        if manifests.isEmpty {
            temporary = try PackedFolder.makeTemporary()
            let state = try await read()
            try await pack(state)
            manifests = ["\(name).json"]
        }
        let (isQuiet, isJSON) = (command.quiet, command.output.json)
        let server: FolderServer
        do throws(RehearsalError) {
            server = try FolderServer(temporary ?? source, port: command.port) { line, status in
                if isQuiet { return }
                guard isJSON else { return Output.write("\(line) \(status)\n") }
                // “-” stands for a request that was not understood.
                Self.write("request", [("request", JSON(line == "-" ? nil : line)), ("status", .integer(Int64(clamping: status)))])
            }
        } catch { throw PackingError(error.message) }
        self.server = server
        for manifest in manifests { tell("http://127.0.0.1:\(server.port)/\(percentEncoded(path: manifest))", manifest) }
        if temporary != nil { look(after: Self.interval) }
    }

    /// Deletes what nobody needs any more.
    func end() {
        server = nil
        deleteTemporary()
    }

    private func deleteTemporary() {
        if let temporary { PackedFolder.delete(temporary) }
        temporary = nil
    }

    @discardableResult
    func report(_ error: PackingError) -> ExitStatus {
        Program.report(CommandFailure(.refused, catalog.sentence(error.message)), json: command.output.json)
    }

    private nonisolated static func write(_ event: String, _ members: [(String, JSON)]) {
        Output.write(JSON.object([("event", .string(event))] + members).text + "\n")
    }

    /// What the packed files are named by: the name of the folder, unless it cannot name files.
    private var name: String {
        let own = source.pathComponents.last.map(String.init) ?? ""
        return PackRequest.isName(own) ? own : "asset"
    }

    /// The commands that register and update the asset.
    private func tell(_ url: String, _ manifest: String) {
        let name = String(manifest.dropLast(".json".count))
        let asset = command.asset ?? (try? AssetKey(app: "org.example.App", name: name)).map { AssetReference($0) }
        let shown = asset?.description ?? "org.example.App/data"
        guard !command.output.json else {
            let members = [("folder", JSON.string(source)), ("asset", .string(shown)), ("url", .string(url))]
            return Self.write("serving", members + [("public-key", JSON(key?.publicText))])
        }
        let signed = key.map { " --public-key \($0.publicText)" } ?? ""
        let heading = catalog.text("Serving %1$s at %2$s", TerminalText.plain(source), url)
        Output.write(
            """
            \(heading)
              todoku asset add\(signed) \(shown) \(url)
              todoku asset update \(shown)

            """)
    }

    private func onDisk<R: Sendable>(_ work: @escaping @Sendable () -> R) async -> R {
        await withCheckedContinuation { continuation in
            DiskPool.shared.perform(at: .path(source), takesLong: true, work) { continuation.resume(returning: $0) }
        }
    }

    private func read() async throws(PackingError) -> FolderState {
        try await onDisk { [source] in Result { () throws(PackingError) in try FolderState.read(source) } }.get()
    }

    private func pack(_ state: FolderState) async throws(PackingError) {
        guard let temporary else { return }
        var request = PackRequest(folder: source, output: temporary, name: name)
        (request.compression, request.level, request.key) = (command.packing.compression, command.packing.level, key)
        request.outputSetting = "TMPDIR"
        let asked = request
        let result = await onDisk { Result { () throws(PackingError) in try Packer.pack(asked) } }
        let asset = try result.get()
        (packed, refused, failure) = (state, nil, nil)
        // A client may be in the middle of the archive before.
        archives = Array((archives.filter { $0 != asset.archive } + [asset.archive]).suffix(2))
        let kept = archives
        _ = await onDisk { PackedFolder.clean(temporary, keeping: kept) }
        tell(asset)
    }

    /// Tells that the files were packed.
    private func tell(_ asset: PackedAsset) {
        if command.quiet { return }
        guard !command.output.json else {
            let sizes = [("size", JSON.unsigned(asset.size)), ("unpacked-size", .unsigned(asset.unpackedSize))]
            return Self.write("packed", [("version", .string(asset.version))] + sizes)
        }
        let (files, archive) = (catalog.size(asset.unpackedSize), catalog.size(asset.size))
        Output.write(catalog.text("packed %1$s: %2$s in %3$s", asset.version, files, archive) + "\n")
    }

    private func look(after delay: Duration) {
        Poller.shared.schedule(after: delay) { [weak self] in
            BusActor.spawn { await self?.look() }
        }
    }

    /// Packs the files again if they differ, and have not changed since the look before.
    private func look() async {
        guard temporary != nil else { return }
        let begun = ContinuousClock.now
        do throws(PackingError) {
            let state = try await read()
            let isQuiet = state == seen
            seen = state
            guard state != packed, state != refused, isQuiet else { return look(after: max(Self.interval, (.now - begun) * 20)) }
            refused = state
            try await pack(state)
        } catch {
            // The same failure is told once.
            if failure != error.message { report(error) }
            failure = error.message
        }
        look(after: max(Self.interval, (.now - begun) * 20))
    }
}
