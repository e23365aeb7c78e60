/// What a server sent, compared byte by byte. Swift's `==` takes two strings for equal that Unicode calls canonically equivalent: "é" in one
/// character, and "e" with an accent of its own. To a server these are two tags.
extension StringProtocol {
    func isSameBytes(as other: some StringProtocol) -> Bool { utf8.elementsEqual(other.utf8) }
}

extension Optional where Wrapped == String {
    func isSameBytes(as other: String?) -> Bool {
        switch (self, other) {
        case (nil, nil): true
        case (let own?, let other?): own.isSameBytes(as: other)
        default: false
        }
    }
}

extension DownloadOptions {
    /// Whether all texts are the same byte by byte: names of files and folders, header fields and credentials go on as they were given.
    func isSameText(as other: DownloadOptions) -> Bool {
        guard app.isSameBytes(as: other.app), token.isSameBytes(as: other.token), directory.isSameBytes(as: other.directory),
            fileName.isSameBytes(as: other.fileName), userAgent.isSameBytes(as: other.userAgent),
            referrer.isSameBytes(as: other.referrer), username.isSameBytes(as: other.username),
            password.isSameBytes(as: other.password), expectType.isSameBytes(as: other.expectType),
            activate.isSameBytes(as: other.activate), tag.isSameBytes(as: other.tag), title.isSameBytes(as: other.title),
            body.isSameBytes(as: other.body), icon.isSameBytes(as: other.icon), sound.isSameBytes(as: other.sound)
        else { return false }
        return headers.elementsEqual(other.headers) { $0.name.isSameBytes(as: $1.name) && $0.value.isSameBytes(as: $1.value) }
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
