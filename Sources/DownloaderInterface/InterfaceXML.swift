internal import CEmbedded

/// The machine-readable contract: `data/dbus-interfaces/*.xml`, embedded at build time. These files are its only source.
public enum InterfaceXML {
    /// The whole file of `interface`; nil if it is not one of our interfaces.
    public static func document(of interface: String) -> String? {
        switch interface {
        case Manager.interface: text(todoku_downloader1_xml())
        case Download.interface: text(todoku_download1_xml())
        case Batch.interface: text(todoku_batch1_xml())
        case Asset.interface: text(todoku_asset1_xml())
        case Application.interface: text(todoku_application_xml())
        default: nil
        }
    }

    private static func text(_ file: todoku_file) -> String {
        String(decoding: UnsafeBufferPointer(start: file.bytes, count: file.count), as: UTF8.self)
    }

    /// The `<interface>…</interface>` element of `interface` for introspection: the file without its prologue, with its comments.
    ///
    /// - Precondition: `interface` is one of our interfaces.
    public static func element(of interface: String) -> String {
        guard let document = document(of: interface), let element = element(in: document) else {
            preconditionFailure("\(interface) has no interface file with an interface element")
        }
        return element
    }

    /// From the first `<interface` to the last `</interface>`, with the indentation before it.
    public static func element(in document: String) -> String? {
        let text = document.utf8
        let open = Array("  <interface".utf8)
        let close = Array("</interface>".utf8)
        guard let start = first(open, in: text), let end = last(close, in: text), start < end else { return nil }
        return String(document[start..<text.index(end, offsetBy: close.count)])
    }

    private static func first(_ pattern: [UInt8], in text: String.UTF8View) -> String.Index? {
        text.indices.first { text[$0...].starts(with: pattern) }
    }

    private static func last(_ pattern: [UInt8], in text: String.UTF8View) -> String.Index? {
        text.indices.reversed().first { text[$0...].starts(with: pattern) }
    }
}
