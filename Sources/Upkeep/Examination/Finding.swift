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
    /// An English clause without a final stop.
    public let text: String
    /// What to do, as one English sentence; nil: nothing. What is missing or wrong always has one.
    public let advice: String?

    init(_ subject: Subject, _ verdict: Verdict, _ text: String, advice: String? = nil) {
        // Messages of other programs, which end the text, may be sentences.
        let clause = text.hasSuffix(".") ? String(text.dropLast()) : text
        (self.subject, self.verdict, self.text, self.advice) = (subject, verdict, clause, advice)
    }
}
