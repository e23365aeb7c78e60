internal import ArgumentParser
internal import DownloadModel
internal import Localization
internal import TodokuClient

struct SettingsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "settings", abstract: "Show or change the service's settings.",
        discussion: """
            max-active         most downloads active at a time; auto: 4 large ones, and up to 60 small ones beside them; 0: no limit
            max-per-host       most connections to one host at a time; 0: no limit
            speed-limit        bytes per second of all downloads together, such as 2MiB; 0 or none: no limit
            default-directory  folder for downloads that name no folder; empty: the session's download folder
            language           language of toasts and tray: ja, en, or auto (the session's)
            disk-reserve       space left free on each disk, such as 500MiB; auto: 1 % of the disk, at most 1 GiB; none
            badge              number on the dock icon: remaining (downloads) or percent
            sandbox-private    whether sandboxed apps may reach this machine and private networks: true or false

            EXAMPLES:
              todoku settings
              todoku settings speed-limit
              todoku settings speed-limit 2MiB
            """)

    enum Name: String, CaseIterable, ExpressibleByArgument, Sendable {
        case maxActive = "max-active"
        case maxPerHost = "max-per-host"
        case speedLimit = "speed-limit"
        case defaultDirectory = "default-directory"
        case diskReserve = "disk-reserve"
        case language, badge
        case sandboxPrivate = "sandbox-private"
    }

    @Argument(help: "Which setting.") var name: Name?
    @Argument(help: "The new value.") var value: String?
    @OptionGroup var output: OutputArguments

    func validate() throws { if let name, let value { _ = try Self.setting(name, value) } }

    func run() throws {
        Program.run(json: output.json) { client in
            if let name, let value {
                try await client.set(try Self.setting(name, value))
                return .success
            }
            let settings = try await client.status().settings
            if output.json {
                let members = Name.allCases.filter { name == nil || name == $0 }.map { ($0.rawValue, Self.json($0, settings)) }
                Output.write(JSON.object(members).text + "\n")
            } else if let name {
                Output.write(Self.text(name, settings) + "\n")
            } else {
                for name in Name.allCases {
                    Output.write(TerminalText.padded(name.rawValue, to: 19) + TerminalText.plain(Self.text(name, settings)) + "\n")
                }
            }
            return .success
        }
    }

    static func setting(_ name: Name, _ value: String) throws -> ServiceSetting {
        func count() throws -> UInt32 {
            if let count = UInt32(value) { return count }
            throw ValidationError(
                catalog.text(
                    "%1$s must be a whole number from 0 (no limit) to %2$s, not “%3$s”.", name.rawValue, String(UInt32.max), value))
        }
        func mostActive() throws -> UInt32 {
            if value == automatic { return ServiceSettings.automaticMaxActive }
            if let count = UInt32(value), count != ServiceSettings.automaticMaxActive { return count }
            throw ValidationError(
                catalog.text("max-active must be auto, or a whole number from 0 (no limit) to 4294967294, not “%1$s”.", value))
        }
        func choice<C: RawRepresentable & CaseIterable>(_: C.Type) throws -> C where C.RawValue == String {
            if let choice = C(rawValue: value) { return choice }
            let choices = C.allCases.map(\.rawValue).joined(separator: ", ")
            throw ValidationError(catalog.text("%1$s must be one of %2$s.", name.rawValue, choices))
        }
        func truth() throws -> Bool {
            if let truth = Bool(value) { return truth }
            throw ValidationError(catalog.text("%1$s must be true or false.", name.rawValue))
        }
        func reserve() throws -> DiskReserve {
            if value == automatic { return .automatic }
            guard let bytes = value == "none" ? 0 : Amounts.bytes(value) else {
                throw ValidationError(catalog.text("disk-reserve must be a size such as 500MiB, auto or none, not “%1$s”.", value))
            }
            return .bytes(bytes)
        }
        return switch name {
        case .maxActive: .maxActive(try mostActive())
        case .maxPerHost: .maxPerHost(try count())
        case .speedLimit: .speedLimit(try Amounts.parseSpeedWithUnit(value))
        case .defaultDirectory: .defaultDirectory(value.isEmpty ? "" : try LocalPath.absolute(value))
        case .diskReserve: .diskReserve(try reserve())
        case .language: .language(try choice(Language.self))
        case .badge: .badge(try choice(BadgeContent.self))
        case .sandboxPrivate: .privateOpenToSandbox(try truth())
        }
    }

    /// The word for settings whose value the service chooses.
    private static let automatic = "auto"

    /// The value as `setting` reads it.
    static func text(_ name: Name, _ settings: ServiceSettings) -> String {
        switch name {
        case .maxActive: settings.maxActive == ServiceSettings.automaticMaxActive ? automatic : String(settings.maxActive)
        case .maxPerHost: String(settings.maxPerHost)
        case .speedLimit: Amounts.exactText(settings.speedLimit)
        case .defaultDirectory: settings.defaultDirectory
        case .diskReserve:
            switch settings.diskReserve {
            case .automatic: automatic
            case .bytes(let bytes): Amounts.exactText(bytes)
            }
        case .language: settings.language.rawValue
        case .badge: settings.badge.rawValue
        case .sandboxPrivate: String(settings.isPrivateOpenToSandbox)
        }
    }

    private static func json(_ name: Name, _ settings: ServiceSettings) -> JSON {
        switch name {
        case .maxActive:
            settings.maxActive == ServiceSettings.automaticMaxActive ? .string(automatic) : .unsigned(UInt64(settings.maxActive))
        case .maxPerHost: .unsigned(UInt64(settings.maxPerHost))
        case .speedLimit: .unsigned(settings.speedLimit)
        case .defaultDirectory: .string(settings.defaultDirectory)
        case .diskReserve: settings.diskReserve == .automatic ? .string(automatic) : .unsigned(UInt64(settings.diskReserve.wire))
        case .language: .string(settings.language.rawValue)
        case .badge: .string(settings.badge.rawValue)
        case .sandboxPrivate: .bool(settings.isPrivateOpenToSandbox)
        }
    }
}
