internal import Glibc
internal import Synchronization
internal import TestSupport

enum Stage: String, CaseIterable, Sendable {
    case fresh, resume, restarted, killed, ranges, several, mirrors

    /// Whether the wrong answers are for further ranges, while the first answer goes on.
    var isDivided: Bool { [.ranges, .several, .mirrors].contains(self) }

    /// So many further ranges of `several` are requested before any of them is answered.
    static let severalRanges = 3
}

struct ServerCase: Sendable, CustomStringConvertible {
    let misbehaviour: Misbehaviour
    let stage: Stage
    var description: String { "\(misbehaviour.name), \(stage.rawValue)" }

    /// Whether the download must request several ranges at the same time: a strong validator or a checksum ties them together.
    var mustDivide: Bool {
        switch stage {
        case .fresh, .resume, .restarted, .killed: false
        case .ranges, .several: misbehaviour.hasChecksum || misbehaviour.tag?.hasPrefix("\"") == true
        case .mirrors: true
        }
    }

    /// Serves the file's beginning (unless fresh), then wrong answers, then good ones. After the beginning, the server waits for `gate`.
    /// `ranges`: the first answer is right, and goes on once another range is requested. That request opens `gate`.
    /// `several`: the same with three other ranges. All of them get wrong answers, once three of them wait for their answers.
    /// `mirrors`: the same, and the other range may be requested from a mirror.
    func server(_ gate: Gate) async -> ScriptedServer {
        let (test, stage, mustDivide, turns) = (misbehaviour, stage, mustDivide, Turns())
        let field = test.hasDigest ? "sha-256=:\(base64(await digest(of: Misbehaviour.old))):" : ""
        let stated = test.hasDigest ? ["Repr-Digest: \(field)"] : []
        let first = stated + (test.tag.map { ["ETag: \($0)"] } ?? []) + ["Content-Length: \(Misbehaviour.size)", "\r\n"]
        return ScriptedServer { request, reply in
            if stage.isDivided, request.number == 0 {
                reply.send("HTTP/1.1 200 OK\r\n" + first.joined(separator: "\r\n"))
                reply.send(Misbehaviour.old[..<100_000])
                var place = 100_000
                if mustDivide {
                    // Single bytes keep the connection alive until the other ranges are requested, however slow the machine is.
                    while !gate.isOpen, reply.send(Misbehaviour.old[place..<place + 1]) {
                        place += 1
                        poll(nil, 0, 50)
                    }
                } else {
                    for _ in 0..<100 where !gate.isOpen { poll(nil, 0, 10) }
                }
                // The wrong answers come before the end of the file, except those that take longer.
                if stage == .several { for _ in 0..<100 where turns.answers < Stage.severalRanges { poll(nil, 0, 10) } }
                reply.send(Misbehaviour.old[place...])
                return reply.close()
            }
            if stage == .ranges || stage == .mirrors { gate.open() }
            if stage == .several, !gate.isOpen {
                let start = request.range?.first ?? 0
                if turns.hold(start) >= Stage.severalRanges { gate.open() }
                if mustDivide {
                    gate.wait()
                } else {
                    for _ in 0..<280 where !gate.isOpen { poll(nil, 0, 10) }
                    turns.release(start)
                }
            }
            if stage != .fresh, request.number == 0 {
                reply.send("HTTP/1.1 200 OK\r\n" + first.joined(separator: "\r\n"))
                reply.send(Misbehaviour.old[..<1_100_000])
                if stage != .resume { gate.wait() }
                return reply.close()
            }
            guard let turn = turns.next(most: stage == .several ? max(test.times, Stage.severalRanges) : test.times) else {
                let tag = test.tag == "\"v1\"" && test.isReplaced ? "\"v2\"" : test.tag
                let file = test.isReplaced ? Misbehaviour.new : Misbehaviour.old
                return reply.serve(file, for: request, entityTag: tag, fields: test.hasDigest ? ["Repr-Digest": field] : [:])
            }
            test.answer(
                Misbehaviour.Scene(
                    request: request, reply: reply, first: request.range?.first ?? 0, turn: turn, stated: stated))
            turns.answered()
        }
    }
}

extension ServerCase {
    /// A mirror that is wrong in the same way, for its first requests, and one that is always right. Both have the first version.
    func mirrors(_ gate: Gate) -> [ScriptedServer] {
        let (test, turns) = (misbehaviour, Turns())
        let wrong = ScriptedServer { request, reply in
            gate.open()
            guard let turn = turns.next(most: test.times) else { return reply.serve(Misbehaviour.old, for: request, entityTag: "\"m\"") }
            test.answer(Misbehaviour.Scene(request: request, reply: reply, first: request.range?.first ?? 0, turn: turn, stated: []))
        }
        let right = ScriptedServer { request, reply in
            gate.open()
            reply.serve(Misbehaviour.old, for: request, entityTag: "\"n\"")
        }
        return [wrong, right]
    }
}

/// Counts the wrong answers, and the ranges that wait for one. Called from the server's threads.
private final class Turns: Sendable {
    private let used = Atomic<Int>(0)
    private let sent = Atomic<Int>(0)
    /// The first bytes of the ranges that wait.
    private let held = Mutex<Set<Int>>([])

    /// The number of the next wrong answer, from 0; nil: all have been given.
    func next(most: Int) -> Int? {
        let number = used.add(1, ordering: .sequentiallyConsistent).oldValue
        return number < most ? number : nil
    }

    /// A wrong answer has been sent.
    func answered() { sent.add(1, ordering: .sequentiallyConsistent) }
    /// The wrong answers that have been sent.
    var answers: Int { sent.load(ordering: .sequentiallyConsistent) }

    /// The range that begins with byte `first` waits for its answer. After three seconds, another connection requests the same range.
    ///
    /// - Returns: how many ranges wait now.
    func hold(_ first: Int) -> Int {
        held.withLock { ranges in
            ranges.insert(first)
            return ranges.count
        }
    }
    func release(_ first: Int) { held.withLock { _ = $0.remove(first) } }
}
