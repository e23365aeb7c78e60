// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Extraction
import Glibc
import Synchronization
import Transport

// Unpacks an archive with the code of todokud, and kills itself (SIGKILL) before a step, so that a test can continue the run at any moment
// (Tests/ExtractionTests/KillTests.swift).
//
//     todoku-unpack ARCHIVE FOLDER NAME FINGERPRINT KILL [each]
//     todoku-unpack ARCHIVE FOLDER NAME FINGERPRINT child [WORDS]
//     todoku-unpack --unpack [kill=N] [probe] [socket] [exec] [trap] [stall]
//
// KILL: the number of the step before which the program dies, from 1; 0: none. Without a kill it prints the number of steps, and for KILL 0
// the steps. "each": every file is flushed by itself. "child": a child unpacks, which gets the words.
//
// --unpack: this is the child, which dies before its step N; or, once it is confined, writes what it can still do to a file "probe" in its
// folder, opens a socket, starts a program, traps, or waits for ever.

func say(_ text: String) {
    let line = Array("\(text)\n".utf8)
    _ = write(1, line, line.count)
}

/// VmHWM of /proc/self/status, in KiB. The peak in getrusage(2) would include the program that started this one.
func peakMemory() -> String {
    let file = open("/proc/self/status", O_RDONLY | O_CLOEXEC)
    var bytes = [UInt8](repeating: 0, count: 4096)
    let count = read(file, &bytes, bytes.count)
    let line = bytes.prefix(max(0, count)).split(separator: UInt8(ascii: "\n")).first { $0.starts(with: "VmHWM:".utf8) }
    return line.map { String(decoding: $0.dropFirst(6).filter { (0x30...0x39).contains($0) }, as: UTF8.self) } ?? ""
}

final class Steps: Sendable {
    let count = Atomic<Int>(0)
    let deadline: Int

    init(deadline: Int) { self.deadline = deadline }

    func take() { if count.add(1, ordering: .relaxed).newValue == deadline { raise(SIGKILL) } }
}

/// Whether each of these works in the child: lines "NAME ERRNO", 0 for success.
func probe() {
    let folder: Int32 = 4
    var text = ""
    func attempt(_ name: String, _ call: () -> Int32) {
        errno = 0
        text += "\(name) \(call() >= 0 ? 0 : errno)\n"
    }
    attempt("make") { openat(folder, "made", O_WRONLY | O_CREAT, 0o644) }
    attempt("read") { openat(folder, "made", O_RDONLY) }
    attempt("up") { openat(folder, "../stranger", O_WRONLY) }
    attempt("up-made") { openat(folder, "../made-outside", O_WRONLY | O_CREAT, 0o644) }
    attempt("passwd") { open("/etc/passwd", O_RDONLY) }
    attempt("proc") { open("/proc/self/status", O_RDONLY) }
    attempt("tmp") { open("/tmp/todoku-probe", O_WRONLY | O_CREAT, 0o644) }
    attempt("set-id") { openat(folder, "set", O_WRONLY | O_CREAT, 0o4755) }
    attempt("pipe") { mkfifoat(folder, "pipe", 0o644) }
    attempt("mode") { fchmodat(folder, "made", 0o4755, 0) }
    attempt("memory") {
        mmap(nil, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0
    }
    attempt("much memory") { mmap(nil, 4 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0 }
    attempt("environment") {
        errno = ENOENT
        return environ[0] == nil ? -1 : 0
    }
    for descriptor in Int32(8)..<200 {
        var status = stat()
        if fstat(descriptor, &status) == 0 { text += "open \(descriptor)\n" }
    }
    let file = openat(folder, "probe", O_WRONLY | O_CREAT, 0o644)
    let bytes = Array(text.utf8)
    _ = write(file, bytes, bytes.count)
    close(file)
}

/// Waits for ever, by the only call of those allowed that waits.
func stall() {
    let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    pthread_mutex_init(mutex, nil)
    pthread_mutex_lock(mutex)
    pthread_mutex_lock(mutex)
}

func beChild(_ words: some Collection<String>) -> Never {
    var calls = ExtractionCalls()
    if let word = words.first(where: { $0.hasPrefix("kill=") }), let deadline = Int(word.dropFirst(5)) {
        let steps = Steps(deadline: deadline)
        calls.before = { _ in steps.take() }
    }
    UnpackingChild.run(decode: iconvDecoder, calls: calls) {
        if words.contains("probe") { probe() }
        if words.contains("socket") { _ = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0) }
        if words.contains("exec") { _ = execl("/bin/true") }
        if words.contains("trap") { preconditionFailure("a test asked for it") }
        if words.contains("stall") { stall() }
    }
}

func execl(_ path: String) -> Int32 {
    let none: [UnsafeMutablePointer<CChar>?] = [nil]
    return execve(path, none, none)
}

@main enum Program {
    static func main() {
        let words = CommandLine.arguments
        if words.dropFirst().first == UnpackingChild.argument { beChild(words.dropFirst(2)) }
        guard words.count >= 6, let deadline = words[5] == "child" ? 0 : Int(words[5]) else {
            return say("wrong: the arguments are \(words)")
        }
        let archive = open(words[1], O_RDONLY | O_CLOEXEC)
        let request = ExtractionRequest(archive: archive, fingerprint: Array(words[4].utf8), directory: words[2], name: words[3])
        let steps = Steps(deadline: deadline)
        var calls = ExtractionCalls()
        calls.place = .thisProcess
        if words[5] == "child" {
            calls.place = .child(ChildProgram("/proc/self/exe", [UnpackingChild.argument] + words.dropFirst(6)))
        }
        if words.last == "each" { calls.isFlushedWhole = false }
        calls.before = { _ in steps.take() }
        let result = Unpacking.run(request, ExtractionControl(), calls: calls)
        say("peak \(peakMemory())")
        switch result {
        case .success(let folder): say("whole \(folder.entries) \(folder.kept) \(steps.count.load(ordering: .relaxed))")
        case .failure(let failure): say("wrong: \(failure)")
        }
    }
}
