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

/// What is steered: a download or a batch. A number may be that of either, for they are of one sequence.
struct Target: ExpressibleByArgument {
    /// nil for the object path of a batch.
    let download: DownloadReference?
    /// nil for APP/TOKEN, and for the object path of a download.
    let batch: BatchReference?

    init?(argument: String) {
        (download, batch) = (DownloadReference(argument), BatchReference(argument))
        if download == nil, batch == nil { return nil }
    }

    init(_ download: DownloadReference) { (self.download, batch) = (download, nil) }
}

/// A place in the queue as people count: `first`, 1 (the same), 2 …, `last`.
struct Place: ExpressibleByArgument {
    /// 0 = next.
    let position: UInt32

    init?(argument: String) {
        switch argument {
        case "first": position = 0
        case "last": position = .max
        default:
            guard let number = UInt32(argument), number > 0 else { return nil }
            position = number - 1
        }
    }
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
