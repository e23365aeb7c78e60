internal import Glibc
internal import TestSupport
internal import Testing

/// File systems in memory that one daemon sees, served by `Tests/FaultShim/memfs.c` over /dev/fuse. While that process is stopped, every
/// call on these file systems blocks, as on a dead network mount. They may also have a quota.
final class MemoryDisks: Sendable {
    /// The first call of this kind stops the server.
    enum Operation: String, CaseIterable, Sendable {
        case none, lookup, create, write, fsync, rename, statfs, flush
        /// Only writes hang, from the first on, until `release`.
        case heldWrite = "held-write"
        /// Only reads hang, from the first on, until `release`.
        case heldRead = "held-read"
        /// Until `release`, a write beyond a file's first MiB fails with EDQUOT, although statvfs(3) reports much room.
        case quota
    }

    private let folder: TemporaryFolder
    let paths: [String]
    private let operation: Operation

    /// Compiles the server, as `Shim` does.
    init(_ count: Int, stoppedAt operation: Operation) async throws {
        let folder = TemporaryFolder("todoku-memfs")
        (self.operation, self.folder) = (operation, folder)
        paths = (0..<count).map { folder.makeFolder("disk-\($0)") }
        let source = "\(repository)/Tests/FaultShim/memfs.c"
        var words = ""
        for compiler in ["clang", "cc"] {
            let exit = await Child.run([compiler, "-O1", "-Wall", "-o", folder("memfs"), source])
            if exit.status == 0 { return }
            words += exit.errors
        }
        throw Shim.Unusable(reason: "memfs cannot be compiled: \(words)")
    }

    /// Whether a test may mount such file systems on this machine.
    static func arePossible() async throws -> Bool {
        let disks = try await MemoryDisks(1, stoppedAt: .none)
        return await Child.run(disks.command + ["/bin/true"]).status == 0
    }

    /// The words before a program that run it where the disks are mounted.
    var command: [String] { [folder("memfs"), folder("pid"), operation.rawValue] + paths + ["--"] }

    /// The process that serves the disks.
    var process: pid_t? { readFile(folder("pid")).flatMap { pid_t(String(decoding: $0, as: UTF8.self)) } }

    /// Whether calls on the disks hang.
    var hang: Bool {
        guard let process, let text = readFile("/proc/\(process)/stat") else { return false }
        return String(decoding: text, as: UTF8.self).split(separator: ")").last?.split(separator: " ").first == "T"
    }

    /// From now on, calls on the disks hang.
    func stop() async -> Bool {
        guard let process else { return false }
        kill(process, SIGSTOP)
        return await eventually { hang }
    }

    func goOn() {
        if let process { kill(process, SIGCONT) }
    }

    /// From the next close(2) of a file on, calls on the disks hang.
    func stopAtClose() {
        if let process { kill(process, SIGUSR2) }
    }

    /// Lets held writes return, and lifts the quota.
    func release() {
        if let process { kill(process, SIGUSR1) }
    }
}
