public import DBus
public import DownloadModel

/// Names and object paths on the bus.
public enum BusName {
    public static let service = "org.todoku.Downloader1"
    public static let managerPath = ObjectPath("/org/todoku/Downloader1")
    public static let downloadsPath = "/org/todoku/Downloader1/download"
    public static let batchesPath = "/org/todoku/Downloader1/batch"
    public static let tokensPath = "/org/todoku/Downloader1/download/by_token"

    public static let assetsPath = "/org/todoku/Downloader1/asset"

    public static func path(ofAsset key: AssetKey) -> ObjectPath {
        ObjectPath("\(assetsPath)/\(ObjectPath.escape(key.app))/\(ObjectPath.escape(key.name))")
    }

    /// The object path at which the application with this bus name implements `org.freedesktop.Application` (Desktop Entry Specification,
    /// "D-Bus Activation").
    public static func applicationPath(_ name: String) -> ObjectPath {
        ObjectPath(
            "/"
                + name.split(separator: ".").map { $0.split(separator: "-", omittingEmptySubsequences: false).joined(separator: "_") }
                .joined(separator: "/"))
    }

    public static func path(of number: DownloadNumber) -> ObjectPath { ObjectPath("\(downloadsPath)/\(number)") }

    public static func path(ofBatch number: BatchNumber) -> ObjectPath { ObjectPath("\(batchesPath)/\(number)") }

    /// The path of a download with a token. The caller knows it before the call.
    public static func path(app: String, token: String) -> ObjectPath {
        ObjectPath("\(tokensPath)/\(ObjectPath.escape(app))/\(ObjectPath.escape(token))")
    }

    /// The path in signals about a download.
    public static func path(of record: DownloadRecord) -> ObjectPath {
        if let token = record.options.token { path(app: record.options.app, token: token) } else { path(of: record.number) }
    }
}
