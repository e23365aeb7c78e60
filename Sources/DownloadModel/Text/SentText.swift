/// Compares texts from outside byte by byte. Swift's `==` treats canonically equivalent strings as equal: "é" as one character, and "e"
/// followed by a combining accent. To a server these are two tags.
extension StringProtocol {
    public func isSameBytes(as other: some StringProtocol) -> Bool {
        let isSame = utf8.withContiguousStorageIfAvailable { own in
            other.utf8.withContiguousStorageIfAvailable { other in
                guard own.count == other.count else { return false }
                // Without an exit before its end, this loop compares many bytes at a time.
                var difference: UInt8 = 0
                for index in own.indices { difference |= own[index] ^ other[index] }
                return difference == 0
            }
        }
        return (isSame ?? nil) ?? utf8.elementsEqual(other.utf8)
    }

    /// Whether a path is absolute. Compared by bytes, because Swift treats a slash followed by a combining mark as another character.
    public var isAbsolutePath: Bool { utf8.first == UInt8(ascii: "/") }
}

extension String {
    /// The parts of a path between its slashes, without empty ones.
    public var pathComponents: [Substring] { utf8.split(separator: UInt8(ascii: "/")).map { self[$0.startIndex..<$0.endIndex] } }

    /// The part after the last slash.
    public var lastPathComponent: Substring { self[(utf8.lastIndex(of: UInt8(ascii: "/")).map { utf8.index(after: $0) } ?? startIndex)...] }

    /// An absolute path without superfluous slashes and dots.
    public var tidyPath: String { "/" + pathComponents.filter { !$0.isSameBytes(as: ".") }.joined(separator: "/") }
}

/// A file name, or another text from outside, as a dictionary key: equal only if all bytes are equal. To a file system "é" as one
/// character and "e" followed by a combining accent are two names.
public struct ByteText: Hashable, Sendable, ExpressibleByStringLiteral {
    public let text: String

    public init(_ text: String) { self.text = text }
    public init(stringLiteral text: String) { self.text = text }

    public static func == (a: ByteText, b: ByteText) -> Bool { a.text.isSameBytes(as: b.text) }

    public func hash(into hasher: inout Hasher) {
        var text = text
        text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }
}

extension Optional where Wrapped == String {
    public func isSameBytes(as other: String?) -> Bool {
        switch (self, other) {
        case (nil, nil): true
        case (let own?, let other?): own.isSameBytes(as: other)
        default: false
        }
    }
}

extension DownloadOptions {
    /// Whether all texts are equal byte by byte: file names, header fields and credentials are passed on exactly as given.
    public func isSameText(as other: DownloadOptions) -> Bool {
        guard app.isSameBytes(as: other.app), token.isSameBytes(as: other.token), directory.isSameBytes(as: other.directory),
            fileName.isSameBytes(as: other.fileName), (extract?.name).isSameBytes(as: other.extract?.name),
            userAgent.isSameBytes(as: other.userAgent),
            referrer.isSameBytes(as: other.referrer), username.isSameBytes(as: other.username),
            password.isSameBytes(as: other.password), expectType.isSameBytes(as: other.expectType),
            activate.isSameBytes(as: other.activate), tag.isSameBytes(as: other.tag), title.isSameBytes(as: other.title),
            body.isSameBytes(as: other.body), icon.isSameBytes(as: other.icon), sound.isSameBytes(as: other.sound),
            postType.isSameBytes(as: other.postType)
        else { return false }
        return headers.elementsEqual(other.headers) { $0.name.isSameBytes(as: $1.name) && $0.value.isSameBytes(as: $1.value) }
            && cookies.elementsEqual(other.cookies) { $0.line.isSameBytes(as: $1.line) }
    }
}

extension Validator {
    public static func == (a: Validator, b: Validator) -> Bool {
        switch (a, b) {
        case (.entityTag(let own), .entityTag(let other)), (.lastModified(let own), .lastModified(let other)):
            own.isSameBytes(as: other)
        default: false
        }
    }

    public func hash(into hasher: inout Hasher) {
        for byte in ifRange.utf8 { hasher.combine(byte) }
    }
}

extension CopyValidators {
    public static func == (a: CopyValidators, b: CopyValidators) -> Bool {
        a.entityTag.isSameBytes(as: b.entityTag) && a.lastModified.isSameBytes(as: b.lastModified) && a.source.isSameBytes(as: b.source)
    }
}
