public import DBus

/// `org.freedesktop.Application` (Desktop Entry Specification 1.5, "D-Bus Activation"): the desktop calls it to start an application and to
/// pass clicks on.
///
/// The service implements it on the manager's object, and calls it on owners that it activates (option `activate`).
public enum Application {
    public static let interface = "org.freedesktop.Application"

    public static let activate = MethodOf(interface, "Activate", in: [String: Variant].self)
    public static let open = MethodOf(interface, "Open", in: [String].self, [String: Variant].self)
    public static let activateAction = MethodOf(interface, "ActivateAction", in: String.self, [Variant].self, [String: Variant].self)
}

/// The service's actions for `ActivateAction`.
public enum ApplicationAction: String, CaseIterable, Sendable {
    case open
    case showFolder = "show-folder"
    case retry
    case openFolder = "open-folder"
    case pauseAll = "pause-all"
    case resumeAll = "resume-all"

    /// Whether the action has an object path as its parameter: the object on which it acts.
    public var isAboutObject: Bool {
        switch self {
        case .open, .showFolder, .retry: true
        case .openFolder, .pauseAll, .resumeAll: false
        }
    }
}
