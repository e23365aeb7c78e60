/// The browser that started the program, by the program's arguments.
///
/// A browser starts a native-messaging host only for the extensions that the host's manifest names. Other programs of the user can start
/// the host, too. They gain nothing, because they can call the service themselves.
enum Caller: Equatable, Sendable {
    /// Chromium and browsers based on it: one argument, the origin of the extension.
    case chromium
    /// Firefox and browsers based on it: two arguments, the path of the host's manifest and the id of the extension.
    case firefox

    /// The id that Chromium computes from the `key` in data/browser/chromium/manifest.json.
    static let chromiumExtension = "cacmadanedhfdkjbogobdmpkjcncenap"
    /// The id in data/browser/firefox/manifest.json.
    static let firefoxExtension = "browser@todoku.org"

    /// nil: the arguments do not name our extension.
    ///
    /// - Parameter arguments: the arguments after the program's name. Chromium adds further arguments on some systems; they are ignored.
    init?(arguments: [String]) {
        if arguments.first == "chrome-extension://\(Self.chromiumExtension)/" {
            self = .chromium
        } else if arguments.count >= 2, arguments[0].utf8.first == UInt8(ascii: "/"), arguments[1] == Self.firefoxExtension {
            self = .firefox
        } else {
            return nil
        }
    }

    /// The option `app` of the downloads: the application id of the browser on Flathub.
    var app: String {
        switch self {
        case .chromium: "org.chromium.Chromium"
        case .firefox: "org.mozilla.firefox"
        }
    }
}
