internal import Glibc
internal import TestSupport
internal import Testing

/// File systems in memory that one daemon sees, served by `Tests/FaultShim/memfs.c` over /dev/fuse: while that process is stopped, every
/// call on them waits, as on a dead network mount. They may have a quota, too.
final class MemoryDisks: Sendable {
    /// The first such call stops them.
    enum Operation: String, CaseIterable, Sendable {
        case none, lookup, create, write, fsync, rename, statfs, flush
        /// Only writes hang, from the first on, until they are let go.
        case heldWrite = "held-write"
        /// A write beyond a file's first MiB answers EDQUOT, though statvfs(3) tells of much room, until they are let go.
        case quota
    }

    private let folder: TemporaryFolder
    let paths: [String]
    private let operation: Operation

    /// Compiles the server as `Shim` is.
    init(_ count: Int, stoppedAt operation: Operation) async throws {
        let folder = TemporaryFolder("todoku-memfs")
        (self.operation, self.folder) = (operation, folder)
        paths = (0..<count).map { folder.makeFolder("disk-\($0)") }
        let source = #filePath.folderName.folderName + "/FaultShim/memfs.c"
        var words = ""
        for compiler in ["clang", "cc"] {
            let exit = await Child.run([compiler, "-O1", "-Wall", "-o", folder("memfs"), source])
            if exit.status == 0 { return }
            words += exit.errors
        }
        throw Shim.Unusable(reason: "memfs cannot be compiled: \(words)")
    }

    /// Whether this machine lets a test mount them.
    static func arePossible() async throws -> Bool {
        let disks = try await MemoryDisks(1, stoppedAt: .none)
        return await Child.run(disks.command + ["/bin/true"]).status == 0
    }

    /// Before a program: runs it where the disks are mounted.
    var command: [String] { [folder("memfs"), folder("pid"), operation.rawValue] + paths + ["--"] }

    /// The process that serves them.
    var process: pid_t? { readFile(folder("pid")).flatMap { pid_t(String(decoding: $0, as: UTF8.self)) } }

    /// Whether they answer nothing.
    var hang: Bool {
        guard let process, let text = readFile("/proc/\(process)/stat") else { return false }
        return String(decoding: text, as: UTF8.self).split(separator: ")").last?.split(separator: " ").first == "T"
    }

    /// They answer nothing from here on.
    func stop() async -> Bool {
        guard let process else { return false }
        kill(process, SIGSTOP)
        return await eventually { hang }
    }

    func goOn() {
        if let process { kill(process, SIGCONT) }
    }

    /// Writes that were held come back, and the quota is lifted.
    func letGo() {
        if let process { kill(process, SIGUSR1) }
    }
}
