internal import ArgumentParser
internal import DownloadModel
internal import EventLoop
internal import Localization
internal import TodokuClient

struct AssetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "asset", abstract: "Keep an app's data current: maps, voices, levels.",
        discussion: """
            An asset is versioned data. Its manifest, a small JSON document on a server, names the latest version and the archive. The \
            service fetches the manifest, downloads, verifies, unpacks, and switches the link PATH/current to the new version. You name an \
            asset by APP/NAME.

            EXAMPLES:
              todoku asset add org.example.Game/levels https://example.org/levels.json
              todoku asset update org.example.Game/levels
              todoku asset list
              todoku asset rollback org.example.Game/levels

            To publish an asset, and to rehearse its update on one machine:
              todoku asset pack levels --version 2026.11
              todoku asset serve levels
            """,
        subcommands: [
            AssetAdd.self, AssetCheck.self, AssetUpdate.self, AssetRollback.self, AssetCancel.self, AssetList.self, AssetShow.self,
            AssetRemove.self, AssetPack.self, AssetKeyCommand.self, AssetServe.self,
        ])
}

struct AssetAdd: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "add", abstract: "Register an asset, or change a registered one.",
        discussion: "Nothing is downloaded yet, unless --update says so. Prints the path of the link to the installed version.")

    @Argument(help: ArgumentHelp("The application's id and its name for the asset.", valueName: "app/name")) var asset: String
    @Argument(help: ArgumentHelp("Where the manifest is.", valueName: "url")) var url: String
    @Option(help: "When to check without a call: manual, login or daily.") var update = AssetUpdatePolicy.manual
    @Option(
        help: ArgumentHelp("The Ed25519 key that signs the manifest: 64 hexadecimal digits.", valueName: "key")) var publicKey: String?
    @Option(name: .shortAndLong, help: ArgumentHelp("A folder of the asset's own.", valueName: "folder"), completion: .directory)
    var directory: String?
    @Flag(name: [.customShort("p"), .long], help: "Make the folder, if it is missing.") var parents = false
    @OptionGroup var requests: AssetRequestArguments
    @OptionGroup var output: OutputArguments

    func validate() throws {
        if parents, directory == nil { throw ValidationError(catalog.text("%1$s needs %2$s.", "--parents", "--directory")) }
        _ = try key()
        _ = try bytes()
    }

    private func key() throws -> AssetKey {
        let parts = asset.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
        guard parts.count == 2 else { throw ValidationError(catalog.text("An asset is named by APP/NAME.")) }
        do throws(Refusal) { return try AssetKey(app: parts[0], name: parts[1]) } catch {
            throw ValidationError(catalog.explanation(error, namesFlag: false))
        }
    }

    private func bytes() throws -> [UInt8] {
        guard let publicKey else { return [] }
        guard let checksum = try? Checksum("sha256:\(publicKey)") else {
            throw ValidationError(catalog.text("--public-key must be 64 hexadecimal digits."))
        }
        return checksum.digest
    }

    func run() throws {
        let (key, bytes) = (try key(), try bytes())
        let request = Program.require(json: output.json) { () throws(CommandFailure) in
            var request = try requests.request(for: url)
            let folder = try directory.map { path throws(CommandFailure) in try LocalPath.absolute(path) }
            if parents, let folder { try LocalPath.makeFolder(folder) }
            request.set(\.directory, to: folder)
            return request
        }
        let cookie = output.json ? nil : Self.firstToExpire(request.cookies, at: url)
        Program.run(json: output.json) { client in
            let asset: AssetReference
            do throws(ClientError) {
                asset = try await client.registerAsset(key, manifest: url, update: update, publicKey: bytes, request)
            } catch {
                throw CommandFailure(error, about: .asset(AssetReference(key))).namingParents(error).suggestingScheme(for: url)
            }
            let description = try await client.describe(asset)
            Output.write(output.json ? description.json.text + "\n" : description.path + "\n")
            if let cookie {
                let expiry = Clock.text(WallTime(microseconds: cookie.expiry *| 1_000_000))
                Output.complain(
                    catalog.text(
                        "the first cookie for %1$s expires at %2$s; register the asset again with fresh cookies before that",
                        cookie.domain, expiry))
            }
            return .success
        }
    }

    /// The cookie for the manifest's site that expires first; nil: none expires. A file of cookies may have those of many other sites.
    private static func firstToExpire(_ cookies: [Cookie], at url: String) -> Cookie? {
        guard let site = (try? DownloadURL(url)).map({ Cookie.site(of: $0.host) }) else { return nil }
        return cookies.filter { $0.expiry > 0 && Cookie.site(of: $0.domain) == site }.min { $0.expiry < $1.expiry }
    }
}

struct AssetCheck: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check", abstract: "Ask the server for the latest version.",
        discussion: "Prints the latest version. With --exit-code, the exit status is 4 if it is not newer than the installed one.")

    @Argument(
        help: ArgumentHelp("The asset.", valueName: "app/name"), completion: AssetReference.completion, transform: AssetReference.parse)
    var asset: AssetReference
    @Flag(help: "Exit with 4 if there is no newer version.") var exitCode = false
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json, about: .asset(asset)) { client in
            let (isNewer, version) = try await client.check(asset)
            Output.write(
                output.json ? JSON.object([("newer", .bool(isNewer)), ("version", .string(version))]).text + "\n" : version + "\n")
            return isNewer || !exitCode ? .success : .unchanged
        }
    }
}

struct AssetUpdate: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "update", abstract: "Bring the latest version, and print the path.",
        discussion: """
            Waits until the versions are ready, and then prints the paths, one a line. Meanwhile a terminal shows the stages: checking, \
            downloading, verifying, unpacking, ready. Elsewhere standard error gets lines: APP/NAME and one of checking, downloading, progress, \
            paused, waiting-unmetered, verifying, extracting, ready.

            Ctrl-C ends the command at once, and leaves the update to the service. “todoku asset cancel” cancels it.
            """)

    @Argument(
        help: ArgumentHelp("The assets.", valueName: "app/name"), completion: AssetReference.completion, transform: AssetReference.parse)
    var assets: [AssetReference]
    @Flag(help: "Also bring back the version that a rollback has left.") var force = false
    @Flag(name: .shortAndLong, help: "Print the paths and errors only.") var quiet = false
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json, handlesInterrupt: true) { client in
            let follower = AssetFollower(client, assets, json: output.json, isQuiet: quiet)
            let interrupt = Interrupt(follower)
            let status = try await follower.follow(force: force)
            interrupt.end()
            return status
        }
    }
}

struct AssetRollback: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rollback", abstract: "Go back to the version before, and print the path.",
        discussion: "An update does not bring back the version that was left, until the manifest names another.")

    @Argument(
        help: ArgumentHelp("The asset.", valueName: "app/name"), completion: AssetReference.completion, transform: AssetReference.parse)
    var asset: AssetReference
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json, about: .asset(asset)) { client in
            let path = try await client.rollBack(asset)
            Output.write(output.json ? JSON.object([("path", .string(path))]).text + "\n" : path + "\n")
            return .success
        }
    }
}

struct AssetCancel: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel", abstract: "Stop a check or an update, and delete what it has downloaded.")

    @Argument(
        help: ArgumentHelp("The assets.", valueName: "app/name"), completion: AssetReference.completion, transform: AssetReference.parse)
    var assets: [AssetReference]
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json) { client in
            // A failure is reported, and the next asset is tried.
            var status = ExitStatus.success
            for asset in assets {
                do throws(ClientError) { try await client.cancel(asset) } catch {
                    status = status.and(Program.report(CommandFailure(error, about: .asset(asset)), json: output.json))
                }
            }
            return status
        }
    }
}

struct AssetList: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "list", abstract: "List the registered assets.")

    @Option(help: "Only those of this application.") var app = ""
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json) { client in
            var descriptions: [AssetDescription] = []
            for asset in try await client.assets(of: app) {
                do throws(ClientError) { descriptions.append(try await client.describe(asset)) } catch {
                    // The asset may have been unregistered since it was listed.
                    guard error.cause == .unknownDownload else { throw error }
                }
            }
            guard !output.json else {
                Output.write(JSON.array(descriptions.map(\.json)).text + "\n")
                return .success
            }
            guard !descriptions.isEmpty else {
                if Terminal.errorsAreSeen { Output.writeError(catalog.text("No asset is registered.") + "\n") }
                return .success
            }
            Output.write(Table.of(descriptions).text(width: Terminal.current?.columns))
            return .success
        }
    }
}

struct AssetShow: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "show", abstract: "Show all details of an asset.")

    @Argument(
        help: ArgumentHelp("The asset.", valueName: "app/name"), completion: AssetReference.completion, transform: AssetReference.parse)
    var asset: AssetReference
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json, about: .asset(asset)) { client in
            var description = try await client.describe(asset)
            guard !output.json else {
                Output.write(description.json.text + "\n")
                return .success
            }
            if description.stage == .downloading, let download = description.download, let now = try? await client.describe(download) {
                description.progress = AssetDescription.Progress(done: now.received, total: now.total)
            }
            Output.write(description.text())
            return .success
        }
    }
}

struct AssetRemove: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Stop keeping an asset current.",
        discussion: "The installed version stays, unless you say --delete-data.")

    @Argument(
        help: ArgumentHelp("The asset.", valueName: "app/name"), completion: AssetReference.completion, transform: AssetReference.parse)
    var asset: AssetReference
    @Flag(help: "Delete the installed version, too.") var deleteData = false
    @OptionGroup var output: OutputArguments

    func run() throws {
        Program.run(json: output.json, about: .asset(asset)) { client in
            try await client.unregisterAsset(asset, deleteData: deleteData)
            return .success
        }
    }
}

extension AssetDescription {
    fileprivate var members: [(String, String)] {
        [
            ("app", app), ("name", name), ("manifest-url", manifestURL), ("installed-version", installedVersion),
            ("latest-version", latestVersion), ("stage", stage.name), ("status", status), ("path", path),
            ("download", download?.path ?? ""),
            ("error", error?.message ?? ""),
        ]
    }

    /// A line for each known fact.
    func text(_ catalog: Catalog = todoku.catalog) -> String {
        let labels = [
            catalog.text("app"), catalog.text("name"), catalog.text("manifest-url"), catalog.text("installed-version"),
            catalog.text("latest-version"), catalog.text("stage"), catalog.text("status"), catalog.text("path"), catalog.text("download"),
            catalog.text("error"),
        ]
        return zip(labels, members).filter { !$1.1.isEmpty }.map { label, member in
            let text =
                switch member.0 {
                case "stage": catalog.spoken == .english ? stage.name : catalog.stage(stage)
                case "status": catalog.status(self)
                case "error": error.map { catalog.explanation(name: $0.name, $0.message) } ?? member.1
                default: member.1
                }
            return TerminalText.padded(label, to: 18) + TerminalText.plain(text) + "\n"
        }.joined()
    }

    var json: JSON { .object(members.map { ($0, .string($1)) }) }
}
