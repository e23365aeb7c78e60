package import DownloadModel

/// The rules for the entries of an archive, for a program that writes one: what `Unpacking` would refuse is found before it is published.
package struct ArchiveRules {
    package enum Kind: Equatable, Sendable {
        case file(setsUserID: Bool)
        case folder
        case symbolicLink(target: [UInt8])
        case device, fifo, socket, unknown
    }

    /// Why an archive would be refused: one sentence without a full stop, about the entry that it begins with.
    package struct Defect: Error, Equatable { package let message: String }

    private let limits: ExtractionLimits
    private var table: EntryTable
    private var count = 0

    package init(_ limits: ExtractionLimits = ExtractionLimits()) {
        self.limits = limits
        table = EntryTable(limit: limits.entries)
    }

    /// Checks the next entry. `name` is its path in the archive.
    package mutating func check(_ name: [UInt8], _ kind: Kind) throws(Defect) {
        do throws(ExtractionFailure) {
            count +|= 1
            guard count <= limits.entries else { throw .excessive("") }
            try add(name, kind)
        } catch {
            switch error {
            case .refused(let entry, let defect): throw Defect(message: "“\(shown(entry))” \(defect.predicate)")
            default: throw Defect(message: "the folder has more than \(limits.entries) files, links and folders")
            }
        }
    }

    private mutating func add(_ name: [UInt8], _ kind: Kind) throws(ExtractionFailure) {
        let path: EntryPath
        do throws(EntryDefect) {
            path = try EntryPath(name, limits: limits)
            switch kind {
            case .file(setsUserID: true): throw .setUserID
            case .file, .folder: break
            case .symbolicLink(let target): try path.checkTarget(target)
            case .device: throw .device
            case .fifo: throw .fifo
            case .socket: throw .socket
            case .unknown: throw .unknownKind
            }
        } catch {
            throw .refused(entry: text(name), error)
        }
        let place: EntryTable.Kind =
            switch kind {
            case .folder: .folder
            case .symbolicLink: .link
            default: .file
            }
        try table.add(path, place)
    }

    /// Most bytes of all files together, for an archive of `size` bytes.
    package func mostUnpacked(of size: ByteCount) -> ByteCount { limits.mostUnpacked(of: size) }
}
