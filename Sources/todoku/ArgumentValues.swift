public import ArgumentParser
public import DownloadModel
public import TodokuClient

// How the contract's values are written at a command line.

extension DownloadReference: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}

extension BatchReference: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}

extension DownloadDescription.State: ExpressibleByArgument {
    public init?(argument: String) {
        guard Self.allValueStrings.contains(argument) else { return nil }
        self.init(argument)
    }
    public static var allValueStrings: [String] {
        ["queued", "waiting", "active", "paused", "verifying", "finished", "failed", "cancelled"]
    }
}

extension ExistingFilePolicy: ExpressibleByArgument {}
extension NotifyPolicy: ExpressibleByArgument {}
