/// An option's value in a call: one case for each D-Bus type that an option may have.
public enum OptionValue: Equatable, Sendable {
    case text(String)
    case flag(Bool)
    case int32(Int32)
    case uint32(UInt32)
    case uint64(UInt64)
    case fields([HeaderField])
    case fieldList([HeaderField])
    case texts([String])
    case bytes([UInt8])
    /// `a{sv}`, marshalled as a D-Bus message.
    case dictionary([UInt8])

    /// The D-Bus signature of the value (D-Bus Specification, "Type System").
    public var signature: String {
        switch self {
        case .text: "s"
        case .flag: "b"
        case .int32: "i"
        case .uint32: "u"
        case .uint64: "t"
        case .fields: "a{ss}"
        case .fieldList: "a(ss)"
        case .texts: "as"
        case .bytes: "ay"
        case .dictionary: "a{sv}"
        }
    }
}

/// How a value of type `V` is encoded on the bus and in the database, and which values are valid.
struct OptionForm<V: Equatable & Sendable>: Sendable {
    /// The D-Bus signature of the value.
    let signature: String
    /// The signature of another form of the value; nil: there is none.
    var otherSignature: String?
    /// Decodes and checks the value of a call. The option's key is for the error's message.
    let decode: @Sendable (String, OptionValue) throws(Refusal) -> V
    let encode: @Sendable (V) -> OptionValue
    /// The text in the database.
    let text: @Sendable (V) -> String
    /// nil if `text` did not write this string.
    let parse: @Sendable (String) -> V?
}

extension OptionForm {
    /// This form, restricted to the values that `fault` accepts.
    ///
    /// - Parameter fault: the fault of a value, which completes "Option KEY …"; nil if the value is valid.
    func checked(_ fault: @escaping @Sendable (V) -> String?) -> OptionForm {
        OptionForm(signature: signature, otherSignature: otherSignature) { [decode] key, value throws(Refusal) in
            let value = try decode(key, value)
            if let fault = fault(value) { throw Refusal(.invalidOption, "Option \(key) \(fault)") }
            return value
        } encode: { [encode] in
            encode($0)
        } text: { [text] in
            text($0)
        } parse: { [parse] in
            parse($0)
        }
    }
}

extension OptionForm {
    /// A form for another type that is encoded like this one.
    ///
    /// - Parameter read: converts a value; throws `InvalidOption` if it is invalid for that type.
    fileprivate func written<W>(
        as read: @escaping @Sendable (String, V) throws(Refusal) -> W, back: @escaping @Sendable (W) -> V
    ) -> OptionForm<W> {
        OptionForm<W>(signature: signature) { [decode] key, value throws(Refusal) in
            try read(key, try decode(key, value))
        } encode: { [encode] in
            encode(back($0))
        } text: { [text] in
            text(back($0))
        } parse: { [parse] text in
            guard let value = parse(text) else { return nil }
            do throws(Refusal) { return try read("", value) } catch { return nil }
        }
    }
}

extension OptionForm where V == String {
    /// - Parameter most: the longest text, in bytes of UTF-8.
    static func text(most: Int = 1024) -> OptionForm {
        OptionForm(signature: "s") { key, value throws(Refusal) in
            guard case .text(let text) = value else { throw .wrongType(key, "s") }
            guard text.utf8.count <= most else { throw Refusal(.invalidOption, "Option \(key) is longer than \(most) bytes.") }
            guard !text.unicodeScalars.contains(where: { $0.value < 0x20 || $0.value == 0x7f }) else {
                throw Refusal(.invalidOption, "Option \(key) holds a line break or another control character.")
            }
            return text
        } encode: {
            .text($0)
        } text: {
            $0
        } parse: {
            $0
        }
    }

    /// This form, with a call's text converted by `read`. The database holds the converted text.
    func mapped(_ read: @escaping @Sendable (String) -> String) -> OptionForm {
        OptionForm(signature: signature) { [decode] key, value throws(Refusal) in
            read(try decode(key, value))
        } encode: { [encode] in
            encode($0)
        } text: { [text] in
            text($0)
        } parse: { [parse] in
            parse($0)
        }
    }
}

extension OptionForm where V == Bool {
    static var flag: OptionForm {
        OptionForm(signature: "b") { key, value throws(Refusal) in
            guard case .flag(let flag) = value else { throw .wrongType(key, "b") }
            return flag
        } encode: {
            .flag($0)
        } text: {
            String($0)
        } parse: {
            Bool($0)
        }
    }
}

extension OptionForm where V == Int32 {
    static var int32: OptionForm {
        OptionForm(signature: "i") { key, value throws(Refusal) in
            guard case .int32(let number) = value else { throw .wrongType(key, "i") }
            return number
        } encode: {
            .int32($0)
        } text: {
            String($0)
        } parse: {
            Int32($0)
        }
    }
}

extension OptionForm where V == UInt32 {
    static var uint32: OptionForm {
        OptionForm(signature: "u") { key, value throws(Refusal) in
            guard case .uint32(let number) = value else { throw .wrongType(key, "u") }
            return number
        } encode: {
            .uint32($0)
        } text: {
            String($0)
        } parse: {
            UInt32($0)
        }
    }
}

extension OptionForm where V == UInt64 {
    static var uint64: OptionForm {
        OptionForm(signature: "t") { key, value throws(Refusal) in
            guard case .uint64(let number) = value else { throw .wrongType(key, "t") }
            return number
        } encode: {
            .uint64($0)
        } text: {
            String($0)
        } parse: {
            UInt64($0)
        }
    }
}

extension OptionForm where V == WallTime {
    /// Microseconds since the Unix epoch.
    static var instant: OptionForm {
        OptionForm<UInt64>.uint64.written { _, number in
            WallTime(microseconds: number)
        } back: {
            $0.microseconds
        }
    }
}

extension OptionForm where V == Duration {
    /// Milliseconds on the bus, microseconds in the database.
    static var milliseconds: OptionForm {
        OptionForm(signature: "u") { key, value throws(Refusal) in
            try .milliseconds(Int(OptionForm<UInt32>.uint32.decode(key, value)))
        } encode: {
            .uint32(UInt32(clamping: $0.wholeMilliseconds))
        } text: {
            String($0.microseconds)
        } parse: {
            Int64($0).map { .microseconds($0) }
        }
    }

    /// As `milliseconds`, with 64 bits on the bus. More than `most` milliseconds is cut to `most`.
    static func longMilliseconds(most: UInt64) -> OptionForm {
        OptionForm(signature: "t") { key, value throws(Refusal) in
            .milliseconds(Int64(clamping: min(try OptionForm<UInt64>.uint64.decode(key, value), most)))
        } encode: {
            .uint64(UInt64(clamping: $0.wholeMilliseconds))
        } text: {
            String($0.microseconds)
        } parse: {
            Int64($0).map { .microseconds($0) }
        }
    }
}

extension OptionForm where V: RawRepresentable<String> & CaseIterable {
    /// One of several words.
    static var choice: OptionForm {
        OptionForm<String>.text().written { key, word throws(Refusal) in
            guard let choice = V(rawValue: word) else {
                throw Refusal(.invalidOption, "Option \(key) must be one of \(V.allCases.map(\.rawValue).joined(separator: ", ")).")
            }
            return choice
        } back: {
            $0.rawValue
        }
    }
}

extension OptionForm where V == Checksum {
    static var checksum: OptionForm {
        OptionForm<String>.text().written { _, text throws(Refusal) in
            try Checksum(text)
        } back: {
            $0.description
        }
    }
}

extension OptionForm where V == ProxyAddress {
    static var proxy: OptionForm {
        OptionForm<String>.text().written { _, text throws(Refusal) in
            try ProxyAddress(text)
        } back: {
            $0.text
        }
    }
}

extension OptionForm where V == PieceHashes {
    static var pieceHashes: OptionForm {
        // Not `text(most:)`: `PieceHashes` bounds the text itself, with an error that names the bound of the digests.
        OptionForm(signature: "s") { key, value throws(Refusal) in
            guard case .text(let text) = value else { throw .wrongType(key, "s") }
            return try PieceHashes(text)
        } encode: {
            .text($0.description)
        } text: {
            $0.description
        } parse: {
            try? PieceHashes($0)
        }
    }
}

extension OptionForm where V == DesktopID {
    static var desktopID: OptionForm {
        OptionForm<String>.text(most: 255).written { key, name throws(Refusal) in
            guard let id = DesktopID(name) else {
                throw Refusal(
                    .invalidOption, "Option \(key) must be the name of a desktop entry, such as org.example.App, not “\(shown(name))”.")
            }
            return id
        } back: {
            $0.name
        }
    }
}

extension OptionForm where V == ExtractionFolder {
    /// true, or the folder's name or absolute path. In the database, a name follows the word "folder", because a folder may be called
    /// "archive".
    static var folder: OptionForm {
        let standard = "archive"
        let prefix = "folder "
        return OptionForm(signature: "b", otherSignature: "s") { key, value throws(Refusal) in
            switch value {
            case .flag(true): return .namedAfterArchive
            case .text: return .named(try OptionForm<String>.text(most: 4096).decode(key, value))
            default: throw .wrongType(key, "b or s")
            }
        } encode: {
            $0.name.map { .text($0) } ?? .flag(true)
        } text: {
            $0.name.map { "\(prefix)\($0)" } ?? standard
        } parse: { text in
            if text == standard { return .namedAfterArchive }
            guard text.utf8.starts(with: prefix.utf8) else { return nil }
            return .named(String(decoding: text.utf8.dropFirst(prefix.utf8.count), as: UTF8.self))
        }
    }
}

extension OptionForm where V == [HeaderField] {
    /// The store writes a row for each header field; this form writes no text.
    static var headers: OptionForm {
        OptionForm(signature: "a{ss}") { key, value throws(Refusal) in
            guard case .fields(let fields) = value else { throw .wrongType(key, "a{ss}") }
            try RequestHeaders.check(fields, key)
            return fields
        } encode: {
            .fields($0)
        } text: { _ in
            ""
        } parse: { _ in
            nil
        }
    }
}

extension OptionForm where V == [String] {
    /// URLs in the form of `DownloadURL.text`, each once. The database has them in one text, between spaces.
    ///
    /// - Parameter most: the most URLs of a call.
    static func urls(most: Int) -> OptionForm {
        OptionForm(signature: "as") { key, value throws(Refusal) in
            guard case .texts(let texts) = value else { throw .wrongType(key, "as") }
            guard texts.count <= most else { throw Refusal(.limitExceeded, "Option \(key) takes at most \(most) URLs.") }
            var urls: [String] = []
            for (index, text) in texts.enumerated() {
                func refusal(_ reason: String) -> Refusal { Refusal(.invalidOption, "Option \(key), item \(index): \(reason)") }
                let url: DownloadURL
                do throws(Refusal) { url = try DownloadURL(text) } catch { throw refusal(error.message) }
                guard url.username == nil, url.password == nil else {
                    throw refusal("The URL has a user name or a password in it, which is sent to no mirror; leave it out.")
                }
                if !urls.contains(url.text) { urls.append(url.text) }
            }
            return urls
        } encode: {
            .texts($0)
        } text: {
            $0.joined(separator: " ")
        } parse: { text in
            let urls = text.split(separator: " ").map(String.init)
            return urls.count <= most && urls.allSatisfy { (try? DownloadURL($0))?.text == $0 } ? urls : nil
        }
    }
}

extension OptionForm where V == [UInt8] {
    /// A dictionary of the caller's own, stored as hexadecimal digits in the database.
    ///
    /// - Parameter most: the most marshalled bytes.
    static func dictionary(most: Int) -> OptionForm {
        OptionForm(signature: "a{sv}") { key, value throws(Refusal) in
            guard case .dictionary(let bytes) = value else { throw .wrongType(key, "a{sv}") }
            guard bytes.count <= most else { throw Refusal(.limitExceeded, "Option \(key) takes at most \(most) bytes.") }
            return bytes
        } encode: {
            .dictionary($0)
        } text: {
            hexadecimal($0)
        } parse: {
            DownloadModel.bytes(ofHexadecimal: $0.utf8)
        }
    }
}

extension Refusal {
    /// A fallback: the decoder of the call compares types first, and its error also names the type that was given.
    static func wrongType(_ key: String, _ signature: String) -> Refusal {
        Refusal(.invalidOption, "Option \(key) takes the type \(signature).")
    }
}
