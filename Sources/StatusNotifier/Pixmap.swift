public import DBus

/// An icon in the wire format: rows from the top, each pixel as alpha, red, green, blue, not premultiplied.
public struct Pixmap: Equatable, Sendable {
    public let width: Int32
    public let height: Int32
    public let bytes: [UInt8]

    /// - Precondition: `bytes` has four bytes for each pixel.
    public init(width: Int32, height: Int32, bytes: [UInt8]) {
        precondition(bytes.count == 4 * Int(width) * Int(height), "\(bytes.count) bytes are no picture of \(width) x \(height)")
        (self.width, self.height, self.bytes) = (width, height, bytes)
    }

    var variant: Variant { .structure([.int32(width), .int32(height), .array(of: "y", bytes.map { .byte($0) })]) }
}

/// `a(iiay)`: one icon in several sizes. Hosts read it often, so its wire form is computed once.
public struct IconPixmaps: DBusBasic, Equatable {
    public static let none = IconPixmaps([])

    public let pixmaps: [Pixmap]
    public let variant: Variant

    public init(_ pixmaps: [Pixmap]) {
        self.pixmaps = pixmaps
        variant = .array(of: "(iiay)", pixmaps.map(\.variant))
    }

    public init?(_ variant: Variant) {
        guard case .array("(iiay)", let values) = variant else { return nil }
        var pixmaps: [Pixmap] = []
        for value in values {
            guard case .structure(let fields) = value, fields.count == 3, let width = fields[0].int32, let height = fields[1].int32,
                case .array("y", let elements) = fields[2], width >= 0, height >= 0
            else { return nil }
            let bytes = elements.compactMap { element -> UInt8? in if case .byte(let byte) = element { byte } else { nil } }
            guard Self.holds(bytes, width, height) else { return nil }
            pixmaps.append(Pixmap(width: width, height: height, bytes: bytes))
        }
        (self.pixmaps, self.variant) = (pixmaps, variant)
    }

    /// Whether `bytes` fits the size that another program gave.
    private static func holds(_ bytes: [UInt8], _ width: Int32, _ height: Int32) -> Bool {
        // Four times the product of two positive 32-bit numbers fits into a UInt64, but not into an Int.
        width >= 0 && height >= 0 && UInt64(bytes.count) == 4 * UInt64(width) * UInt64(height)
    }

    public static func == (a: IconPixmaps, b: IconPixmaps) -> Bool { a.pixmaps == b.pixmaps }

    public static var signature: String { "a(iiay)" }
    public func write(to writer: inout Writer) {
        pixmaps.map { Structure($0.width, $0.height, $0.bytes) }.write(to: &writer)
    }
    public init(from reader: inout Reader) throws(DBusError) {
        let values = try [Structure<Int32, Int32, [UInt8]>](from: &reader)
        var pixmaps: [Pixmap] = []
        for value in values {
            let (width, height, bytes) = value.fields
            guard Self.holds(bytes, width, height) else {
                throw .invalidArgs("an icon has not the bytes of its size")
            }
            pixmaps.append(Pixmap(width: width, height: height, bytes: bytes))
        }
        self.init(pixmaps)
    }
}

/// `(sa(iiay)ss)`: the tooltip that a host shows. Some hosts parse the text as markup, so it holds no names from outside.
public struct ToolTip: DBusBasic, Equatable {
    public var title: String
    public var text: String

    public init(title: String = "", text: String = "") { (self.title, self.text) = (title, text) }

    public var variant: Variant { .structure([.string(""), IconPixmaps.none.variant, .string(title), .string(text)]) }
    public init?(_ variant: Variant) {
        guard case .structure(let fields) = variant, fields.count == 4, let title = fields[2].string, let text = fields[3].string
        else { return nil }
        self.init(title: title, text: text)
    }
    public static var signature: String { "(sa(iiay)ss)" }
    public func write(to writer: inout Writer) { Structure("", IconPixmaps.none, title, text).write(to: &writer) }
    public init(from reader: inout Reader) throws(DBusError) {
        let (_, _, title, text) = try Structure<String, IconPixmaps, String, String>(from: &reader).fields
        self.init(title: title, text: text)
    }
}
