import DownloadModel
import Extraction
import Glibc

/// Where archives are unpacked: in memory, as `meson-helpers/fuzz` sets TMPDIR.
private let place: String = {
    var name = Array("\(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")/archives.XXXXXX".utf8CString)
    check(mkdtemp(&name) != nil, "no temporary folder")
    let path = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    mkdir("\(path)/files", 0o755)
    return path
}()

/// A whole archive. It is unpacked or refused, and makes nothing outside of its folder. A second run gives the same answer.
func fuzzArchive(_ bytes: [UInt8]) {
    let archive = open("\(place)/archive", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    defer { close(archive) }
    check(write(archive, bytes, bytes.count) == bytes.count, "the archive cannot be written")
    var limits = ExtractionLimits()
    (limits.entries, limits.unpacked, limits.windowLog) = (200, 4 << 20, 23)
    let request = ExtractionRequest(
        archive: archive, fingerprint: [], directory: "\(place)/files", name: "new", limits: limits, expectedSize: 0, reserve: .bytes(0),
        allowHidden: true)
    var calls = ExtractionCalls()
    calls.place = .thisProcess
    let first = Unpacking.run(request, ExtractionControl(), calls: calls)
    let left = names("\(place)/files")
    switch first {
    case .success(let folder):
        check(left == [".todoku-journal-new", "new"], "\(left) is there")
        check(folder.bytes <= 4 << 20 && folder.entries <= 200, "\(folder)")
        check((try? Unpacking.run(request, ExtractionControl(), calls: calls).get().path) == folder.path, "another answer")
        Unpacking.forget(directory: "\(place)/files", name: "new")
        let outcome = FolderRemoval.remove("new", directory: "\(place)/files", allowHidden: true, control: ExtractionControl())
        check(outcome == .removed, "\(outcome)")
    case .failure(let failure):
        check(left.isEmpty, "\(left) is left after \(failure)")
    }
    check(names("\(place)/files").isEmpty && names(place) == ["archive", "files"], "something is left")
}

private func names(_ path: String) -> [String] {
    guard let folder = opendir(path) else { return [] }
    defer { closedir(folder) }
    var names: [String] = []
    while let entry = readdir(folder) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if name != ".", name != ".." { names.append(name) }
    }
    return names.sorted()
}
