/// The browser that started the program, as the program's arguments tell.
///
/// A browser starts a native-messaging host only for the extensions that the host's manifest names. Any other program can start the host,
/// too, but such a program is the user's and could call the service itself.
enum Caller: Equatable, Sendable {
    /// Chromium and its kin: one argument, the origin of the extension.
    case chromium
    /// Firefox and its kin: two arguments, the path of the host's manifest and the id of the extension.
    case firefox

    /// The id that Chromium computes from the `key` in data/browser/chromium/manifest.json.
    static let chromiumExtension = "cacmadanedhfdkjbogobdmpkjcncenap"
    /// The id in data/browser/firefox/manifest.json.
    static let firefoxExtension = "browser@todoku.org"

    /// nil: the arguments name no extension, or another one.
    ///
    /// - Parameter arguments: those after the program's name. Chromium adds others on some systems, which are ignored.
    init?(arguments: [String]) {
        if arguments.first == "chrome-extension://\(Self.chromiumExtension)/" {
            self = .chromium
        } else if arguments.count >= 2, arguments[0].utf8.first == UInt8(ascii: "/"), arguments[1] == Self.firefoxExtension {
            self = .firefox
        } else {
            return nil
        }
    }

    /// The option `app` of the downloads: the application id under which the browser is published.
    var app: String {
        switch self {
        case .chromium: "org.chromium.Chromium"
        case .firefox: "org.mozilla.firefox"
        }
    }
}
