import DownloadModel
import TestSupport
import Testing

@testable import Scheduling

private let states: [DownloadState] = [
    .queued, .active, .paused, .verifying, .extracting, .committing, .finished, .failed(DownloadFailure(.network, "No route.")), .cancelled,
    .waiting(.retry, until: nil), .waiting(.pausedAll, until: nil), .waiting(.needsUrl, until: nil), .waiting(.offline, until: nil),
]

extension MemberCounts {
    /// Counts `states` anew.
    fileprivate init(_ states: some Collection<DownloadState>) {
        self.init()
        for state in states { insert(state) }
    }
}

@Suite struct `The counts of a batch's members` {
    /// By state: not ended, under way, resting, finished, failed, cancelled.
    @Test func `tell which run, which rest and which have ended`() {
        func counts(_ state: DownloadState) -> [UInt32] {
            let counts = MemberCounts([state])
            return [
                counts.remaining, counts.underWay, counts.resting, counts.ended.finished, counts.ended.failed, counts.ended.cancelled,
            ]
        }
        for state in [DownloadState.queued, .active, .verifying, .extracting, .committing] { #expect(counts(state) == [1, 1, 0, 0, 0, 0]) }
        for state in [DownloadState.paused, .waiting(.pausedAll, until: nil), .waiting(.needsUrl, until: nil)] {
            #expect(counts(state) == [1, 0, 1, 0, 0, 0])
        }
        #expect(counts(.waiting(.retry, until: nil)) == [1, 0, 0, 0, 0, 0])
        #expect(counts(.finished) == [0, 0, 0, 1, 0, 0])
        #expect(counts(.failed(DownloadFailure(.network, "No route."))) == [0, 0, 0, 0, 1, 0])
        #expect(counts(.cancelled) == [0, 0, 0, 0, 0, 1])
    }

    @Test func `agree with a new count after any changes`() {
        var generator = SeededRandom(1)
        for _ in 1...200 {
            var (members, counts) = ([DownloadState](), MemberCounts())
            for _ in 1...60 {
                let state = states.randomElement(using: &generator) ?? .queued
                if members.isEmpty || Bool.random(using: &generator) {
                    members.append(state)
                    counts.insert(state)
                } else {
                    let index = Int.random(in: members.indices, using: &generator)
                    if Bool.random(using: &generator) {
                        counts.move(from: members[index], to: state)
                        members[index] = state
                    } else {
                        counts.remove(members.remove(at: index))
                    }
                }
                #expect(counts == MemberCounts(members) && Int(counts.present) == members.count, "\(members)")
            }
        }
    }
}
