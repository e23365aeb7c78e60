public import DBus

/// `org.freedesktop.Application` (Desktop Entry Specification 1.5, "D-Bus Activation"): how the desktop starts an application, and hands
/// clicks on.
///
/// The service has it on the manager's object; the same calls go to owners that are activated (option `activate`).
public enum Application {
    public static let interface = "org.freedesktop.Application"

    public static let activate = MethodOf(interface, "Activate", in: [String: Variant].self)
    public static let open = MethodOf(interface, "Open", in: [String].self, [String: Variant].self)
    public static let activateAction = MethodOf(interface, "ActivateAction", in: String.self, [Variant].self, [String: Variant].self)
}

/// The actions that `ActivateAction` of the service takes.
public enum ApplicationAction: String, CaseIterable, Sendable {
    case open
    case showFolder = "show-folder"
    case retry
    case openFolder = "open-folder"
    case pauseAll = "pause-all"
    case resumeAll = "resume-all"

    /// Whether it is about one object, whose path is its parameter.
    public var isAboutObject: Bool {
        switch self {
        case .open, .showFolder, .retry: true
        case .openFolder, .pauseAll, .resumeAll: false
        }
    }
}
