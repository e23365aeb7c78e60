import Testing

@testable import Scheduling

@Suite struct `The turn at a host` {
    private func claim(_ app: String, _ origin: String? = nil, _ requestInterval: Duration = .zero) -> HostTurns.Claim {
        HostTurns.Claim(app: app, slowedOrigin: origin, requestInterval: requestInterval)
    }

    @Test func `is counted by application, origin and interval`() {
        var turns = HostTurns()
        turns.took(claim("A"))
        turns.took(claim("B"))
        #expect(turns.last(claim("C")) < turns.last(claim("A")) && turns.last(claim("A")) < turns.last(claim("B")))
        #expect(turns.last(claim("B", "http://h:80")) < turns.last(claim("A")))
        turns.took(claim("A"))
        turns.comesNext(claim("B"))
        #expect(turns.last(claim("B")) < turns.last(claim("A")))
    }

    @Test(
        arguments: [
            ("http://h:80", .zero, "http://h:80", .seconds(1), true), ("http://h:80", .zero, "http://h:81", .zero, false),
            (nil, .seconds(1), nil, .seconds(1), true), (nil, .seconds(1), nil, .seconds(2), false), (nil, .zero, nil, .zero, false),
        ] as [(String?, Duration, String?, Duration, Bool)])
    func `is awaited by downloads with the same interval`(
        origin: String?, requestInterval: Duration, otherOrigin: String?, otherSpacing: Duration, isSame: Bool
    ) {
        #expect(claim("A", origin, requestInterval).contends(with: claim("B", otherOrigin, otherSpacing)) == isSame)
    }

    @Test func `comes to every application, however many there are`() {
        var turns = HostTurns()
        let claims = (0..<3000).map { claim("app \($0)") }
        var had = [Int](repeating: 0, count: claims.count)
        for _ in 0..<6000 {
            // Among claims that waited equally long, the one with the fewest turns; in the scheduler, the one queued first.
            let next = claims.indices.min { (turns.last(claims[$0]), had[$0]) < (turns.last(claims[$1]), had[$1]) } ?? 0
            turns.took(claims[next])
            had[next] += 1
        }
        #expect(had.allSatisfy { $0 > 0 })
    }
}
