internal import Glibc

/// Why a rehearsal cannot be made: one English sentence without a full stop, which names the thing.
package struct RehearsalError: Error, Equatable, CustomStringConvertible {
    package let message: String
    package init(_ message: String) { self.message = message }
    package var description: String { message }

    /// A failed system call about a file: “/tmp/x” cannot be made: No space left on device.
    static func of(_ path: String, _ what: String, _ code: Int32) -> RehearsalError {
        RehearsalError("“\(path)” \(what): \(String(cString: strerror(code)))")
    }
}
