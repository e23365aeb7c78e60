internal import Glibc
internal import PartFiles

/// The speed limit of all engines together. In every tick, each engine reports the demands of its transfers, and gets their fair share.
final class TotalLimit: Sendable {
    /// An older demand no longer counts: the engine has nothing to do, or its disk hangs.
    private static let memory: Duration = .seconds(1)

    private struct State {
        var limit: UInt64 = 0
        var demands: [ObjectIdentifier: (at: SuspendingClock.Instant, all: [Double])] = [:]
    }

    // The pointer never changes, and only pthread's functions touch the mutex behind it.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    // Touched only while `mutex` is locked.
    private nonisolated(unsafe) var state = State()

    init() {
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    private func locked<R>(_ body: (inout State) -> R) -> R {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return body(&state)
    }

    /// Bytes per second; 0: no limit.
    var bytesPerSecond: UInt64 { locked { $0.limit } }

    func set(_ limit: UInt64) { locked { $0.limit = limit } }

    /// The part of the limit for one engine; 0: no limit.
    ///
    /// - Parameter demands: bytes per second for each transfer of `engine`; `.infinity`: as much as possible.
    func part(for engine: ObjectIdentifier, demands: [Double], now: SuspendingClock.Instant = .now) -> UInt64 {
        locked { state in
            state.demands = state.demands.filter { $0.key != engine && now - $0.value.at < Self.memory }
            defer { if !demands.isEmpty { state.demands[engine] = (now, demands) } }
            guard state.limit > 0, !state.demands.isEmpty else { return state.limit }
            let shares = fairShares(of: Double(state.limit), among: demands + state.demands.values.flatMap(\.all))
            let unused = max(0, Double(state.limit) - shares.reduce(0, +)) / Double(state.demands.count + 1)
            // A limit beyond 2^53 limits nothing.
            return UInt64(min(max(1, shares.prefix(demands.count).reduce(0, +) + unused), 0x1p53))
        }
    }
}
