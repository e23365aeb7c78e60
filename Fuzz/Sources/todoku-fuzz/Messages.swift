internal import DBus

/// Bytes as they may lie in the column `metadata`: as they are, or with a header before them that fits.
func fuzzMessage(_ bytes: [UInt8]) {
    checkMessage(bytes)
    var tape = Tape(bytes)
    let signature = tape.flag() ? tape.type(levels: 4) : ["a{sv}", "v", "a{ss}", "as", "(ssa{sv})"][tape.choice(5)]
    checkMessage(wrapped(tape.remaining(), signature))

    // What we can say ourselves comes back as it was said.
    tape = Tape(bytes)
    let value = tape.variant()
    let written = Message.bytes(of: value)
    guard let again = Message.value(Variant.self, from: written) else { return check(false, "\(value) does not come back") }
    check(Message.bytes(of: again) == written, "\(value) came back as \(again)")
}

private func checkMessage(_ bytes: [UInt8]) {
    roundTrip(Variant.self, bytes)
    roundTrip([String: Variant].self, bytes)
    roundTrip([String: String].self, bytes)
    roundTrip([String].self, bytes)
    roundTrip(Structure<String, String, [String: Variant]>.self, bytes)
}

/// What was read can be written, and reads as the same.
private func roundTrip<V: DBusValue>(_: V.Type, _ bytes: [UInt8]) {
    guard let value = Message.value(V.self, from: bytes) else { return }
    let written = Message.bytes(of: value)
    guard let again = Message.value(V.self, from: written) else { return check(false, "\(value) does not come back") }
    check(Message.bytes(of: again) == written, "\(value) came back as \(again)")
}

/// A signal with `body` (D-Bus specification, "Message Format"), little endian.
private func wrapped(_ body: [UInt8], _ signature: String) -> [UInt8] {
    var fields: [UInt8] = []
    func field(_ code: UInt8, _ type: String, _ value: String) {
        while !fields.count.isMultiple(of: 8) { fields.append(0) }
        fields += [code, 1] + Array(type.utf8) + [0]
        if type == "g" {
            fields.append(UInt8(clamping: value.utf8.count))
        } else {
            fields += number(value.utf8.count)
        }
        fields += Array(value.utf8) + [0]
    }
    field(1, "o", "/")
    field(2, "s", "org.todoku.Stored")
    field(3, "s", "Value")
    field(8, "g", signature)
    let length = fields.count
    while !fields.count.isMultiple(of: 8) { fields.append(0) }
    return [UInt8(ascii: "l"), 4, 0, 1] + number(body.count) + number(1) + number(length) + fields + body
}

private func number(_ value: Int) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) } }
