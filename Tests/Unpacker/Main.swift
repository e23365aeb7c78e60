// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Extraction
import Glibc
import Synchronization

// Unpacks an archive with the code of todokud, and kills itself (SIGKILL) before a step, so that a test can continue the run at any moment
// (Tests/ExtractionTests/KillTests.swift).
//
//     todoku-unpack ARCHIVE FOLDER NAME FINGERPRINT KILL [each]
//
// KILL: the number of the step before which the program dies, from 1; 0: none. Without a kill it prints the number of steps, and for KILL 0
// the steps. "each": every file is flushed by itself.

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

    func take() { if count.add(1, ordering: .relaxed).newValue == deadline { kill(getpid(), SIGKILL) } }
}

@main enum Program {
    static func main() {
        let words = CommandLine.arguments
        guard words.count >= 6, let deadline = Int(words[5]) else { return say("wrong: the arguments are \(words)") }
        let archive = open(words[1], O_RDONLY | O_CLOEXEC)
        let request = ExtractionRequest(archive: archive, fingerprint: Array(words[4].utf8), directory: words[2], name: words[3])
        let steps = Steps(deadline: deadline)
        var calls = ExtractionCalls()
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
