internal import CDBus

/// One D-Bus message. libdbus counts references atomically; a message that has been sent is never changed.
public final class Message: Sendable {
    public enum Kind: Sendable { case call, reply, error, signal }

    // The pointer never changes, and libdbus' reference count is atomic. The message itself is used by one thread at a time, because even
    // reading changes it: libdbus notes where header fields are, and swaps bytes of the other order. Messages that are sent or received
    // are used on the bus thread only: `Connection`, all handlers and `LongAnswer` are isolated to `BusActor`. Messages of `bytes(of:)` and
    // `value(_:from:)` stay in that call.
    nonisolated(unsafe) let raw: OpaquePointer

    /// Adopts the caller's reference (+1).
    init(adopting raw: OpaquePointer) { self.raw = raw }

    /// Retains a reference of its own (the caller's is lent, +0).
    init(retaining raw: OpaquePointer) { self.raw = dbus_message_ref(raw) }

    deinit { dbus_message_unref(raw) }

    public var kind: Kind {
        switch dbus_message_get_type(raw) {
        case DBUS_MESSAGE_TYPE_METHOD_CALL: .call
        case DBUS_MESSAGE_TYPE_METHOD_RETURN: .reply
        case DBUS_MESSAGE_TYPE_ERROR: .error
        default: .signal
        }
    }

    public var path: String { text(dbus_message_get_path(raw)) }
    /// Empty if the caller named none.
    public var interface: String { text(dbus_message_get_interface(raw)) }
    public var member: String { text(dbus_message_get_member(raw)) }
    /// The sender's unique name. The bus daemon sets it, so a sender cannot forge it.
    public var sender: String { text(dbus_message_get_sender(raw)) }
    /// The receiver's name; empty for a broadcast.
    public var destination: String { text(dbus_message_get_destination(raw)) }
    /// The serial of the call that this message answers; 0: it answers none.
    public var replySerial: UInt32 { dbus_message_get_reply_serial(raw) }
    public var signature: String { text(dbus_message_get_signature(raw)) }
    /// Whether the message is addressed to one connection, not broadcast to subscribers.
    var isAddressed: Bool { dbus_message_get_destination(raw) != nil }
    public var serial: UInt32 { dbus_message_get_serial(raw) }
    public var wantsReply: Bool { dbus_message_get_no_reply(raw) == 0 }

    /// Size on the wire in bytes, and how many descriptors came with the message. Marshals a copy of the message.
    var weight: (bytes: Int, descriptors: Int) {
        var pointer: UnsafeMutablePointer<CChar>?
        var count: Int32 = 0
        guard dbus_message_marshal(raw, &pointer, &count) != 0, let pointer else { return (Int(Int32.max), Self.mostDescriptors) }
        defer { dbus_free(pointer) }
        let wire = UnsafeRawBufferPointer(start: pointer, count: Int(count))
        return (wire.count, dbus_message_contains_unix_fds(raw) == 0 ? 0 : Self.descriptorCount(wire) ?? Self.mostDescriptors)
    }

    /// Most descriptors that one message brings on Linux (`SCM_MAX_FD`, unix(7)).
    private static let mostDescriptors = 253

    /// The header field `UNIX_FDS` of a message on the wire (D-Bus specification, "Header Fields"). libdbus has no function for it.
    ///
    /// - Returns: nil for a field of a type that the specification does not have. The bus removes such fields.
    private static func descriptorCount(_ wire: UnsafeRawBufferPointer) -> Int? {
        func number(_ place: Int) -> Int? {
            guard place + 4 <= wire.count else { return nil }
            let value = wire.loadUnaligned(fromByteOffset: place, as: UInt32.self)
            return Int(wire[0] == UInt8(ascii: "l") ? UInt32(littleEndian: value) : UInt32(bigEndian: value))
        }
        guard wire.count > 16, let length = number(12) else { return nil }
        let end = min(16 + length, wire.count)
        var place = 16
        while place + 5 <= end {
            // A field is its code, its type as a signature of one letter, and its value.
            let (code, type) = (wire[place], wire[place + 2])
            let value = place + 4
            switch type {
            case UInt8(ascii: "u"):
                if code == 9 { return number(value) }
                place = value + 4
            case UInt8(ascii: "g"): place = value + Int(wire[value]) + 2
            case UInt8(ascii: "s"), UInt8(ascii: "o"):
                guard let length = number(value) else { return nil }
                place = value + 4 + length + 1
            default: return nil
            }
            place = (place + 7) & ~7
        }
        return nil
    }

    private func text(_ pointer: UnsafePointer<CChar>?) -> String { pointer.map { String(cString: $0) } ?? "" }

    /// nil unless this is an error.
    public var error: DBusError? {
        guard kind == .error else { return nil }
        var reader = Reader(reading: raw)
        let message = reader.type == Int(kString) ? (try? String(from: &reader)) ?? "" : ""
        return DBusError(text(dbus_message_get_error_name(raw)), message)
    }

    /// Reads the arguments by `body`.
    public func read<R: ~Copyable>(_ body: (inout Reader) throws(DBusError) -> R) throws(DBusError) -> R {
        var reader = Reader(reading: raw)
        return try body(&reader)
    }

    /// Reads one argument.
    public func first<V: DBusValue>(_: V.Type = V.self) throws(DBusError) -> V { try read(V.init(from:)) }

    /// A copy of this call without its arguments, enough to answer it.
    func withoutArguments() -> Message {
        let bare = Message.allocated(dbus_message_new(DBUS_MESSAGE_TYPE_METHOD_CALL))
        dbus_message_set_path(bare, dbus_message_get_path(raw))
        dbus_message_set_interface(bare, dbus_message_get_interface(raw))
        dbus_message_set_member(bare, dbus_message_get_member(raw))
        dbus_message_set_sender(bare, dbus_message_get_sender(raw))
        dbus_message_set_no_reply(bare, dbus_message_get_no_reply(raw))
        dbus_message_set_serial(bare, dbus_message_get_serial(raw))
        return Message(adopting: bare)
    }

    static func call(to destination: String, path: String, interface: String, member: String) -> Message {
        Message(adopting: allocated(dbus_message_new_method_call(destination, path, interface, member)))
    }

    /// Makes the bus start no program for this call. Only before it is sent.
    func startsNothing() { dbus_message_set_auto_start(raw, 0) }

    public static func signal(path: String, interface: String, member: String, _ write: (inout Writer) -> Void) -> Message {
        let raw = path.withCString { path in
            interface.withCString { interface in member.withCString { dbus_message_new_signal(path, interface, $0) } }
        }
        let message = Message(adopting: allocated(raw))
        var writer = Writer(appendingTo: message.raw)
        write(&writer)
        return message
    }

    func emptyReply() -> Message { Message(adopting: Message.allocated(dbus_message_new_method_return(raw))) }

    /// The answer that `write` writes. The error `LimitsExceeded` instead, if the bus would disconnect the sender of the answer, or if the
    /// answer lacks a descriptor.
    func reply(_ write: (inout Writer) -> Void) -> Message {
        let message = emptyReply()
        var writer = Writer(appendingTo: message.raw)
        write(&writer)
        if let fault = writer.fault(of: "the answer of \(member)", advice: "ask for less") { return reply(fault) }
        return message
    }

    func reply(_ error: DBusError) -> Message {
        // libdbus aborts on a malformed name. Our names come from tables; other programs' names are checked here.
        let name = dbus_validate_error_name(error.name, nil) != 0 ? error.name : "org.freedesktop.DBus.Error.Failed"
        return Message(adopting: Message.allocated(dbus_message_new_error(raw, name, error.bounded.message)))
    }

    /// libdbus returns NULL only when memory is exhausted, which the process cannot survive.
    private static func allocated(_ raw: OpaquePointer?) -> OpaquePointer {
        guard let raw else { preconditionFailure("libdbus is out of memory") }
        return raw
    }
}

extension Message {
    /// A value in the wire format, for a file. `value(_:from:)` decodes it.
    public static func bytes(of value: some DBusValue) -> [UInt8] {
        let message = signal(path: "/", interface: "org.todoku.Stored", member: "Value") { value.write(to: &$0) }
        dbus_message_set_serial(message.raw, 1)  // marshalling requires a serial
        var pointer: UnsafeMutablePointer<CChar>?
        var count: Int32 = 0
        guard dbus_message_marshal(message.raw, &pointer, &count) != 0, let pointer else { return [] }
        defer { dbus_free(pointer) }
        return pointer.withMemoryRebound(to: UInt8.self, capacity: Int(count)) { Array(UnsafeBufferPointer(start: $0, count: Int(count))) }
    }

    /// nil unless the bytes are from `bytes(of:)` with this type.
    public static func value<V: DBusValue>(_: V.Type = V.self, from bytes: [UInt8]) -> V? {
        guard let count = Int32(exactly: bytes.count) else { return nil }
        let raw = bytes.withUnsafeBytes { dbus_message_demarshal($0.baseAddress?.assumingMemoryBound(to: CChar.self), count, nil) }
        guard let raw else { return nil }
        let message = Message(adopting: raw)
        return message.signature == V.signature ? try? message.first(V.self) : nil
    }
}
