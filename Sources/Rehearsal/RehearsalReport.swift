/// What happened in a rehearsal.
package struct RehearsalReport: Sendable {
    /// Calls of one method by the command and what it started.
    package struct Call: Equatable, Sendable {
        /// `Download`. A method of another interface begins with that interface's last word: `Properties.Get`.
        package let member: String
        package var count = 0
        /// How often each error was the answer.
        package var errors: [String: Int] = [:]
    }

    package struct Request: Equatable, Sendable {
        /// `-`: the bytes were no request.
        package let method: String
        package let path: String
        /// The field `Range`.
        package let range: String?
        package let status: Int
    }

    /// One end of a download.
    package struct End: Equatable, Sendable {
        /// finished, failed or cancelled
        package let outcome: String
        /// The name of the error and its sentence; empty if the download finished.
        package let error: String
        package let message: String
    }

    package struct Download: Equatable, Sendable {
        /// The object path.
        package let path: String
        /// The reasons for which the download waited, in order. The same reason twice in a row is listed once.
        package var waits: [String] = []
        /// More than one if somebody called `Retry`.
        package var ends: [End] = []

        package init(path: String) { self.path = path }
    }

    package var calls: [Call] = []
    package var requests: [Request] = []
    /// The number of all requests. `requests` keeps the first of them.
    package var requestCount = 0
    /// In the order in which the service added the downloads.
    package var downloads: [Download] = []
    /// How often the service was started.
    package var serviceStarts = 0
    /// How often the fault of the scenario happened.
    package var played: UInt64 = 0
}
