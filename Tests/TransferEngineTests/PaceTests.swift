import DownloadModel
import EventLoop
import Glibc
import TestSupport
import Testing

@testable internal import TransferEngine

@Suite struct `Fair shares` {
    @Test(
        arguments: [
            (12, [], []),
            (0, [5, .infinity], [0, 0]),
            (12, [.infinity, .infinity, .infinity, .infinity], [3, 3, 3, 3]),
            (12, [1, .infinity, 2], [1, 9, 2]),
            (12, [5, 5, 5], [4, 4, 4]),
            (12, [.infinity, 5, 1], [6, 5, 1]),
            (12, [0, 0], [0, 0]),
            (12, [2, 3], [2, 3]),
            (1, [.infinity, 0.25, 0.5], [0.375, 0.25, 0.375]),
            (1e300, [.infinity, 10], [1e300, 10]),
        ] as [(Double, [Double], [Double])])
    func `leave nobody less than an equal part that it wants, and give the rest away`(amount: Double, demands: [Double], shares: [Double]) {
        #expect(fairShares(of: amount, among: demands) == shares)
    }

    @Test(arguments: 1...200 as ClosedRange<UInt64>)
    func `are never more than there is or than is wanted, and waste nothing`(seed: UInt64) {
        var random = SeededRandom(seed)
        let demands = (0..<Int.random(in: 1...30, using: &random)).map { _ in
            [0, .infinity, Double.random(in: 0...100, using: &random)].randomElement(using: &random) ?? 0
        }
        let amount = Double.random(in: 0...1000, using: &random)
        let shares = fairShares(of: amount, among: demands)
        let sum = shares.reduce(0, +)
        #expect(sum <= amount + 1e-6)
        #expect(abs(sum - min(amount, demands.reduce(0, +))) < 1e-6)
        for (share, demand) in zip(shares, demands) {
            #expect(share <= demand && share >= min(demand, amount / Double(demands.count)) - 1e-6)
        }
    }
}

/// Transfers that share a limit, without a network. The bytes of each server wait until the pace accepts them.
private struct Simulation {
    let shared = SharedPace()
    private(set) var paces: [Pace] = []
    private var arrived: [Double] = []
    private(set) var taken: [Int] = []
    var limit: UInt64

    /// - Parameter own: the own limit of each transfer; 0: none.
    init(limit: UInt64, own: [UInt64]) {
        self.limit = limit
        shared.wake(limit, idle: 0)
        paces = own.map { [shared] in Pace(shared, limit: $0) }
        (arrived, taken) = (own.map { _ in 0 }, own.map { _ in 0 })
    }

    /// - Parameter speeds: bytes per second that the servers send.
    mutating func run(_ seconds: Double, speeds: [Double], tick: Double = 0.1, piece: Int = 16384) {
        for _ in 0..<Int((seconds / tick).rounded()) {
            for (index, pace) in paces.enumerated() {
                arrived[index] += speeds[index] * tick
                while !pace.isHolding, arrived[index] >= 1 {
                    let count = pace.take(Int(min(arrived[index], Double(piece))))
                    arrived[index] -= Double(count)
                    taken[index] += count
                }
            }
            shared.deal(limit, seconds: tick, to: paces)
            for pace in paces { _ = pace.release() }
        }
    }

    /// The bytes per second that each transfer accepted within `seconds`.
    mutating func rates(_ seconds: Double, speeds: [Double], tick: Double = 0.1) -> [Double] {
        let before = taken
        run(seconds, speeds: speeds, tick: tick)
        return zip(taken, before).map { Double($0 - $1) / seconds }
    }
}

/// Whether all rates are within `share` of the expected rates.
private func areNear(_ rates: [Double], _ expected: [Double], within share: Double = 0.05) -> Bool {
    zip(rates, expected).allSatisfy { abs($0 - $1) <= share * $1 }
}

@Suite struct `A limit that is shared` {
    /// More bytes per second than any limit here.
    static let fast = 1e8

    @Test(
        arguments: [
            (1_000_000, [0, 0, 0, 0], [1e8, 1e8, 1e8, 1e8], [250_000, 250_000, 250_000, 250_000]),
            (1_000_000, [0, 0], [200_000, 1e8], [200_000, 800_000]),
            (1_000_000, [0, 0, 0], [0, 1e8, 100_000], [0, 900_000, 100_000]),
            (1_000_000, [100_000, 0, 0], [1e8, 1e8, 1e8], [100_000, 450_000, 450_000]),
            (1_000_000, [0, 0], [450_000, 1e8], [450_000, 550_000]),
            (1_000_000, [0, 0], [100_000, 300_000], [100_000, 300_000]),
            (0, [50_000, 0], [1e8, 70_000], [50_000, 70_000]),
            (1000, [0, 0], [1e6, 1e6], [500, 500]),
            (1000, [300, 0], [1e6, 1e6], [300, 700]),
            (10, [0, 0, 0, 0], [1e6, 1e6, 1e6, 1e6], [2.5, 2.5, 2.5, 2.5]),
            (.max, [0, 0], [1e8, 2e8], [1e8, 2e8]),
        ] as [(UInt64, [UInt64], [Double], [Double])])
    func `gives each its fair share`(limit: UInt64, own: [UInt64], speeds: [Double], expected: [Double]) {
        var simulation = Simulation(limit: limit, own: own)
        simulation.run(2, speeds: speeds)
        #expect(areNear(simulation.rates(20, speeds: speeds), expected))
    }

    @Test(arguments: 1...100 as ClosedRange<UInt64>)
    func `is kept in every five seconds, whatever comes`(seed: UInt64) {
        var random = SeededRandom(seed)
        let limit = UInt64(pow10(Double.random(in: 3...8, using: &random)))
        let own = (0..<Int.random(in: 1...12, using: &random)).map { _ in
            Bool.random(using: &random) ? 0 : UInt64.random(in: 1...limit, using: &random)
        }
        var simulation = Simulation(limit: limit, own: own)
        for _ in 0..<20 {
            // Transfers begin and end within the five seconds.
            var (sum, elapsed) = (0.0, 0.0)
            while elapsed < 5 {
                let speeds = own.map { _ in Bool.random(using: &random) ? 0 : Double.random(in: 0...2, using: &random) * Double(limit) }
                let tick = Double.random(in: 0.1...0.125, using: &random)
                sum += simulation.rates(3 * tick, speeds: speeds, tick: tick).reduce(0, +) * 3 * tick
                elapsed += 3 * tick
            }
            // Bytes that were earned before, and not used, add a burst and a tick.
            #expect(sum <= Double(limit) * (elapsed + 0.1 + 0.125) + Double(own.count))
        }
    }

    @Test func `is exceeded only by its burst, and fully used by transfers that alternate`() {
        var simulation = Simulation(limit: 1_000_000, own: [0, 0, 0])
        simulation.run(2, speeds: [Self.fast, 0, 0])
        var sum = 0.0
        for step in 0..<25 {
            // The other two servers alternate between much and nothing.
            sum += simulation.rates(0.2, speeds: [Self.fast, step % 2 == 0 ? 600_000 : 0, step % 3 == 0 ? 900_000 : 0]).reduce(0, +) * 0.2
        }
        #expect(abs(sum - 5_000_000) <= 150_000)
    }

    @Test func `gives one that wakes up its share within two ticks, and back when it sleeps`() {
        var simulation = Simulation(limit: 1_000_000, own: [0, 0])
        simulation.run(2, speeds: [Self.fast, 0])
        simulation.run(0.2, speeds: [Self.fast, 1_000_000])
        #expect(areNear(simulation.rates(0.5, speeds: [Self.fast, 1_000_000]), [500_000, 500_000]))
        simulation.run(1, speeds: [Self.fast, 0])  // accepts the bytes that have arrived
        #expect(areNear(simulation.rates(0.5, speeds: [Self.fast, 0]), [1_000_000, 0]))
    }

    @Test func `can be changed, lifted and set while bytes come`() {
        var simulation = Simulation(limit: 1_000_000, own: [0, 0])
        let speeds = [1e7, 1e7]
        simulation.run(1, speeds: speeds)
        simulation.limit = 100_000
        simulation.run(0.3, speeds: speeds)
        #expect(areNear(simulation.rates(5, speeds: speeds), [50_000, 50_000]))
        simulation.paces[0].limit = 20_000
        simulation.run(0.3, speeds: speeds)
        #expect(areNear(simulation.rates(5, speeds: speeds), [20_000, 80_000]))
        simulation.limit = 0
        simulation.paces[0].limit = 0
        simulation.run(0.3, speeds: speeds)
        #expect(areNear(simulation.rates(1, speeds: speeds), speeds))
        simulation.limit = 1_000_000
        simulation.run(0.3, speeds: speeds)
        #expect(areNear(simulation.rates(5, speeds: speeds), [500_000, 500_000]))
    }

    @Test func `is not exceeded by short transfers one after another`() {
        let shared = SharedPace()
        var taken = 0
        for _ in 0..<500 {  // in five seconds
            shared.wake(1_000_000, idle: 0.01)
            let pace = Pace(shared, limit: 0)
            taken += pace.take(100_000)
            pace.end()
        }
        #expect(taken <= 5_200_000)
    }
}

private func pow10(_ exponent: Double) -> Double {
    (0..<Int(exponent)).reduce(1) { product, _ in product * 10 } * (1 + 9 * (exponent - exponent.rounded(.down)))
}

@Suite struct `A limit over real servers` {
    /// Serves endless bodies: at most `speed` bytes per second each, "/?speed"; 0: as fast as the client reads.
    private static func server() -> ScriptedServer {
        ScriptedServer { request, reply in
            let speed = Int(request.target.split(separator: "?").last ?? "0") ?? 0
            let piece = [UInt8](repeating: 7, count: speed == 0 ? 65536 : max(1, speed / 50))
            reply.head(200)
            let start = ContinuousClock.now
            var sent = 0
            while reply.send(piece) {
                sent += piece.count
                if speed > 0 { pause(until: start + .seconds(1) * sent / speed) }
            }
        }
    }

    private static func fixture(_ server: ScriptedServer, _ speeds: [Int], limit: Speed) async throws -> EngineFixture {
        let fixture = await EngineFixture()
        fixture.engine.setTotalSpeedLimit(limit)
        for (index, speed) in speeds.enumerated() {
            fixture.engine.start(try fixture.request(server.url("/?\(speed)"), number: UInt64(index + 1)))
        }
        return fixture
    }

    /// The bytes per second that each of `count` transfers wrote within about `seconds`.
    private static func rates(_ fixture: EngineFixture, _ count: Int, seconds: Double) async -> [Double] {
        func written() -> [Int] {
            (1...count).map { number in
                var status = stat()
                return stat(fixture.folder(".todoku-\(number).part"), &status) == 0 ? Int(status.st_size) : 0
            }
        }
        for number in 1...count { await fixture.log.received(1, of: UInt64(number)) }
        let (before, start) = (written(), ContinuousClock.now)
        await fixture.log.wait { _ in ContinuousClock.now - start >= .seconds(seconds) }
        let (after, end) = (written(), ContinuousClock.now)
        return zip(after, before).map { Double($0 - $1) / ((end - start) / .seconds(1)) }
    }

    /// Repeats the measurement until the rates are within a tenth of the expected ones, because the machine may be busy. In a longer
    /// measurement, a late thread counts for less.
    private static func expectRates(_ fixture: EngineFixture, _ expected: [Double], _ comment: Comment) async {
        var measured: [[Double]] = []
        for seconds in [3, 3, 6, 6, 12, 12, 24, 24, 48] as [Double] {
            let rates = await rates(fixture, expected.count, seconds: seconds)
            measured.append(rates)
            if areNear(rates, expected, within: 0.1) { return }
        }
        Issue.record("\(comment): \(measured) instead of \(expected)")
    }

    @Test(.timeLimit(.minutes(15))) func `is shared by four equal ones, and what one gives up goes to the others`() async throws {
        let server = Self.server()
        let fixture = try await Self.fixture(server, [0, 0, 0, 0], limit: 2_000_000)
        await Self.expectRates(fixture, [500_000, 500_000, 500_000, 500_000], "four equal ones")
        fixture.engine.setSpeedLimit(DownloadNumber(1), 200_000)
        await Self.expectRates(fixture, [200_000, 600_000, 600_000, 600_000], "one with a limit of its own below its share")
        fixture.engine.setTotalSpeedLimit(800_000)
        await Self.expectRates(fixture, [200_000, 200_000, 200_000, 200_000], "a lower limit")
    }

    @Test(.timeLimit(.minutes(15))) func `gives what a slow server leaves to the fast one`() async throws {
        let server = Self.server()
        let fixture = try await Self.fixture(server, [100_000, 0], limit: 1_000_000)
        await Self.expectRates(fixture, [100_000, 900_000], "slow and fast")
    }

    @Test(.timeLimit(.minutes(5))) func `is kept however small it is, to the byte`() async throws {
        let file = patternBytes(3000)
        let server = ScriptedServer { _, reply in reply.respond(200, body: file) }
        let fixture = await EngineFixture()
        fixture.engine.setTotalSpeedLimit(1000)
        let start = ContinuousClock.now
        for number: UInt64 in [1, 2] { fixture.engine.start(try fixture.request(server.url("/"), number: number)) }
        for number: UInt64 in [1, 2] {
            #expect(await fixture.log.end(of: DownloadNumber(number)).complete?.size == 3000)
            #expect(fixture.part(number) == file)
        }
        #expect(ContinuousClock.now - start > .milliseconds(5600))
        // Progress comes in small steps, not all at once. If the bus loop is busy, a transfer may end before its second report, so this
        // transfer has no end. With steps of 16 KiB, 20 steps would take longer than the time limit of the test.
        let endless = Self.server()
        let seen = await fixture.log.events.count
        fixture.engine.start(try fixture.request(endless.url("/?0"), number: 3))
        await fixture.log.wait { events in
            Set(events[seen...].compactMap { if case .progress(let all) = $0 { all.first?.received } else { nil } }).count > 20
        }
    }

    @Test(.timeLimit(.minutes(5))) func `is kept for a coded body, whose pieces are accepted in parts`() async throws {
        let text = patternBytes(300_000)
        let fixture = await EngineFixture()
        writeFile(fixture.folder("text"), text)
        #expect(await Child.run(["gzip", fixture.folder("text")]).status == 0)
        let coded = try #require(readFile(fixture.folder("text.gz")))
        let server = ScriptedServer { _, reply in reply.respond(200, ["Content-Encoding": "gzip"], body: coded) }
        let start = ContinuousClock.now
        #expect(try await fixture.run(server.url("/")) { $0.speedLimit = 150_001 }.complete?.size == 300_000)
        #expect(fixture.part == text)
        #expect(ContinuousClock.now - start > .milliseconds(1700))
    }

    @Test(.timeLimit(.minutes(5))) func `holds nothing back where it is higher than the machine is fast`() async throws {
        let file = patternBytes(20_000_000)
        let server = ScriptedServer { _, reply in reply.respond(200, body: file) }
        let fixture = await EngineFixture()
        fixture.engine.setTotalSpeedLimit(.max)
        #expect(try await fixture.run(server.url("/")) { $0.speedLimit = .max }.complete?.size == 20_000_000)
        #expect(fixture.part == file)
    }
}

/// Simulates a slow server, on the server's own thread. The test itself does not wait by this function.
private func pause(until instant: ContinuousClock.Instant) {
    let left = (instant - .now) / .microseconds(1)
    if left > 0 { usleep(UInt32(min(left, 1e6))) }
}
