internal import DBus
internal import EventLoop

/// Asks programs on a bus. No question starts a program, and each has a time limit.
@BusActor struct BusProbe {
    /// The longest wait for one answer.
    nonisolated static let patience: Duration = .seconds(5)

    let connection: Connection

    init(_ connection: Connection) { self.connection = connection }

    /// The unique name of the owner of `name`; nil: none.
    func owner(of name: String) async -> String? { try? await ask(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, name) }

    /// The number of the process that owns `name`; nil: none, or the bus does not know.
    func process(of name: String) async -> UInt32? {
        try? await ask(BusDaemon.getConnectionUnixProcessID, on: BusDaemon.name, at: BusDaemon.path, name)
    }

    /// The names that the bus can start a program for.
    func activatableNames() async -> [String] {
        (try? await ask(BusDaemon.listActivatableNames, on: BusDaemon.name, at: BusDaemon.path, ())) ?? []
    }

    func ask<In, Out>(
        _ method: MethodOf<In, Out>, on name: String, at path: ObjectPath, _ arguments: In
    ) async throws(DBusError) -> Out {
        try await connection.call(method, on: name, at: path, arguments, timeout: Self.patience, starts: false)
    }

    /// nil if the program has no such property, or does not answer.
    func property(_ property: String, of interface: String, on name: String, at path: ObjectPath) async -> Variant? {
        try? await ask(Standard.get, on: name, at: path, (interface, property))
    }

    /// "dunst (process 42)", the owner of `name`.
    func describeOwner(of name: String) async -> Phrase {
        guard let number = await process(of: name) else { return Phrase("a program") }
        let process = await Pool.programs.value(within: Self.patience) { ObservedProcess(number) }
        let program = process?.program?.split(separator: "/").last.map { Phrase(foreign: String($0)) } ?? Phrase("a program")
        return Phrase("\(program) (process \(number))")
    }
}
