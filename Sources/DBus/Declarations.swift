/// A method's name and types, declared once for both sides: the service writes a `Row` for it, a client calls it. A mismatch does not
/// compile.
public struct MethodOf<In: Sendable, Out: Sendable>: Sendable {
    public let interface: String
    public let name: String
    public let inSignature: String
    public let outSignature: String
    let readIn: @Sendable (inout Reader) throws(DBusError) -> In
    let readOut: @Sendable (inout Reader) throws(DBusError) -> Out
    let writeIn: @Sendable (In, inout Writer) -> Void
    let writeOut: @Sendable (Out, inout Writer) -> Void

    public init<each A: DBusValue, each B: DBusValue>(
        _ interface: String, _ name: String, in: repeat (each A).Type, out: repeat (each B).Type
    ) where In == (repeat each A), Out == (repeat each B) {
        (self.interface, self.name) = (interface, name)
        var text = ""
        repeat text += (each A).signature
        inSignature = text
        text = ""
        repeat text += (each B).signature
        outSignature = text
        readIn = { reader throws(DBusError) in (repeat try (each A)(from: &reader)) }
        readOut = { reader throws(DBusError) in (repeat try (each B)(from: &reader)) }
        writeIn = { values, writer in repeat (each values).write(to: &writer) }
        writeOut = { values, writer in repeat (each values).write(to: &writer) }
    }
}

/// A signal's name and types.
public struct SignalOf<Arguments: Sendable>: Sendable {
    public let interface: String
    public let name: String
    public let signature: String
    let write: @Sendable (Arguments, inout Writer) -> Void
    let readArguments: @Sendable (inout Reader) throws(DBusError) -> Arguments

    public init<each A: DBusValue>(_ interface: String, _ name: String, _: repeat (each A).Type) where Arguments == (repeat each A) {
        (self.interface, self.name) = (interface, name)
        var text = ""
        repeat text += (each A).signature
        signature = text
        write = { values, writer in repeat (each values).write(to: &writer) }
        readArguments = { reader throws(DBusError) in (repeat try (each A)(from: &reader)) }
    }

    /// The signal from the object at `path`.
    public func message(from path: ObjectPath, _ arguments: Arguments) -> Message {
        Message.signal(path: path.value, interface: interface, member: name) { write(arguments, &$0) }
    }

    /// The arguments, if `message` is this signal and well-formed.
    public func read(_ message: Message) -> Arguments? {
        guard message.kind == .signal, message.member == name, message.interface == interface, message.signature == signature else {
            return nil
        }
        return try? message.read(readArguments)
    }
}

/// A property's name and type.
public struct PropertyOf<Value: DBusBasic>: Sendable {
    /// Whether `PropertiesChanged` announces changes of the property (annotation `EmitsChangedSignal`).
    public enum Change: Sendable { case told, untold, constant }
    public let interface: String
    public let name: String
    public let isWritable: Bool
    public let change: Change

    public init(_ interface: String, _ name: String, _: Value.Type, writable: Bool = false, change: Change = .told) {
        (self.interface, self.name, isWritable, self.change) = (interface, name, writable, change)
    }
    public var signature: String { Value.signature }
}
