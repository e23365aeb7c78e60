internal import DownloadService
internal import Logging

/// The parsed command line. Parsed by hand: the daemon starts on a client's first call, and a parser library would double that time.
enum Arguments {
    case run(ServiceOptions)
    case say(String)
    case refuse(String)

    static let help = """
        Usage: todokud [OPTION…]
        The download service of the desktop session. D-Bus starts it on demand; start it by hand for experiments only.

          --if-pending             exit at once if nothing is pending (for login)
          --if-due                 start the service by D-Bus if a check of an asset is due (for a timer)
          --allow-hidden-folders   accept destinations in hidden folders
          --idle-exit SECONDS      exit after this time with nothing to do (30; 1 to 86400)
          --toast-keep SECONDS     keep running this long for a click on a toast (600; 1 to 86400)
          --log-level LEVEL        trace, debug, info, notice, warning, error, critical (notice)
          --version                print the version
          --help                   print this help

        See todokud(8).
        """

    static func parse(_ arguments: [String]) -> Arguments {
        var options = ServiceOptions()
        var level = Logger.Level.notice
        var rest = arguments[...]
        while let argument = rest.popFirst() {
            let parts = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            func value() -> String? { parts.count == 2 ? parts[1] : rest.popFirst() }
            switch parts[0] {
            case "--if-pending" where parts.count == 1: options.ifPending = true
            case "--if-due" where parts.count == 1: options.ifDue = true
            case "--allow-hidden-folders" where parts.count == 1: options.allowsHiddenFolders = true
            case "--idle-exit", "--toast-keep":
                guard let seconds = value().flatMap({ Int($0) }), (1...86_400).contains(seconds) else {
                    return .refuse("\(parts[0]) needs a number of seconds from 1 to 86400")
                }
                if parts[0] == "--idle-exit" { options.idle = .seconds(seconds) } else { options.clickable = .seconds(seconds) }
            case "--log-level":
                guard let named = value().flatMap({ Logger.Level(rawValue: $0) }) else {
                    return .refuse("--log-level must be one of \(Logger.Level.allCases.map(\.rawValue).joined(separator: ", "))")
                }
                level = named
            case "--version" where parts.count == 1: return .say("todokud \(Service.version)")
            case "--help" where parts.count == 1: return .say(help)
            default: return .refuse("there is no option \(argument); see todokud --help")
            }
        }
        options.logger = Logger(label: "todokud") { StreamLogHandler.standardError(label: $0) }
        options.logger.logLevel = level
        return .run(options)
    }
}
