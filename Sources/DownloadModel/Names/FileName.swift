/// File names as we write them: one path component, never hidden, safe to show.
public enum FileName {
    /// Most bytes of UTF-8 in a name that is chosen or given. File systems allow 255; the rest leaves room for " (12)".
    public static let longest = 240
    /// Most bytes of a numbered name: the limit of Linux file systems.
    public static let longestNumbered = 255
    /// Most bytes of the extension that is kept when a name is cut, its dots included.
    private static let longestExtension = 20

    /// Makes `name` a harmless bare file name; nil if nothing usable remains. Idempotent.
    ///
    /// Directories ("/" and "\") are dropped, and so are control and invisible formatting characters, leading dots and blanks, and trailing
    /// blanks and dots. For USB sticks and shared folders, characters that Windows does not allow become "_", and names that Windows
    /// reserves get "_" in front. A name longer than `longest` bytes is cut before its extension.
    public static func safe(_ name: String) -> String? {
        var scalars: [Unicode.Scalar] = []
        for scalar in name.unicodeScalars {
            switch scalar {
            case "/", "\\": scalars.removeAll(keepingCapacity: true)
            case ":", "*", "?", "\"", "<", ">", "|": scalars.append("_")
            default: if !isInvisible(scalar) { scalars.append(scalar) }
            }
        }
        let trimmed = trimmingEnd(scalars.drop { $0 == "." || $0.properties.isWhitespace })
        guard !trimmed.isEmpty else { return nil }
        let text = cut(String(String.UnicodeScalarView(trimmed)))
        // Check after the cut: the bytes cut off may be the only difference from a reserved name.
        return isReservedOnWindows(text) ? cut("_" + text) : text
    }

    /// Cuts `text` to at most `longest` bytes; its extension stays.
    package static func cut(_ text: String, longest: Int = FileName.longest) -> String {
        guard text.utf8.count > longest else { return text }
        let (stem, ending) = split(text)
        // The cut may leave a blank or a dot at the end of the stem.
        let kept = trimmingEnd(Array(prefix(stem, bytes: longest - ending.utf8.count).unicodeScalars)[...])
        return String(String.UnicodeScalarView(kept)) + ending
    }

    /// Whether `name` may be given as the option `filename`: a bare name, not hidden, at most `longest` bytes, without control and
    /// invisible characters (`isInvisible`).
    public static func isBare(_ name: String) -> Bool {
        let bytes = name.utf8
        return !bytes.isEmpty && bytes.count <= longest && bytes.first != UInt8(ascii: ".") && !bytes.contains(UInt8(ascii: "/"))
            && !name.unicodeScalars.contains(where: isInvisible)
    }

    /// "name (1).ext", "archive (1).tar.gz". `name` is cut if the result would exceed `longest` bytes.
    public static func numbered(_ name: String, _ number: Int, longest: Int = longestNumbered) -> String {
        let (stem, ending) = split(name)
        let suffix = " (\(number))" + ending
        return prefix(stem, bytes: longest - suffix.utf8.count) + suffix
    }

    /// The name of the folder for the contents of the archive `name`: without ".zip", ".tar", ".tar.gz", ".tgz" and the like. Any other
    /// name stays as it is. Safe if `name` is.
    public static func folder(ofArchive name: String) -> String {
        let bytes = Array(name.utf8)
        func without(_ ending: String) -> [UInt8]? {
            let (count, length) = (bytes.count, ending.utf8.count)
            guard count > length, String(decoding: bytes[(count - length)...], as: UTF8.self).lowercased() == ending else { return nil }
            return Array(bytes[..<(count - length)])
        }
        for ending in archiveEndings {
            guard let stem = without(ending) else { continue }
            return safe(String(decoding: stem, as: UTF8.self)) ?? name
        }
        return name
    }

    /// An ending that contains another comes first.
    private static let archiveEndings: [String] = [
        ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst", ".tar", ".zip", ".7z", ".gz", ".bz2", ".xz",
        ".zst",
    ]

    /// The file name of a download: from `Content-Disposition`, else from the URL. Safe.
    ///
    /// The URL of a folder gives the host, the folder's name, and the extension of the media type: "example.org-pub.html",
    /// "example.org.html".
    ///
    /// - Parameters:
    ///   - contentDisposition: the field's value; the caller bounds its size.
    ///   - mediaType: in lower case, without parameters. nil: the extension is left out.
    public static func chosen(
        contentDisposition: [UInt8]?, url: DownloadURL, mediaType: String? = nil, decode: ForeignDecoder
    ) -> String {
        if let contentDisposition, let name = ContentDisposition.fileName(from: contentDisposition, decode: decode), let safe = safe(name) {
            return safe
        }
        return ofURL(url, decode: decode) ?? ofFolder(url, mediaType, decode)
    }

    /// The name in the last component of a URL; nil: it has none, as in the URL of a folder.
    public static func ofURL(_ url: DownloadURL, decode: ForeignDecoder = { _, _ in nil }) -> String? {
        text(ofComponent: url.lastPathComponent, decode)
    }

    private static func ofFolder(_ url: DownloadURL, _ mediaType: String?, _ decode: ForeignDecoder) -> String {
        let folders = url.path.pathComponents.dropLast(url.lastPathComponent.isEmpty ? 0 : 1)
        let host = url.host.hasSuffix(".") ? String(url.host.dropLast()) : url.host
        let name = folders.last.flatMap { text(ofComponent: String($0), decode) }.map { "\(host)-\($0)" } ?? host
        let ending = mediaType.flatMap { endings[$0] } ?? ""
        return safe(name.lowercased().hasSuffix(ending) ? name : name + ending) ?? "download"
    }

    private static func text(ofComponent component: String, _ decode: ForeignDecoder) -> String? {
        safe(ForeignText.guess(PercentEncoding.decodeLeniently(component.utf8), decode: decode))
    }

    /// The extensions of media types that a folder's URL may answer with.
    private static let endings: [String: String] = [
        "application/atom+xml": ".xml", "application/gzip": ".gz", "application/javascript": ".js", "application/json": ".json",
        "application/pdf": ".pdf", "application/rss+xml": ".xml", "application/xhtml+xml": ".html", "application/xml": ".xml",
        "application/zip": ".zip", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "image/gif": ".gif", "image/jpeg": ".jpg",
        "image/png": ".png", "image/svg+xml": ".svg", "image/webp": ".webp", "text/calendar": ".ics", "text/css": ".css",
        "text/csv": ".csv", "text/html": ".html", "text/javascript": ".js", "text/markdown": ".md", "text/plain": ".txt",
        "text/xml": ".xml", "video/mp4": ".mp4", "video/webm": ".webm",
    ]

    /// The name without its extension, and the extension with its dot; ".tar.gz" is one extension. The stem is never empty; the extension
    /// may be.
    private static func split(_ name: String) -> (stem: String, ending: String) {
        let bytes = Array(name.utf8)
        guard let dot = bytes.lastIndex(of: UInt8(ascii: ".")), dot > 0, bytes.count - dot > 1, bytes.count - dot <= longestExtension,
            !bytes[dot...].contains(where: \.isBlank)
        else { return (name, "") }
        let isDouble =
            dot > 4 && bytes.count - dot + 4 <= longestExtension
            && String(decoding: bytes[(dot - 4)..<dot], as: UTF8.self).lowercased() == ".tar"
        let start = isDouble ? dot - 4 : dot
        return (String(decoding: bytes[..<start], as: UTF8.self), String(decoding: bytes[start...], as: UTF8.self))
    }

    /// The longest prefix of whole characters within `bytes`. If not even one character fits, the longest prefix of whole scalars.
    package static func prefix(_ text: String, bytes: Int) -> String {
        var (room, end) = (bytes, text.startIndex)
        while end < text.endIndex, text[end].utf8.count <= room {
            room -= text[end].utf8.count
            text.formIndex(after: &end)
        }
        if end == text.startIndex {
            while end < text.endIndex, text.unicodeScalars[end].utf8.count <= room {
                room -= text.unicodeScalars[end].utf8.count
                text.unicodeScalars.formIndex(after: &end)
            }
        }
        return String(text[..<end])
    }

    private static func trimmingEnd(_ scalars: ArraySlice<Unicode.Scalar>) -> ArraySlice<Unicode.Scalar> {
        var scalars = scalars
        while let last = scalars.last, last == "." || last.properties.isWhitespace { scalars.removeLast() }
        return scalars
    }

    /// Control characters, line and paragraph separators, and characters that reorder, join or hide text. Variation selectors are allowed.
    private static func isInvisible(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x2028...0x2029, 0xFFF9...0xFFFB: true
        default:
            scalar.properties.generalCategory == .control
                || scalar.properties.isDefaultIgnorableCodePoint && !scalar.properties.isVariationSelector
        }
    }

    /// CON, PRN, AUX, NUL, COM0–COM9, LPT0–LPT9 (superscript ¹²³ too), CONIN$, CONOUT$, with any extension.
    private static func isReservedOnWindows(_ name: String) -> Bool {
        var base = name.unicodeScalars.prefix { $0 != "." }.map { $0.properties.uppercaseMapping }.joined()
        while base.unicodeScalars.last?.properties.isWhitespace == true { base.unicodeScalars.removeLast() }
        if ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"].contains(base) { return true }
        return base.count == 4 && (base.hasPrefix("COM") || base.hasPrefix("LPT")) && "0123456789¹²³".contains(base.last!)
    }
}
