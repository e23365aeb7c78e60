public import DBus

/// The options of a download whose server may be silent for as long as the test needs. By default, the service gives up a server that has
/// been silent for half a minute, and a busy machine may need as long from one call of a test to the next.
public func patient(_ options: [String: Variant]) -> [String: Variant] { ["stall-timeout": .uint32(3_600_000)].merging(options) { $1 } }
