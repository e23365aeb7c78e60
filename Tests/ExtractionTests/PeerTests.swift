import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import Extraction

/// What three other programs make of the archives that are refused here. docs/mechanisms/archive-outcomes.md has the table.
@Suite struct `A hostile archive beside other programs` {
    /// An unpacker, for all archives or for zips only. `$1` is the archive; the working folder is where it unpacks.
    struct Peer {
        let name: String
        let command: String
        /// The command whose first line that is not empty tells the version.
        let version: String
        var isForZip = false
    }

    static let peers = [
        Peer(name: "bsdtar", command: "bsdtar -xf \"$1\"", version: "bsdtar --version"),
        Peer(
            name: "unzip", command: "unzip -qo -P '' \"$1\" </dev/null", version: "unzip -v | head -n 1 | cut -d' ' -f1-2", isForZip: true),
        Peer(name: "7z", command: "7z x -y -bd -p \"$1\" </dev/null", version: "7z i | grep -m1 Copyright | cut -d: -f1"),
    ]

    struct Row {
        let name: String
        let bytes: [UInt8]
        let isZip: Bool
    }

    static let rows: [Row] =
        `A hostile archive`.cases.map { Row(name: $0.testDescription, bytes: $0.bytes, isZip: $0.testDescription.hasPrefix("a zip")) } + [
            Row(
                name: "a tar that ends too early", bytes: Array(TarBytes().adding("a", patternBytes(5000)).whole.prefix(2048)),
                isZip: false),
            Row(name: "a zip whose file has another checksum", bytes: damagedZip, isZip: true),
        ]

    private static var damagedZip: [UInt8] {
        var bytes = ZipBytes().adding("a", Array("the bytes of a file".utf8)).whole
        // The first byte of the file follows its header of 30 bytes and its name.
        bytes[31] ^= 0xFF
        return bytes
    }

    /// What a program leaves: outside of its folder, or in it.
    private func remains(of place: TemporaryFolder, in folder: String) -> [String] {
        var remains: [String] = []
        let outside = tree(place.path).keys.filter { $0 != "archive" && $0 != "a" && !$0.hasPrefix("a/b/files") && $0 != "a/b" }
        // Removed, so that the next program is not blamed.
        let isAbsolute = unlink(`A hostile archive`.outside) == 0
        if isAbsolute || !outside.isEmpty { remains.append("**a file outside**") }
        var kinds: Set<String> = []
        for (path, what) in tree(folder) {
            switch what {
            case "folder": kinds.insert("folders")
            case "special": kinds.insert("a special file")
            case _ where what.hasPrefix("link to "):
                let depth = path.split(separator: "/").count - 1
                kinds.insert(leadsOut(String(what.dropFirst(8)), depth: depth) ? "**a link out**" : "a link")
            default:
                let mode = UInt32(what.split(separator: " ")[1], radix: 8) ?? 0
                kinds.insert(mode & 0o6000 != 0 ? "**a set-ID file**" : "files")
            }
        }
        if kinds.count > 1 { kinds.remove("folders") }
        return remains + kinds.sorted()
    }

    private func leadsOut(_ target: String, depth: Int) -> Bool {
        if target.hasPrefix("/") { return true }
        var level = depth
        for component in target.split(separator: "/") {
            level += component == ".." ? -1 : 1
            if level < 0 { return true }
        }
        return false
    }

    private func outcome(_ row: Row, _ peer: Peer) async -> String {
        guard row.isZip || !peer.isForZip else { return "–" }
        let place = TemporaryFolder("todoku-peer")
        for above in ["a", "a/b"] { place.makeFolder(above) }
        let folder = place.makeFolder("a/b/files")
        writeFile(place("archive"), row.bytes)
        // As an ordinary user: root would also make devices and keep owners.
        let isRoot = getuid() == 0
        if isRoot { await shell("chown -R nobody: $1", place.path) }
        let user = isRoot ? "setpriv --reuid=nobody --regid=nogroup --clear-groups --inh-caps=-all " : ""
        let exit = await Child.run(["sh", "-c", "\(user)\(peer.command)", "sh", place("archive")], folder: folder)
        if isRoot { await shell("chmod -R u+rwX $1", place.path) }
        let remains = remains(of: place, in: folder)
        let left = remains.isEmpty ? "nothing" : remains.joined(separator: ", ")
        return (exit.status == 0 ? "unpacks" : "error") + (exit.status == 0 && remains == ["files"] ? "" : "; leaves \(left)")
    }

    private func ours(_ failure: ExtractionFailure?) -> String {
        if case .refused(entry: _, _)? = failure { return "refused; leaves nothing" }
        if case .damaged(entry: _, reason: _)? = failure { return "damaged; leaves nothing" }
        return "\(String(describing: failure))"
    }

    private func version(_ peer: Peer) async -> String {
        let words = await shell(peer.version).split(separator: "\n").first?.split(separator: " ") ?? []
        return words.joined(separator: " ")
    }

    @Test func `comes out as the table in the documentation says`() async throws {
        unlink(`A hostile archive`.outside)  // an earlier process with the same number may have left it
        var versions: [String] = []
        for peer in Self.peers { versions.append(await version(peer)) }
        var lines = ["| archive | todoku | \(Self.peers.map(\.name).joined(separator: " | ")) |", "| --- | --- | --- | --- | --- |"]
        for row in Self.rows {
            var cells = [row.name]
            // `failure` checks that nothing is left.
            cells.append(ours(Place(row.bytes).failure()))
            for peer in Self.peers { cells.append(await outcome(row, peer)) }
            lines.append("| \(cells.joined(separator: " | ")) |")
        }
        let document = String(decoding: readFile("\(repository)/docs/mechanisms/archive-outcomes.md") ?? [], as: UTF8.self)
        let products = processEnvironment()["TODOKU_TEST_PRODUCTS"] ?? "/tmp"
        writeFile("\(products)/archive-outcomes.txt", Array((versions + lines).joined(separator: "\n").utf8))
        let own = lines.map { $0.split(separator: "|").prefix(2).joined(separator: "|") }
        let documented = document.split(separator: "\n").filter { $0.hasPrefix("| ") }.map(String.init)
        #expect(own == documented.map { $0.split(separator: "|").prefix(2).joined(separator: "|") })
        // Other versions of the programs may do better.
        guard versions.allSatisfy({ document.contains($0) }) else {
            return print("the table of archives is of other versions than \(versions): only Todoku's column was compared")
        }
        for (line, expected) in zip(lines, documented) where line != expected {
            Issue.record("“\(line)”, documented as “\(expected)”; the whole table: \(products)/archive-outcomes.txt")
        }
    }
}
