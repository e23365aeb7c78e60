import DownloadModel
import EventLoop
import Glibc
import PartFiles
import Synchronization
import TestSupport
import Testing

@testable internal import Extraction

/// A word of /proc/PID/status, such as "Seccomp".
private func procStatus(_ pid: pid_t, _ key: String) -> String? {
    let text = String(decoding: readFile("/proc/\(pid)/status") ?? [], as: UTF8.self)
    let line = text.split(separator: "\n").first { $0.hasPrefix("\(key):") }
    return line.map { String($0.dropFirst(key.utf8.count + 1).drop { $0 == "\t" }) }
}

/// The processes that `pid` has started.
private func children(of pid: pid_t) -> [pid_t] {
    listFolder("/proc").compactMap { pid_t($0) }.filter { procStatus($0, "PPid") == "\(pid)" }
}

private func small() -> Place {
    Place((0..<12).reduce(TarBytes()) { $0.adding("d\($1 % 3)/\($1)", patternBytes(3000, seed: UInt64($1))) }.whole)
}

/// Starts a program that unpacks the archive of `place` in a confined child, which stalls; both processes.
private func confined(_ place: Place) async -> (parent: Child, pid: pid_t) {
    let parent = Child([unpacker, place.archive, place.files, "new", "a", "child", "stall"])
    var pid: pid_t = 0
    #expect(
        await eventually {
            pid = children(of: parent.pid).first { procStatus($0, "Seccomp") == "2" } ?? 0
            return pid != 0
        })
    return (parent, pid)
}

private func isSmall(_ place: Place) -> Bool {
    (0..<12).allSatisfy { readFile("\(place.files)/new/d\($0 % 3)/\($0)") == patternBytes(3000, seed: UInt64($0)) }
}

@Suite struct `The process that unpacks` {
    @Test func `can change its folder, and nothing else`() async {
        guard underSanitizer() == nil else { return print("no process is confined under a sanitizer") }
        let place = small()
        writeFile("\(place.files)/stranger", [1])
        let control = ExtractionControl()
        #expect(place.unpack(place.request(), control, calls: .child("probe")).folder != nil)
        let confinement = control.confinement ?? []
        print("in force here: \(confinement.text)")
        #expect(confinement.isSuperset(of: [.limits, .calls]) && confinement.isEnough)
        let lines = String(decoding: readFile("\(place.files)/new/probe") ?? [], as: UTF8.self).split(separator: "\n")
        let found = Dictionary(lines.compactMap { line in line.lastIndex(of: " ").map { (line[..<$0], line[$0...].dropFirst()) } }) { $1 }
        #expect(found["make"] == "0")
        for name in ["passwd", "proc", "tmp", "set-id", "pipe", "mode", "memory", "much memory", "up"] {
            #expect(found[Substring(name)].map { $0 != "0" } ?? false, "\(name): \(lines)")
        }
        if confinement.contains(.files) { #expect(found["read"] == "\(EACCES)") }
        // Made in the root, which is the folder; or refused.
        #expect(!fileExists("\(place.files)/made-outside"))
        // There is no environment. No line "open": no further descriptor.
        #expect(found["environment"] == "\(ENOENT)" && found["open"] == nil, "\(lines)")
        #expect(readFile("\(place.files)/stranger") == [1])
    }

    @Test(arguments: ["socket", "exec"]) func `dies if it opens a socket or starts a program`(word: String) {
        guard underSanitizer() == nil else { return print("no process is confined under a sanitizer") }
        let place = small()
        #expect(place.unpack(calls: .child(word)).failure == .stopped("the process that unpacks tried what it may not do"))
        #expect(place.unpack().folder?.entries == 12 && isSmall(place))
    }

    @Test func `has no capability, no network and no way to new rights`() async {
        guard underSanitizer() == nil else { return print("no process is confined under a sanitizer") }
        let place = small()
        let (parent, pid) = await confined(place)
        for (key, value) in [("NoNewPrivs", "1"), ("CapEff", "0000000000000000"), ("CapPrm", "0000000000000000"), ("Threads", "1")] {
            #expect(procStatus(pid, key) == value, "\(key)")
        }
        #expect(procStatus(pid, "Name") == "todokud-unpack")
        if geteuid() == 0 {
            // A process in a chroot may make no user namespace (unshare(2)); some distributions forbid it to all.
            let hasNamespaces = await Child.run(["unshare", "--user", "--net", "true"]).status == 0
            if !hasNamespaces { print("no user namespace can be made here: seccomp alone keeps the child from sockets") }
            #expect((target(of: "/proc/\(pid)/ns/net") != target(of: "/proc/self/ns/net")) == hasNamespaces)
            #expect(listFolder("/proc/\(pid)/fd").sorted() == ["1", "2", "3", "4", "5"])
        }
        #expect(readFile("/proc/\(pid)/environ")?.isEmpty ?? true)
        // It dies with its parent, whatever it does.
        parent.signal(SIGKILL)
        #expect(await eventually { hasEnded(pid) })
        #expect(place.unpack().folder?.entries == 12 && isSmall(place))
    }

    /// At the hard limit, the kernel kills a process without a reason. So the signal with the reason must come before.
    @Test func `gets a signal for too much processor time before the kernel kills it`() async {
        guard underSanitizer() == nil else { return print("no process is confined under a sanitizer") }
        let place = small()
        let (parent, pid) = await confined(place)
        // "Max cpu time", the soft limit, the hard limit, "seconds". The archive may make 64 MiB.
        let limits = String(decoding: readFile("/proc/\(pid)/limits") ?? [], as: UTF8.self).split(separator: "\n")
        let words = limits.first { $0.hasPrefix("Max cpu time") }?.split(separator: " ") ?? []
        #expect(Array(words.dropFirst(3).prefix(2)) == ["664", "665"], "\(limits)")
        parent.signal(SIGKILL)
        #expect(await eventually { hasEnded(pid) })
    }

    @Test(arguments: [false, true]) func `may be killed before any of its steps, and the next one continues`(each: Bool) {
        var (step, kept, isKilled): (Int, UInt64, Bool) = (1, 0, true)
        while isKilled {
            let place = small()
            var calls = ExtractionCalls.child("kill=\(step)")
            if each { calls.isFlushedWhole = false }
            let first = place.unpack(calls: calls)
            isKilled = first.failure != nil
            if isKilled {
                #expect(
                    first.failure == .stopped("the process that unpacks was killed, perhaps because memory is short"), "step \(step)")
                #expect(!fileExists("\(place.files)/new"), "step \(step)")
            }
            let folder = place.unpack().folder
            #expect(folder?.entries == 12 && isSmall(place), "step \(step): \(String(describing: folder))")
            kept += isKilled ? folder?.kept ?? 0 : 0
            step += 1
        }
        #expect(step > 40 && kept > 60)
    }

    @Test func `is killed when the extraction is cancelled`() async {
        let place = small()
        let control = ExtractionControl()
        let request = place.request()
        async let result: Result<ExtractedFolder, ExtractionFailure> = withCheckedContinuation { continuation in
            Unpacking.start(request, control, calls: .child("stall")) { continuation.resume(returning: $0) }
        }
        // The child says that it is confined, then waits for ever.
        #expect(await eventually { control.confinement != nil })
        control.cancel()
        let end = await result
        close(request.archive)
        #expect(end.failure == .cancelled)
        #expect(place.unpack().folder?.entries == 12 && isSmall(place))
    }

    @Test func `that does nothing for too long is killed`() {
        let place = small()
        var calls = ExtractionCalls.child("stall")
        calls.patience = .seconds(1)
        #expect(place.unpack(calls: calls).failure == .stopped("the process that unpacks did nothing for 1 seconds"))
        #expect(place.unpack().folder?.entries == 12)
    }

    @Test func `that crashes is an error, which names the signal`() {
        let place = small()
        guard case .stopped(let reason)? = place.unpack(calls: .child("trap")).failure else {
            Issue.record("no failure")
            return
        }
        #expect(reason.hasPrefix("the process that unpacks crashed (signal "), "\(reason)")
        #expect(place.unpack().folder?.entries == 12)
    }

    @Test func `that cannot be started is an error`() {
        let place = small()
        var calls = ExtractionCalls()
        calls.place = .child(ChildProgram("/nonexistent", []))
        guard case .unavailable(let reason)? = place.unpack(calls: calls).failure else {
            Issue.record("no failure")
            return
        }
        #expect(reason.contains("No such file"))
        #expect(place.unpack().folder?.entries == 12)
    }
}

@Suite struct `A lying child` {
    /// Unpacks with a child that writes `bytes` to its answers, and then runs `script`.
    private func unpack(_ place: Place, _ bytes: [UInt8], then script: String = "exit 0") -> Result<ExtractedFolder, ExtractionFailure> {
        writeFile(place.folder("lie"), bytes)
        var calls = ExtractionCalls()
        calls.place = .child(ChildProgram("/bin/sh", ["-c", "cat \"$0\"; \(script)", place.folder("lie")]))
        return place.unpack(calls: calls)
    }

    private static let size = UInt64(TarBytes().adding("a").whole.count)
    static let impossible: [(String, [UInt8])] = [
        ("garbage", Array("hello, this is no message at all".utf8)), ("zeros", [0, 0]), ("a long message", [0xFF, 0xFF, 1]),
        ("an unknown kind", [8, 0, 9, 0, 0, 0, 0, 0, 0, 0]), ("a cut message", [16, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        ("more bytes than the archive has", ChildAnswer.progress(read: .max, written: 0, entries: 0).framed),
        ("more bytes than it may make", ChildAnswer.progress(read: 0, written: 1 << 40, entries: 0).framed),
        ("more entries than an archive may have", ChildAnswer.progress(read: 0, written: 0, entries: .max).framed),
        ("a whole folder of too many bytes", ChildAnswer.whole(UnpackedEntries(entries: 1, bytes: .max, kept: 0)).framed),
        ("more kept entries than there are", ChildAnswer.whole(UnpackedEntries(entries: 1, bytes: 0, kept: 2)).framed),
        ("a text behind the end", ChildAnswer.confined([]).framed.with(0, 17) + [0]),
    ]

    @Test(arguments: impossible) func `is refused`(what: String, bytes: [UInt8]) {
        let place = Place(TarBytes().adding("a", [1]).whole)
        #expect(unpack(place, bytes).failure == .nonsense, "\(what)")
        #expect(place.unpack().folder?.entries == 1)
    }

    @Test func `does not get the folder its name`() {
        let place = Place(TarBytes().adding("a", [1]).whole)
        let failure = unpack(place, ChildAnswer.whole(UnpackedEntries(entries: 1, bytes: 1, kept: 0)).framed).failure
        #expect(failure == .stopped("the process that unpacks said that it is ready, but its journal does not say so"))
        #expect(!fileExists("\(place.files)/new"))
        #expect(place.unpack().folder?.entries == 1)
    }

    @Test(arguments: ["exit 0", "exit 3", "exec >/dev/null; sleep 100", "kill -SEGV $$", "head -c 100M /dev/zero | tr '\\0' x"])
    func `ends, and so does the extraction`(script: String) {
        let place = Place(TarBytes().adding("a", [1]).whole)
        guard case .stopped? = unpack(place, ChildAnswer.progress(read: 1, written: 0, entries: 0).framed, then: script).failure else {
            Issue.record("no failure")
            return
        }
        #expect(place.unpack().folder?.entries == 1)
    }

    @Test func `tells a reason that is short, and in one line`() {
        let place = Place(TarBytes().adding("a", [1]).whole)
        let text = "\u{1B}[31m\nfree money \u{202E}" + String(repeating: "x", count: 5000)
        for failure in [
            ExtractionFailure.excessive(text), .damaged(entry: text, reason: text), .unsupported(found: text), .unavailable(reason: text),
            .refused(entry: text, .linkOutside(target: text)), .disk(DiskError(text, EIO)), .stopped(text),
        ] {
            let told = unpack(place, ChildAnswer.failed(failure).framed).failure
            let message = told?.message(folder: "/d") ?? ""
            #expect(!message.isEmpty && message.utf8.count < 1200, "\(message.utf8.count)")
            #expect(!message.unicodeScalars.contains { $0.properties.generalCategory == .control || $0.properties.isBidiControl })
        }
    }

    @Test func `passes every failure on as it is`() {
        let failures: [ExtractionFailure] = [
            .unsupported(found: "a web page"), .damaged(entry: nil, reason: "r"), .damaged(entry: "e", reason: "r"),
            .excessive("Too much."),
            .noSpace(nil), .noSpace(DiskError.Shortage(missing: 1, room: 2)), .disk(DiskError("write", EIO)), .unavailable(reason: "r"),
            .stopped("r"),
        ]
        let defects: [EntryDefect] = [
            .noName, .absolutePath, .parentReference, .controlCharacter, .longName, .longPath(limit: 1), .tooDeep(limit: 2), .duplicate,
            .caseClash, .insideOfNoFolder, .absoluteLink(target: "t"), .linkOutside(target: "t"), .indirectLink(target: "t"), .unusableLink,
            .hardLinkToNothing(target: "t"), .device, .fifo, .socket, .unknownKind, .setUserID, .encrypted, .method("m"), .existsOnDisk,
        ]
        for failure in failures + defects.map({ .refused(entry: "e", $0) }) {
            let framed = ChildAnswer.failed(failure).framed
            #expect(ChildAnswer(framed.dropFirst(ChildAnswer.headSize)) == .failed(failure))
        }
    }

    @Test func `never makes the parent trap or grow, whatever it writes`() throws {
        var random = SeededRandom(5)
        let good = [
            ChildAnswer.confined(.all), .progress(read: 1, written: 2, entries: 3), .whole(UnpackedEntries(entries: 1, bytes: 2, kept: 0)),
            .failed(.refused(entry: "e", .linkOutside(target: "t"))), .failed(.noSpace(nil)),
        ].map(\.framed)
        for _ in 0..<20_000 {
            var bytes = good[Int.random(in: good.indices, using: &random)] + good[Int.random(in: good.indices, using: &random)]
            for _ in 0..<Int.random(in: 0...4, using: &random) {
                bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            var reader = AnswerReader()
            reader.add(bytes)
            while let answer = try? reader.next() { _ = answer.isPossible(ExtractionLimits(), size: 10) }
        }
    }

    @Test func `gets a request that it reads as it was written`() {
        var journal = ExtractionJournal(
            archiveSize: 7, fingerprint: [1, 2, 3], folder: FileIdentity(device: 1, inode: 2, mount: 3, boot: "b", born: -4))
        journal.written = 9
        var limits = ExtractionLimits()
        for unpacked in [nil, 0, 1 << 40] as [ByteCount?] {
            limits.unpacked = unpacked
            let job = UnpackingJob(
                limits: limits, expectedSize: unpacked, reserve: unpacked == nil ? .automatic : .bytes(5), isJapaneseRead: true, count: 9,
                isContinued: true, isFlushedWhole: false)
            let request = ChildRequest(parent: 123, isConfined: true, job: job, journal: journal)
            #expect(ChildRequest(request.bytes) == request && request.bytes.count < ChildRequest.mostBytes)
            #expect(ChildRequest(Array(request.bytes.dropLast())) == nil && ChildRequest(request.bytes + [0]) == nil)
        }
        #expect(ChildRequest([]) == nil)
    }
}
