internal import CXML
internal import DownloadModel

/// Receives the elements of a document, in its order. An error of the receiver ends the reading.
protocol XMLReceiver: AnyObject {
    func begin(_ name: XMLName, _ attributes: XMLAttributes, line: Int) throws(MetalinkError)
    /// - Parameter bytes: UTF-8; a part of the text, valid during the call.
    func add(text bytes: UnsafeRawBufferPointer, line: Int) throws(MetalinkError)
    func end(line: Int) throws(MetalinkError)
}

/// The name of an element, as expat reports it.
struct XMLName {
    private let bytes: UnsafePointer<CChar>

    fileprivate init(_ bytes: UnsafePointer<CChar>) { self.bytes = bytes }

    /// The name in this namespace; nil if the element is of another, or of none.
    func local(in namespace: String) -> String? { xml_name(bytes, namespace).map { String(cString: $0) } }
}

/// The attributes of an element, valid while it is received.
struct XMLAttributes {
    private let pairs: UnsafeMutablePointer<UnsafePointer<CChar>?>?

    fileprivate init(_ pairs: UnsafeMutablePointer<UnsafePointer<CChar>?>?) { self.pairs = pairs }

    /// The value of an attribute of no namespace.
    ///
    /// - Throws: if the value is longer than `most` bytes.
    func value(of name: String, most: Int, line: Int) throws(MetalinkError) -> String? {
        guard var pair = pairs else { return nil }
        while let key = pair[0], let value = pair[1] {
            pair += 2
            guard xml_is(key, name) else { continue }
            let text = String(cString: value)
            guard text.utf8.count <= most else {
                throw MetalinkError(line, "the attribute “\(name)” is longer than \(most) bytes")
            }
            return text
        }
        return nil
    }
}

/// Reads a document by expat, which is loaded on first use. Documents with a document type (`<!DOCTYPE`) are refused, so no entity is ever
/// declared.
enum XMLDocument {
    /// - Parameter goesOn: asked before each call of the receiver. If it returns false, an error is thrown.
    /// - Throws: the error of the receiver, or the reason why `bytes` is no XML, with its line.
    static func read(_ bytes: [UInt8], into receiver: any XMLReceiver, goesOn: @escaping () -> Bool) throws(MetalinkError) {
        if let reason = todoku_xml_load() { throw MetalinkError(nil, "XML cannot be read: \(String(cString: reason))") }
        let mostMemory = Metalink.mostMemory(for: bytes.count)
        guard let parser = xml_create(mostMemory) else { throw MetalinkError(nil, "XML cannot be read: out of memory") }
        defer { xml_free(parser) }
        let delivery = XMLDelivery(parser, receiver, goesOn: goesOn)
        let context = Unmanaged.passUnretained(delivery).toOpaque()
        xml_tell(parser, context, elementBegins, elementEnds, textComes, namespaceBegins, doctypeBegins)
        let isRead = bytes.withUnsafeBytes { xml_read(parser, $0.baseAddress, Int32(clamping: $0.count)) }
        withExtendedLifetime(delivery) {}
        if let failure = delivery.failure { throw failure }
        guard isRead else {
            let line = Int(clamping: xml_line(parser))
            guard !xml_lacks_memory(parser) else {
                let size = HumanText.size(ByteCount(clamping: mostMemory))
                throw MetalinkError(line, "reading the document needs more than \(size) of memory", isLimit: true)
            }
            throw MetalinkError(line, xml_error(parser).map { String(cString: $0) } ?? "no XML")
        }
    }
}

/// Hands what expat reports to the receiver.
private final class XMLDelivery {
    private let parser: OpaquePointer
    private let receiver: any XMLReceiver
    private let goesOn: () -> Bool
    private(set) var failure: MetalinkError?

    init(_ parser: OpaquePointer, _ receiver: any XMLReceiver, goesOn: @escaping () -> Bool) {
        (self.parser, self.receiver, self.goesOn) = (parser, receiver, goesOn)
    }

    /// Calls the receiver, unless it has failed before: expat may report the same element and its end after it was stopped.
    func deliver(_ body: (any XMLReceiver, Int) throws(MetalinkError) -> Void) {
        guard failure == nil else { return }
        let line = Int(clamping: xml_line(parser))
        do throws(MetalinkError) {
            guard goesOn() else { throw MetalinkError(line, "the document was not read in time") }
            try body(receiver, line)
        } catch {
            failure = error
            xml_stop(parser)
        }
    }
}

/// The context of a callback: +0, `XMLDocument.read` keeps it alive.
private func delivery(_ context: UnsafeMutableRawPointer) -> XMLDelivery {
    Unmanaged<XMLDelivery>.fromOpaque(context).takeUnretainedValue()
}

private typealias ElementBegins =
    @convention(c) (
        UnsafeMutableRawPointer?, UnsafePointer<CChar>?, UnsafeMutablePointer<UnsafePointer<CChar>?>?
    ) -> Void

private let elementBegins: ElementBegins = { context, name, attributes in
    guard let context, let name else { return }
    delivery(context).deliver { receiver, line throws(MetalinkError) in
        try receiver.begin(XMLName(name), XMLAttributes(attributes), line: line)
    }
}

private let elementEnds: @convention(c) (UnsafeMutableRawPointer?, UnsafePointer<CChar>?) -> Void = { context, _ in
    guard let context else { return }
    delivery(context).deliver { receiver, line throws(MetalinkError) in try receiver.end(line: line) }
}

private let textComes: @convention(c) (UnsafeMutableRawPointer?, UnsafePointer<CChar>?, Int32) -> Void = { context, text, count in
    guard let context, let text else { return }
    let bytes = UnsafeRawBufferPointer(start: text, count: Int(count))
    delivery(context).deliver { receiver, line throws(MetalinkError) in try receiver.add(text: bytes, line: line) }
}

private typealias NamespaceBegins =
    @convention(c) (UnsafeMutableRawPointer?, UnsafePointer<CChar>?, UnsafePointer<CChar>?) -> Void

private let namespaceBegins: NamespaceBegins = { context, _, namespace in
    guard let context, let namespace else { return }
    delivery(context).deliver { _, line throws(MetalinkError) in
        guard String(cString: namespace).utf8.count <= Metalink.mostNamespace else {
            throw MetalinkError(line, "a namespace is longer than \(Metalink.mostNamespace) bytes", isLimit: true)
        }
    }
}

private typealias DoctypeBegins =
    @convention(c) (
        UnsafeMutableRawPointer?, UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?, Int32
    ) -> Void

private let doctypeBegins: DoctypeBegins = { context, _, _, _, _ in
    guard let context else { return }
    delivery(context).deliver { _, line throws(MetalinkError) in
        throw MetalinkError(line, "a document type (<!DOCTYPE) is not allowed")
    }
}
