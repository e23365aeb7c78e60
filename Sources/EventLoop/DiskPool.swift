internal import CSystem
internal import Glibc

/// Where work of a `DiskPool` is done.
public enum DiskPlace: Sendable {
    /// An absolute path, of anything: its disk is that on which it lies once links are followed.
    case path(String)
    /// An open file.
    case descriptor(Int32)
    case disk(DiskKey)
}

/// Threads for calls that wait for a disk, a few for each disk: one that hangs or is slow holds up its own work alone.
///
/// Which disk a path lies on is read from the table of mounts, which never hangs. Links are followed on the threads of the disk on which
/// they lie. At most `mostDisks` have threads of their own at a time; while so many are at work, further ones share one more set.
public final class DiskPool: Sendable {
    public static let shared = DiskPool(name: "todoku-disk")
    static let mostDisks = 16
    /// Most threads of a disk for looks, renames and the like, and again for what may take long.
    static let width = 4

    private struct State {
        var mounts = MountWatch()
        /// In the order of their last use.
        var lanes: [(disk: DiskKey, isLong: Bool, pool: Pool)] = []
        var overflow: Pool?
    }

    private let name: String
    // The pointer never changes, and what it points to is touched by pthread’s own functions only.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    // Touched between lock and unlock of `mutex` only.
    private nonisolated(unsafe) var state = State()

    /// - Parameter name: of the threads, at most 15 bytes.
    public init(name: String) {
        self.name = name
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
    }

    deinit { preconditionFailure("a pool lives as long as the program") }

    /// Runs `work` on a thread of the disk of `place`, then `done` with its value on the bus loop.
    ///
    /// - Parameter takesLong: whether it reads a file or flushes one: nobody’s look at a folder waits for that.
    public func perform<R: Sendable>(
        at place: DiskPlace, takesLong: Bool = false, _ work: @escaping @Sendable () -> R,
        then done: @escaping @BusActor @Sendable (R) -> Void
    ) {
        submit(at: place, isLong: takesLong, nil) { _ in
            let result = work()
            BusActor.spawn { done(result) }
        }
    }

    /// The same; `done` is given nil where `work` has not come back within `patience`, as from a disk that hangs. Work that has not begun
    /// by then is not done any more; a value that comes later is given to `late`, as to close a descriptor.
    @BusActor public func perform<R: Sendable>(
        at place: DiskPlace, takesLong: Bool = false, within patience: Duration, late: @escaping @Sendable (R) -> Void = { _ in },
        _ work: @escaping @Sendable () -> R, then done: @escaping @BusActor @Sendable (R?) -> Void
    ) {
        let race = Race(within: patience, done)
        submit(at: place, isLong: takesLong, race.ticket) { _ in
            let result = work()
            BusActor.spawn { if !race.end(result) { late(result) } }
        }
    }

    /// What `work` comes to; nil where it has not come back within `patience`.
    @BusActor public func value<R: Sendable>(
        at place: DiskPlace, takesLong: Bool = false, within patience: Duration, late: @escaping @Sendable (R) -> Void = { _ in },
        _ work: @escaping @Sendable () -> R
    ) async -> R? {
        await withCheckedContinuation { continuation in
            perform(at: place, takesLong: takesLong, within: patience, late: late, work) { continuation.resume(returning: $0) }
        }
    }

    /// Finds out which disk a path lies on, all links followed; `done` is given nil where a disk on the way does not answer within
    /// `patience`.
    @BusActor public func locate(
        _ place: DiskPlace, within patience: Duration, then done: @escaping @BusActor @Sendable (DiskKey?) -> Void
    ) {
        if case .path = place {} else { return done(locked { Self.disk(of: place, &$0) }) }
        let race = Race(within: patience, done)
        submit(at: place, race.ticket) { disk in
            BusActor.spawn { _ = race.end(disk) }
        }
    }

    /// The disk on which an absolute path lies where none of its components is a link. Waits for nothing.
    public func disk(byTextOf path: String) -> DiskKey { locked { $0.mounts.current().disk(of: path) } }

    /// Closes a descriptor on a thread of its disk: on a network's file system close(2) waits for what was written.
    public func close(_ descriptor: Int32) { submit(at: .descriptor(descriptor), nil) { _ in _ = Glibc.close(descriptor) } }

    private func locked<R>(_ body: (inout State) -> R) -> R {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return body(&state)
    }

    private func submit(
        at place: DiskPlace, isLong: Bool = false, links: Int = 0, _ ticket: Ticket?, _ work: @escaping @Sendable (DiskKey) -> Void
    ) {
        // What is thrown out ends behind the lock.
        _ = locked { state in
            let disk = Self.disk(of: place, &state)
            // Under the lock, so that the lane is not given to another disk meanwhile.
            return lane(of: disk, isLong, &state).submit(ticket) { [self] in
                if case .path(let path) = place, links < 40,
                    let other = pathOnOtherDisk(path, from: disk, disk: { path in locked { $0.mounts.current().disk(of: path) } })
                {
                    return submit(at: .path(other), isLong: isLong, links: links + 1, ticket, work)
                }
                work(disk)
            }
        }
    }

    private func lane(of disk: DiskKey, _ isLong: Bool, _ state: inout State) -> Pool {
        if let index = state.lanes.firstIndex(where: { $0.disk == disk && $0.isLong == isLong }) {
            let lane = state.lanes.remove(at: index)
            state.lanes.append(lane)
            return lane.pool
        }
        if state.lanes.count < 2 * Self.mostDisks {
            let pool = Pool(name: name, width: Self.width)
            state.lanes.append((disk, isLong, pool))
            return pool
        }
        // The two that had work last stay with their disk: as a rule that of the home, however many others hang.
        let idle = state.lanes.indices.filter { state.lanes[$0].pool.isIdle }
        if idle.count > 2 {
            let pool = state.lanes.remove(at: idle[0]).pool
            state.lanes.append((disk, isLong, pool))
            return pool
        }
        let pool = state.overflow ?? Pool(name: name, width: Self.width)
        state.overflow = pool
        return pool
    }

    private static func disk(of place: DiskPlace, _ state: inout State) -> DiskKey {
        switch place {
        case .disk(let disk): disk
        case .path(let path): state.mounts.current().disk(of: path)
        case .descriptor(let number): mount(of: number).map { state.mounts.current().disk(ofMount: $0) } ?? DiskKey(name: "")
        }
    }

    /// The id of the mount of an open file, by `/proc/self/fdinfo` (proc_pid_fdinfo(5)): fstat(2) may hang.
    private static func mount(of descriptor: Int32) -> UInt64? {
        let file = open("/proc/self/fdinfo/\(descriptor)", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { _ = Glibc.close(file) }
        var bytes = [UInt8](repeating: 0, count: 1024)
        let count = read(file, &bytes, bytes.count)
        let line = bytes.prefix(max(0, count)).split(separator: UInt8(ascii: "\n")).first { $0.starts(with: "mnt_id:".utf8) }
        return line.flatMap { UInt64(String(decoding: $0.dropFirst(7).drop { $0 <= 0x20 }, as: UTF8.self)) }
    }
}
