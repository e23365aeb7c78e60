internal import Glibc
internal import Localization

/// D-Bus carries only text in UTF-8. Swift replaces other bytes by U+FFFD, so a path with such bytes would silently become another path.
enum ArgumentText {
    /// Refuses the command line if one of its arguments is not UTF-8.
    ///
    /// After “--”, the arguments of `todoku rehearse` are a command line of its own, whose bytes are passed on unchanged.
    static func check() throws(CommandFailure) {
        let texts = CommandLine.arguments
        let own = texts.dropFirst().first == "rehearse" ? texts.prefix { $0 != "--" } : texts[...]
        let arguments = UnsafeBufferPointer(start: CommandLine.unsafeArgv, count: own.count)
        // The first one is the path of this program.
        for case let argument? in arguments.dropFirst() where String(validatingCString: argument) == nil {
            let shown = String(cString: argument)
            throw CommandFailure(.usage, catalog.text("the argument “%1$s” is not UTF-8: D-Bus carries only text in UTF-8", shown))
        }
    }

    /// A path that the system has told.
    static func path(_ path: UnsafePointer<CChar>) throws(CommandFailure) -> String {
        if let text = String(validatingCString: path) { return text }
        let shown = String(cString: path)
        throw CommandFailure(.usage, catalog.text("the path “%1$s” is not UTF-8: D-Bus carries only text in UTF-8", shown))
    }
}

extension String {
    /// The parts before and after the first `sign`; nil: there is none. A combining mark may follow the sign: for Swift, the two are one
    /// character.
    func divided(at sign: Unicode.Scalar) -> (before: Substring, after: Substring)? {
        guard let place = unicodeScalars.firstIndex(of: sign) else { return nil }
        return (self[..<place], self[unicodeScalars.index(after: place)...])
    }
}
