import DownloadModel
import Testing

private let soon = WallTime(microseconds: 5_000_000)
private let later = WallTime(microseconds: 9_000_000)
private let keeps = DownloadFailure(.network, "The connection was lost.", isRetryable: true)
private let expired = DownloadFailure(.expired, "The deadline struck.")
private let interrupted = DownloadFailure(.interrupted, "The service ended.")
private let spoils = DownloadFailure(.checksumMismatch, "The file is not the one expected.")

private let broken = DownloadFailure(.extraction, "The archive is damaged.")

private let states: KeyValuePairs<String, DownloadState> = [
    "queued": .queued, "retry": .waiting(.retry, until: soon), "needs": .waiting(.needsUrl, until: nil),
    "early": .waiting(.notBefore, until: soon), "offline": .waiting(.offline, until: nil), "full": .waiting(.diskSpace, until: nil),
    "held": .waiting(.pausedAll, until: nil),
    "active": .active, "paused": .paused, "verifying": .verifying, "extracting": .extracting, "committing": .committing,
    "finished": .finished,
    "failed": .failed(keeps), "cancelled": .cancelled,
]

private let events: KeyValuePairs<String, DownloadEvent> = [
    "start": .start, "startWhole": .startWhole, "pause": .pause, "resume": .resume, "cancel": .cancel, "retry": .retry, "renew": .renew,
    "hold": .hold, "release": .release, "wait": .wait(.retry, until: later), "ready": .ready, "fail": .fail(keeps), "spoil": .fail(spoils),
    "refuse": .refuse(spoils), "breaks": .spoil(broken), "unpack": .unpack, "unpacked": .unpacked, "folderCommitted": .folderCommitted,
    "expire": .expire(expired), "bodyComplete": .bodyComplete, "skipped": .skipped, "verified": .verified, "committed": .committed,
    "startOver": .startOver, "partLost": .partLost, "unchanged": .unchanged, "interrupt": .interrupt(interrupted), "yield": .yield,
    "hinder": .hinder(.offline),
]

private let cancels = "cancelled deletePart announceEnd"

/// State by event. "-": the event is illegal. "=": nothing changes, and there are no effects. Otherwise: the next state and the effects.
private let matrix: [String: [String: String]] = [
    "queued": [
        "start": "active startTransfer", "startWhole": "verifying verify", "pause": "paused", "resume": "=", "cancel": cancels,
        "renew": "=",
        "hold": "held", "release": "=", "wait": "retry@9", "expire": "expired announceEnd", "interrupt": "interrupted announceEnd",
        "hinder": "offline",
    ],
    "retry": [
        "pause": "paused", "resume": "queued", "cancel": cancels, "renew": "queued", "hold": "held", "release": "=", "ready": "queued",
        "expire": "expired announceEnd", "hinder": "offline", "interrupt": "interrupted announceEnd",
    ],
    "offline": [
        "pause": "paused", "resume": "queued", "cancel": cancels, "renew": "=", "hold": "held", "release": "=", "ready": "queued",
        "expire": "expired announceEnd", "hinder": "=", "interrupt": "interrupted announceEnd",
    ],
    "needs": [
        "pause": "paused", "resume": "=", "cancel": cancels, "renew": "queued", "hold": "held", "release": "=", "ready": "queued",
        "expire": "expired announceEnd", "interrupt": "interrupted announceEnd",
    ],
    "early": [
        "pause": "paused", "resume": "=", "cancel": cancels, "renew": "=", "hold": "held", "release": "=", "ready": "queued",
        "expire": "expired announceEnd", "interrupt": "interrupted announceEnd",
    ],
    "full": [
        "pause": "paused", "resume": "queued", "cancel": cancels, "renew": "=", "hold": "held", "release": "=", "ready": "queued",
        "expire": "expired announceEnd", "interrupt": "interrupted announceEnd",
    ],
    "held": [
        "pause": "paused", "resume": "=", "cancel": cancels, "renew": "=", "hold": "=", "release": "queued",
        "expire": "expired announceEnd", "interrupt": "interrupted announceEnd",
    ],
    "active": [
        "pause": "paused stopTransfer", "resume": "=", "cancel": "cancelled stopTransfer deletePart announceEnd",
        "renew": "queued stopTransfer", "hold": "held stopTransfer", "release": "=", "wait": "retry@9", "fail": "failed announceEnd",
        "spoil": "spoilt deletePart announceEnd", "refuse": "spoilt announceEnd", "expire": "expired stopTransfer announceEnd",
        "bodyComplete": "verifying verify",
        "skipped": "finished deletePart announceEnd", "unchanged": "finished deletePart announceEnd",
        "interrupt": "interrupted stopTransfer announceEnd", "yield": "queued stopTransfer", "hinder": "offline stopTransfer",
    ],
    "paused": [
        "pause": "=", "resume": "queued", "cancel": cancels, "renew": "=", "hold": "=", "release": "=", "expire": "=",
        "interrupt": "interrupted announceEnd",
    ],
    "verifying": [
        "pause": "=", "resume": "=", "cancel": cancels, "renew": "=", "hold": "=", "release": "=", "wait": "retry@9",
        "fail": "failed announceEnd", "spoil": "spoilt deletePart announceEnd", "expire": "=", "verified": "committing commit",
        "startOver": "queued deletePart", "partLost": "queued", "unchanged": "finished deletePart announceEnd",
        "interrupt": "interrupted announceEnd", "unpack": "extracting unpack",
    ],
    "extracting": [
        "pause": "paused stopUnpacking", "resume": "=", "cancel": "cancelled stopUnpacking deletePart announceEnd", "renew": "=",
        "hold": "held stopUnpacking", "release": "=", "wait": "retry@9", "fail": "failed announceEnd",
        "spoil": "spoilt deletePart announceEnd", "breaks": "broken deletePart announceEnd", "expire": "=", "partLost": "queued",
        "unpacked": "committing commit", "interrupt": "interrupted stopUnpacking announceEnd",
    ],
    "committing": [
        "pause": "=", "resume": "=", "renew": "=", "hold": "=", "release": "=", "wait": "retry@9", "fail": "failed announceEnd",
        "spoil": "spoilt deletePart announceEnd", "expire": "=", "skipped": "finished deletePart announceEnd",
        "committed": "finished announceEnd", "folderCommitted": "finished deletePart announceEnd", "partLost": "queued",
        "interrupt": "interrupted announceEnd",
    ],
    "finished": [:],
    "failed": ["retry": "queued", "renew": "queued"],
    "cancelled": ["retry": "queued"],
]

/// The state in the notation of the matrix.
private func text(_ state: DownloadState) -> String {
    switch state {
    case .waiting(.retry, let until?) where until != soon: "retry@\(until.microseconds / 1_000_000)"
    case .failed(spoils): "spoilt"
    case .failed(broken): "broken"
    case .failed(expired): "expired"
    case .failed(interrupted): "interrupted"
    default: states.first { $0.value == state }?.key ?? "\(state)"
    }
}

private func text(_ effect: DownloadEffect) -> String {
    switch effect {
    case .startTransfer: "startTransfer"
    case .stopTransfer: "stopTransfer"
    case .verify: "verify"
    case .unpack: "unpack"
    case .stopUnpacking: "stopUnpacking"
    case .commit: "commit"
    case .deletePart: "deletePart"
    case .announceEnd: "announceEnd"
    }
}

@Suite struct `Download states` {
    @Test func `respond to each event as the matrix says`() {
        #expect(Set(matrix.keys) == Set(states.map(\.key)))
        for (stateName, state) in states {
            for (eventName, event) in events {
                let expected = matrix[stateName]?[eventName] ?? "-"
                let found: String
                do throws(IllegalTransition) {
                    let (after, effects) = try state.after(event)
                    found = after == state && effects.isEmpty ? "=" : ([text(after)] + effects.map(text)).joined(separator: " ")
                } catch {
                    #expect(error.state == state && error.event == event)
                    found = "-"
                }
                #expect(found == expected, "\(stateName) × \(eventName)")
            }
        }
    }

    /// Every legal transition.
    private var transitions: [(from: DownloadState, event: DownloadEvent, to: DownloadState, effects: [DownloadEffect])] {
        states.flatMap { _, state in
            events.compactMap { _, event in
                guard let (after, effects) = try? state.after(event) else { return nil }
                return (state, event, after, effects)
            }
        }
    }

    @Test func `announce an end exactly when it comes`() {
        for (from, event, to, effects) in transitions {
            #expect(effects.contains(.announceEnd) == (to.hasEnded && !from.hasEnded), "\(from) × \(event)")
            #expect(effects.count { $0 == .announceEnd } <= 1)
            if effects.contains(.announceEnd) { #expect(effects.last == .announceEnd, "what is announced has been done") }
        }
    }

    @Test func `start a transfer exactly on becoming active, and stop it on leaving unless it ended by itself`() {
        for (from, event, to, effects) in transitions {
            #expect(effects.contains(.startTransfer) == (to == .active && from != .active), "\(from) × \(event)")
            let endedByItself =
                switch event {
                case .wait, .fail, .refuse, .bodyComplete, .skipped, .unchanged: true
                default: false
                }
            #expect(effects.contains(.stopTransfer) == (from == .active && to != .active && !endedByItself), "\(from) × \(event)")
            if effects.contains(.stopTransfer) { #expect(effects.first == .stopTransfer, "nothing is deleted under a transfer") }
        }
    }

    @Test func `delete the part file only when cancelled, skipped, unchanged, unpacked, spoilt or restarted`() {
        for (from, event, to, effects) in transitions {
            let isUseless =
                to == .failed(broken)
                || to.failure?.spoilsBytes ?? (to == .cancelled || [.skipped, .unchanged, .startOver, .folderCommitted].contains(event))
            let keepsBytes = from.hasEnded || event == .refuse(spoils)
            #expect(effects.contains(.deletePart) == (isUseless && !keepsBytes), "\(from) × \(event)")
        }
    }

    @Test func `stop an extraction exactly on leaving it, unless it ended by itself`() {
        for (from, event, to, effects) in transitions {
            let endedByItself =
                switch event {
                case .wait, .fail, .spoil, .partLost, .unpacked: true
                default: false
                }
            #expect(effects.contains(.stopUnpacking) == (from == .extracting && to != .extracting && !endedByItself), "\(from) × \(event)")
            if effects.contains(.stopUnpacking) { #expect(effects.first == .stopUnpacking, "nothing is deleted under an extraction") }
        }
    }

    @Test func `reach the final name only from a complete and verified body`() {
        for (from, event, to, effects) in transitions {
            #expect(effects.contains(.verify) == (to == .verifying && from != .verifying), "\(from) × \(event)")
            #expect(effects.contains(.unpack) == (to == .extracting && from != .extracting), "\(from) × \(event)")
            #expect(effects.contains(.commit) == (to == .committing && from != .committing), "\(from) × \(event)")
            if to == .committing { #expect([.verifying, .extracting, .committing].contains(from), "\(from) × \(event)") }
            if to == .finished { #expect(from == .committing || event == .skipped || event == .unchanged, "\(from) × \(event)") }
        }
    }

    @Test func `that have ended accept only a retry, or after a failure a fresh link`() {
        for (_, state) in states where state.hasEnded {
            for (_, event) in events
            where !(event == .retry && state != .finished) && !(event == .renew && state.failure != nil) {
                #expect(throws: IllegalTransition.self) { try state.after(event) }
            }
        }
    }

    @Test func `treat a second pause, resume, hold, release or cancel as no change`() throws {
        for (_, state) in states where !state.hasEnded {
            for event in [DownloadEvent.pause, .resume, .hold, .release] {
                let (once, _) = try state.after(event)
                let (twice, effects) = try once.after(event)
                #expect(twice == once, "\(state) × \(event)")
                #expect(effects.isEmpty, "\(state) × \(event)")
            }
        }
    }

    @Test func `have the contract's words`() {
        let words =
            ["queued"] + Array(repeating: "waiting", count: 6)
            + ["active", "paused", "verifying", "extracting", "verifying", "finished", "failed", "cancelled"]
        #expect(states.map(\.value.name) == words)
        #expect(states.filter(\.value.hasEnded).map(\.key) == ["finished", "failed", "cancelled"])
        #expect(
            WaitReason.allCases.map(\.rawValue) == [
                "retry", "not-before", "rate-limit", "host-limit", "offline", "metered", "disk-space", "destination", "needs-url",
                "paused-all",
            ])
        #expect(states.compactMap(\.value.failure) == [keeps])
    }

    @Test(arguments: ErrorName.allCases)
    func `keep the bytes after a failure, unless they are useless`(name: ErrorName) {
        let spoils: Set<ErrorName> = [.checksumMismatch, .sizeMismatch, .tooLarge]
        #expect(DownloadFailure(name, "").spoilsBytes == spoils.contains(name))
        #expect(name.busName == "org.todoku.Error.\(name.rawValue)")
    }
}

@Suite struct `Instants` {
    @Test func `move by durations and not before the epoch`() {
        let time = WallTime(microseconds: 1_500_000)
        #expect(time + .milliseconds(250) == WallTime(microseconds: 1_750_000))
        #expect(time + .seconds(-1) == WallTime(microseconds: 500_000))
        #expect(time + .seconds(-2) == WallTime(microseconds: 0))
        #expect(time - WallTime(microseconds: 2_000_000) == .milliseconds(-500))
    }

    @Test func `are reported in whole milliseconds, to the last one`() {
        // As a quotient of floating-point numbers, this would be one less.
        #expect(Duration.milliseconds(46_705_614_591).wholeMilliseconds == 46_705_614_591)
        #expect(Duration.microseconds(1999).wholeMilliseconds == 1 && Duration.microseconds(-1999).wholeMilliseconds == -1)
        #expect(Duration.seconds(Int64.max).wholeMilliseconds == .max && Duration.seconds(Int64.min).wholeMilliseconds == .min)
    }
}
