/// Why data was not packed, signed or served: one English sentence without a full stop, which names the file.
package struct PackingError: Error, Equatable, CustomStringConvertible {
    package let message: String
    package init(_ message: String) { self.message = message }
    package var description: String { message }
}
