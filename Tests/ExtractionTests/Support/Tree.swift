import DownloadModel
import Glibc
import TestSupport
import Testing

@testable internal import Extraction

/// The contents of a folder, by path: "folder", "link to TARGET", "file MODE SIZE SUM".
func tree(_ path: String) -> [String: String] {
    var found: [String: String] = [:]
    func walk(_ folder: String, _ prefix: String) {
        for name in listFolder(folder) {
            var status = stat()
            lstat("\(folder)/\(name)", &status)
            let key = prefix + name
            switch status.st_mode & S_IFMT {
            case S_IFDIR:
                found[key] = "folder"
                walk("\(folder)/\(name)", "\(key)/")
            case S_IFLNK: found[key] = "link to \(target(of: "\(folder)/\(name)") ?? "")"
            case S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK: found[key] = "special"  // a pipe would wait for its other end
            default:
                var hasher = Hasher()
                readFile("\(folder)/\(name)")?.withUnsafeBytes { hasher.combine(bytes: $0) }
                found[key] = "file \(String(status.st_mode & 0o7777, radix: 8)) \(status.st_size) \(hasher.finalize())"
            }
        }
    }
    walk(path, "")
    return found
}

func target(of path: String) -> String? {
    var bytes = [UInt8](repeating: 0, count: 4096)
    let count = bytes.withUnsafeMutableBytes { readlink(path, $0.bindMemory(to: CChar.self).baseAddress!, $0.count) }
    return count < 0 ? nil : String(decoding: bytes.prefix(count), as: UTF8.self)
}

func status(_ path: String) -> stat {
    var found = stat()
    lstat(path, &found)
    return found
}

/// The program whose children unpack in the tests.
let unpacker = builtProgram("todoku-unpack", variable: "TODOKU_UNPACK")

extension ExtractionCalls {
    /// This process, whose steps a test may watch.
    static var here: ExtractionCalls {
        var calls = ExtractionCalls()
        calls.place = .thisProcess
        return calls
    }

    /// A child that gets these words.
    static func child(_ words: String...) -> ExtractionCalls {
        var calls = ExtractionCalls()
        calls.place = .child(ChildProgram(unpacker, [UnpackingChild.argument] + words))
        return calls
    }
}

/// A folder with an archive, and the folder into which it is unpacked.
final class Place: Sendable {
    let folder = TemporaryFolder("todoku-extraction")
    var archive: String { folder("archive") }
    var files: String { folder("files") }

    init(_ archive: [UInt8]? = nil) {
        umask(0o022)
        folder.makeFolder("files")
        if let archive { write(archive) }
    }

    func write(_ bytes: [UInt8]) { writeFile(archive, bytes) }

    func request(_ fingerprint: String = "a", limits: ExtractionLimits = ExtractionLimits(), in directory: String? = nil)
        -> ExtractionRequest
    {
        ExtractionRequest(
            archive: open(archive, O_RDONLY | O_CLOEXEC), fingerprint: Array(fingerprint.utf8), directory: directory ?? files, name: "new",
            limits: limits)
    }

    /// Unpacks in a child, unless `calls` says otherwise.
    func unpack(
        _ request: ExtractionRequest, _ control: ExtractionControl = ExtractionControl(), calls: ExtractionCalls? = nil
    )
        -> Result<ExtractedFolder, ExtractionFailure>
    {
        defer { close(request.archive) }
        return Unpacking.run(request, control, calls: calls ?? .child())
    }

    func unpack(
        _ fingerprint: String = "a", limits: ExtractionLimits = ExtractionLimits(), calls: ExtractionCalls? = nil
    ) -> Result<ExtractedFolder, ExtractionFailure> { unpack(request(fingerprint, limits: limits), calls: calls) }

    /// The failure. Checks that nothing is left behind.
    func failure(limits: ExtractionLimits = ExtractionLimits(), _ location: SourceLocation = #_sourceLocation) -> ExtractionFailure? {
        let result = unpack(limits: limits)
        #expect(listFolder(files) == [], sourceLocation: location)
        #expect(listFolder(folder.path) == ["archive", "files"], sourceLocation: location)
        guard case .failure(let failure) = result else { return nil }
        #expect(!failure.message(folder: files).isEmpty)
        return failure
    }
}

extension Result where Success == ExtractedFolder, Failure == ExtractionFailure {
    var folder: ExtractedFolder? { try? get() }
    var failure: ExtractionFailure? { if case .failure(let failure) = self { failure } else { nil } }
}

/// Runs a shell line with these words as $1…, and returns its output.
@discardableResult func shell(_ line: String, _ words: String..., folder: String? = nil) async -> String {
    let exit = await Child.run(["sh", "-ec", line, "sh"] + words, folder: folder)
    #expect(exit.status == 0, "\(line): \(exit.errors)")
    return exit.output
}
