internal import Glibc
internal import TestSupport
internal import Testing

/// The preloaded object of `Tests/FaultShim`, compiled once for this run of the tests.
final class Shim: Sendable {
    private static let shared = Task {
        let shim = try await Shim()
        // A static value has no end.
        atexit { removeTree(Shim.folder.path) }
        return shim
    }

    static func compiled() async throws -> Shim { try await shared.value }

    private static let folder = TemporaryFolder("todoku-shim")
    var object: String { Self.folder("faultshim.so") }

    /// Compiles the object with the C compiler of the Swift toolchain, or with the system's.
    private init() async throws {
        let sources = "\(repository)/Tests/FaultShim"
        var words = ""
        for compiler in ["clang", "cc"] {
            let exit = await Child.run([
                compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", object, "\(sources)/faultshim.c", "\(sources)/told.c",
            ])
            if exit.status == 0 { return }
            words += exit.errors
        }
        throw Unusable(reason: "the shim cannot be compiled: \(words)")
    }

    struct Unusable: Error { let reason: String }
}

/// The fault that the shim causes in a daemon.
struct Fault: Sendable, Equatable, CustomStringConvertible {
    enum Kind: String, CaseIterable, Sendable {
        case enospc, edquot, eio, eintr, erofs, short, kill
        case killAfter = "kill-after"
        case killTorn = "kill-torn"
        /// Calls return only when the faults are stopped.
        case hang
        /// A write takes 1.5 s.
        case slow
    }

    var kind: Kind
    /// The call that fails, counted from 1 over all daemons of a case; 0: none, calls are only counted.
    var at: Int
    /// Whether every later call fails too, until `Place.stopFaults`.
    var isLasting = false
    var disk = Disk.both

    enum Disk: String, CaseIterable, Sendable {
        case both
        case downloads = "the downloads' disk"
        case state = "the queue's disk"
    }

    var description: String {
        "\(kind.rawValue) at call \(at)\(isLasting ? " and on" : "")\(disk == .both ? "" : ", \(disk.rawValue)")"
    }
}

/// The files of one case: a state folder, a download folder, and a file shared by the shim and the test.
final class Place: Sendable {
    let folder = TemporaryFolder("todoku-fault")
    var files: String { folder("files") }
    var state: String { folder("state") }
    private var shared: String { folder("shared") }
    /// Which call failed, and how.
    var log: String { String(decoding: readFile(folder("faults.log")) ?? [], as: UTF8.self) }

    init() {
        folder.makeFolder("files")
        folder.makeFolder("state")
        writeFile(shared, [UInt8](repeating: 0, count: 4096))
    }

    /// The environment of a daemon with its files here. Without a fault, the shim only counts the bytes received.
    func environment(_ shim: Shim, _ fault: Fault?, more: [String: String] = [:]) -> [String: String] {
        var environment = [
            "XDG_STATE_HOME": state, "LD_PRELOAD": shim.object, "FAULTSHIM_ROOTS": "\(state):\(files)", "FAULTSHIM_SHARED": shared,
            "FAULTSHIM_LOG": folder("faults.log"),
            // The process that unpacks gets the shim, too.
            "TODOKU_UNCONFINED": "1",
        ]
        if fault?.disk == .downloads { environment["FAULTSHIM_ROOTS"] = files }
        if fault?.disk == .state { environment["FAULTSHIM_ROOTS"] = state }
        if let fault {
            environment["FAULTSHIM_FAULT"] = fault.kind.rawValue
            environment["FAULTSHIM_AT"] = "\(fault.at)"
            if fault.isLasting { environment["FAULTSHIM_LASTING"] = "1" }
        }
        return environment.merging(more) { $1 }
    }

    /// How many calls so far the fault could have hit.
    var calls: Int { Int(word(0)) }
    /// How many calls the fault has hit.
    var hits: Int { Int(word(1)) }

    /// How many bytes daemons have received from the server at `port`, heads included.
    func received(from port: UInt16) -> Int {
        let words = words()
        for place in 0..<64 where words[4 + 2 * place] == UInt64(port) { return Int(words[5 + 2 * place]) }
        return 0
    }

    /// From now on no call fails.
    func stopFaults() { set(2, 1) }

    /// From now on, writes to the files that FAULTSHIM_HOLD names wait, or no longer.
    func hold(_ isHeld: Bool) { set(Self.holdWord, isHeld ? 1 : 0) }
    /// How many writes have waited.
    var held: Int { Int(word(Self.holdWord + 1)) }
    private static let holdWord = 4 + 2 * 64

    /// From now on, the `SuspendingClock` of the daemon is ahead.
    func putClockAhead(seconds: UInt64) { set(Self.holdWord + 2, seconds) }

    /// Makes the next call the one that fails.
    func reach(_ fault: Fault) { set(0, UInt64(fault.at - 1)) }

    /// Counts calls from 1 again.
    func restartCount() { set(0, 0) }

    private func set(_ index: Int, _ value: UInt64) {
        let descriptor = open(shared, O_WRONLY | O_CLOEXEC)
        var value = value
        let count = pwrite(descriptor, &value, 8, off_t(8 * index))
        close(descriptor)
        precondition(count == 8)
    }

    private func word(_ index: Int) -> UInt64 { words()[index] }

    private func words() -> [UInt64] {
        let bytes = readFile(shared) ?? []
        precondition(bytes.count == 4096, "the shim's page is gone")
        return bytes.withUnsafeBytes { Array($0.bindMemory(to: UInt64.self)) }
    }
}
