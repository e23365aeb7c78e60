internal import DownloadModel

/// The errors in the documentation of the interface files: those after "Errors:" of each method, and those that a download may end in, at
/// the signal `Completed`.
///
/// A build with assertions compares every error answer and every download's error with these lists. So every test of the service also tests
/// the documentation.
public enum DocumentedErrors {
    /// The XML's phrase for methods that may answer with any error of a download.
    private static let endsPhrase = "errors that a download ends in"

    /// The bus names of the errors that `method` may answer with; nil if its documentation has no "Errors:".
    public static func names(of method: String, in interface: String) -> Set<String>? { lists[interface]?[method] }

    /// Computed once, because 100,000 calls may fail.
    private static let lists = sections.mapValues { members in
        members.compactMapValues { text in
            text.after("Errors:").map { names(in: $0).union($0.contains(endsPhrase) ? ends : []) }
        }
    }

    /// The bus names of the errors that a download may end in.
    public static let ends = (sections[Download.interface]?["Completed"]?.after("\(endsPhrase):")).map(names) ?? []

    /// Whether a call of `method` may be answered with the error `name`: a documented error, or one that D-Bus defines for any call.
    public static func permits(_ name: String, of method: String, in interface: String) -> Bool {
        standard.contains(name) || names(of: method, in: interface)?.contains(name) ?? false
    }

    private static let standard = Set(
        ["InvalidArgs", "LimitsExceeded", "NoReply", "UnknownObject", "UnknownInterface", "UnknownMethod"].map {
            "org.freedesktop.DBus.Error.\($0)"
        })

    /// Comments of the interface files, keyed by member, with single spaces between words.
    private static let sections: [String: [String: String]] = Dictionary(
        uniqueKeysWithValues: [Manager.interface, Download.interface, Batch.interface, Asset.interface].map { interface in
            let comments = (InterfaceXML.document(of: interface) ?? "").split(separator: "<!--").dropFirst()
            let named = comments.compactMap { comment -> (String, String)? in
                let text = comment[..<(comment.firstRange(of: "-->")?.lowerBound ?? comment.endIndex)]
                let words = text.split(whereSeparator: \.isWhitespace)
                guard let name = words.first, name.last == ":" else { return nil }
                return (String(name.dropLast()), words.dropFirst().joined(separator: " "))
            }
            return (interface, Dictionary(named) { first, _ in first })
        })

    private static func names(in text: String) -> Set<String> {
        let words = text.split { !$0.isLetter && $0 != "." }.map { $0.last == "." ? $0.dropLast() : $0 }
        return Set(
            words.compactMap { word in
                word.hasPrefix("org.freedesktop.DBus.Error.") ? String(word) : ErrorName(rawValue: String(word))?.busName
            })
    }
}

extension String {
    /// The text after the first occurrence of `words`; nil if there is none.
    fileprivate func after(_ words: String) -> String? { firstRange(of: words).map { String(self[$0.upperBound...]) } }
}
