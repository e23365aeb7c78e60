internal import DownloadModel

/// The path of an entry below the new folder, with safe components.
struct EntryPath: Equatable {
    /// NAME_MAX: the limit of Linux file systems.
    static let longestName = 255
    /// PATH_MAX, less the NUL.
    static let longestTarget = 4095

    /// The components, never empty, "." or "..". Without components, the path is the new folder itself.
    let components: [[UInt8]]

    /// The components joined by "/".
    var bytes: [UInt8] { Array(components.joined(separator: [slash])) }
    var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Omits empty components and "."; the bytes of the other components stay as they are.
    init(_ name: [UInt8], limits: ExtractionLimits) throws(EntryDefect) {
        guard !name.isEmpty else { throw .noName }
        guard name[0] != slash else { throw .absolutePath }
        guard name.count <= limits.pathLength else { throw .longPath(limit: limits.pathLength) }
        guard !hasControl(name) else { throw .controlCharacter }
        let components = name.split(separator: slash).filter { !$0.elementsEqual([dot]) }
        guard !components.contains(where: { $0.elementsEqual([dot, dot]) }) else { throw .parentReference }
        guard components.allSatisfy({ $0.count <= Self.longestName }) else { throw .longName }
        guard components.count <= limits.depth else { throw .tooDeep(limit: limits.depth) }
        self.components = components.map { Array($0) }
    }

    /// Checks that the target of a symbolic link at this path stays in the new folder, whatever other links do.
    ///
    /// The link lies in real folders, so its leading ".." lead to real folders, too. Each name behind them is a folder, a file or a checked
    /// link. A ".." behind a name could leave the folder through a link that leads up.
    func checkTarget(_ target: [UInt8]) throws(EntryDefect) {
        let shown = String(decoding: target, as: UTF8.self)
        guard !target.isEmpty, target.count <= Self.longestTarget, !hasControl(target) else { throw .unusableLink }
        guard target[0] != slash else { throw .absoluteLink(target: shown) }
        let parts = target.split(separator: slash).filter { !$0.elementsEqual([dot]) }
        let above = parts.prefix { $0.elementsEqual([dot, dot]) }.count
        guard above < components.count else { throw .linkOutside(target: shown) }
        guard !parts.dropFirst(above).contains(where: { $0.elementsEqual([dot, dot]) }) else { throw .indirectLink(target: shown) }
        guard parts.allSatisfy({ $0.count <= Self.longestName }) else { throw .unusableLink }
    }
}

private let slash = UInt8(ascii: "/")
private let dot = UInt8(ascii: ".")

/// Whether the bytes contain C0, DEL, or, if they are UTF-8, C1.
private func hasControl(_ bytes: [UInt8]) -> Bool {
    if bytes.contains(where: { $0 < 0x20 || $0 == 0x7F }) { return true }
    guard bytes.contains(0xC2), let text = String(validating: bytes, as: UTF8.self) else { return false }
    return text.unicodeScalars.contains { (0x80...0x9F).contains($0.value) }
}
