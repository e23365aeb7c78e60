import DownloadModel
import Testing

private let soon = WallTime(microseconds: 5_000_000)
private let later = WallTime(microseconds: 9_000_000)
private let keeps = DownloadFailure(.network, "The connection was lost.", isRetryable: true)
private let spoils = DownloadFailure(.checksumMismatch, "The file is not the one expected.")

private let states: KeyValuePairs<String, DownloadState> = [
    "queued": .queued, "retry": .waiting(.retry, until: soon), "held": .waiting(.pausedAll, until: nil), "active": .active,
    "paused": .paused,
    "verifying": .verifying, "committing": .committing, "finished": .finished, "failed": .failed(keeps), "cancelled": .cancelled,
]

private let events: KeyValuePairs<String, DownloadEvent> = [
    "start": .start, "pause": .pause, "resume": .resume, "cancel": .cancel, "retry": .retry, "hold": .hold, "release": .release,
    "lost": .attemptFailed(keeps, retryAt: later), "failed": .attemptFailed(keeps, retryAt: nil),
    "spoilt": .attemptFailed(spoils, retryAt: nil),
    "retryDue": .retryDue, "bodyComplete": .bodyComplete, "skipped": .skipped, "verified": .verified, "committed": .committed,
    "commitFailed": .commitFailed(keeps), "commitSpoilt": .commitFailed(spoils),
]

/// State by event. "-": cannot be taken; "=": nothing changes and nothing is to be done; else the state after it and the effects.
private let matrix: [String: [String: String]] = [
    "queued": [
        "start": "active startTransfer", "pause": "paused", "resume": "=", "cancel": "cancelled deletePart announceEnd", "hold": "held",
        "release": "=",
    ],
    "retry": [
        "pause": "paused", "resume": "queued", "cancel": "cancelled deletePart announceEnd", "hold": "held", "release": "=",
        "retryDue": "queued",
    ],
    "held": ["pause": "paused", "resume": "=", "cancel": "cancelled deletePart announceEnd", "hold": "=", "release": "queued"],
    "active": [
        "pause": "paused stopTransfer", "resume": "=", "cancel": "cancelled stopTransfer deletePart announceEnd",
        "hold": "held stopTransfer",
        "release": "=", "lost": "retry@9 wake@9", "failed": "failed announceEnd", "spoilt": "spoilt deletePart announceEnd",
        "bodyComplete": "verifying verify", "skipped": "finished deletePart announceEnd",
    ],
    "paused": ["pause": "=", "resume": "queued", "cancel": "cancelled deletePart announceEnd", "hold": "=", "release": "="],
    "verifying": [
        "pause": "=", "resume": "=", "cancel": "cancelled deletePart announceEnd", "hold": "=", "release": "=",
        "verified": "committing commit",
        "commitFailed": "failed announceEnd", "commitSpoilt": "spoilt deletePart announceEnd",
    ],
    "committing": [
        "pause": "=", "resume": "=", "hold": "=", "release": "=", "skipped": "finished deletePart announceEnd",
        "committed": "finished announceEnd", "commitFailed": "failed announceEnd", "commitSpoilt": "spoilt deletePart announceEnd",
    ],
    "finished": [:],
    "failed": ["retry": "queued"],
    "cancelled": ["retry": "queued"],
]

/// As the matrix writes it.
private func text(_ state: DownloadState) -> String {
    switch state {
    case .waiting(.retry, let until?) where until != soon: "retry@\(until.microseconds / 1_000_000)"
    case .failed(spoils): "spoilt"
    default: states.first { $0.value == state }?.key ?? "\(state)"
    }
}

private func text(_ effect: DownloadEffect) -> String {
    switch effect {
    case .startTransfer: "startTransfer"
    case .stopTransfer: "stopTransfer"
    case .verify: "verify"
    case .commit: "commit"
    case .deletePart: "deletePart"
    case .wake(let at): "wake@\(at.microseconds / 1_000_000)"
    case .announceEnd: "announceEnd"
    }
}

@Suite struct `Download states` {
    @Test func `take each event as the matrix says`() {
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

    /// Every transition that is possible.
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
                case .attemptFailed, .bodyComplete, .skipped: true
                default: false
                }
            #expect(effects.contains(.stopTransfer) == (from == .active && to != .active && !endedByItself), "\(from) × \(event)")
            if effects.contains(.stopTransfer) { #expect(effects.first == .stopTransfer, "nothing is deleted under a transfer") }
        }
    }

    @Test func `delete the part file when cancelled, skipped or spoilt, and never else`() {
        for (from, event, to, effects) in transitions {
            let isUseless = to.failure?.spoilsBytes ?? (to == .cancelled || event == .skipped)
            #expect(effects.contains(.deletePart) == (isUseless && !from.hasEnded), "\(from) × \(event)")
        }
    }

    @Test func `wake up for every instant they wait for`() {
        for (from, event, to, effects) in transitions {
            let wakes = effects.compactMap { if case .wake(let at) = $0 { at } else { nil as WallTime? } }
            if case .waiting(_, let until) = to, to != from {
                #expect(wakes == [until].compactMap(\.self), "\(from) × \(event)")
            } else {
                #expect(wakes.isEmpty)
            }
        }
    }

    @Test func `reach the final name only from a body that is whole and verified`() {
        for (from, event, to, effects) in transitions {
            #expect(effects.contains(.verify) == (from == .active && to == .verifying), "\(from) × \(event)")
            #expect(effects.contains(.commit) == (from == .verifying && to == .committing), "\(from) × \(event)")
            if to == .finished { #expect(from == .committing || event == .skipped, "\(from) × \(event)") }
        }
    }

    @Test func `that have ended take nothing but a retry`() {
        for (_, state) in states where state.hasEnded {
            for (_, event) in events where event != .retry || state == .finished {
                #expect(throws: IllegalTransition.self) { try state.after(event) }
            }
        }
    }

    @Test func `take pause, resume, hold, release and cancel twice as once`() throws {
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
        let words = ["queued", "waiting", "waiting", "active", "paused", "verifying", "verifying", "finished", "failed", "cancelled"]
        #expect(states.map(\.value.name) == words)
        #expect(states.filter(\.value.hasEnded).map(\.key) == ["finished", "failed", "cancelled"])
        #expect(WaitReason.allCases.map(\.rawValue) == ["retry", "paused-all"])
        #expect(states.compactMap(\.value.failure) == [keeps])
    }

    @Test(arguments: ErrorName.allCases)
    func `keep the bytes of a failure unless they are of no use`(name: ErrorName) {
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
    }
}
