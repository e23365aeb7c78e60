/// One line of an examination.
public struct Finding: Equatable, Sendable {
    public enum Verdict: String, CaseIterable, Sendable {
        /// The thing is there, and in order.
        case found
        /// The thing is not there. Todoku works without it, but does less.
        case missing
        /// Todoku does not work as it should until this is mended.
        case wrong
    }

    /// What was examined, in the order of the lines.
    public enum Subject: String, CaseIterable, Sendable {
        case bus, activation, service, unit, notifications, tray, dock, jobs, portal, sound, opening, sleep, network, proxy, certificates
        case downloadFolder = "download-folder"
        case stateFolder = "state-folder"
        case disk, database, library
    }

    public let subject: Subject
    public let verdict: Verdict
    /// A clause without a final stop.
    public let text: Phrase
    /// What to do, as one sentence or two; nil: nothing. What is missing or wrong always has advice.
    public let advice: Phrase?

    init(_ subject: Subject, _ verdict: Verdict, _ text: Phrase, advice: Phrase? = nil) {
        (self.subject, self.verdict, self.text, self.advice) = (subject, verdict, text.withoutStop, advice)
    }
}

extension Finding.Verdict {
    /// The raw value, for people.
    public var name: Phrase {
        switch self {
        case .found: Phrase("found")
        case .missing: Phrase("missing")
        case .wrong: Phrase("wrong")
        }
    }
}

extension Finding.Subject {
    /// The raw value, for people.
    public var name: Phrase {
        switch self {
        case .bus: Phrase("bus")
        case .activation: Phrase("activation")
        case .service: Phrase("service")
        case .unit: Phrase("unit")
        case .notifications: Phrase("notifications")
        case .tray: Phrase("tray")
        case .dock: Phrase("dock")
        case .jobs: Phrase("jobs")
        case .portal: Phrase("portal")
        case .sound: Phrase("sound")
        case .opening: Phrase("opening")
        case .sleep: Phrase("sleep")
        case .network: Phrase("network")
        case .proxy: Phrase("proxy")
        case .certificates: Phrase("certificates")
        case .downloadFolder: Phrase("download-folder")
        case .stateFolder: Phrase("state-folder")
        case .disk: Phrase("disk")
        case .database: Phrase("database")
        case .library: Phrase("library")
        }
    }
}
