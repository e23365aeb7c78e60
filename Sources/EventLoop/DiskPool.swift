internal import CSystem
internal import Glibc
internal import Synchronization

/// A place on a disk, which tells the `DiskPool` the disk of some work.
public enum DiskPlace: Sendable {
    /// An absolute path. Its disk is that of the path after all symbolic links.
    case path(String)
    /// An open file.
    case descriptor(Int32)
    case disk(DiskKey)
}

/// Threads for calls that wait for a disk. Each disk has a few of its own, so a hanging or slow disk delays only its own work.
///
/// The disk of a path is read from the mount table, which never hangs. Symbolic links are followed on the threads of the disk that holds
/// them. At most `mostSets` sets of threads exist, each for one kind of work of one disk. A further disk takes over an idle set. While at
/// most two sets are idle, further disks share one more set.
public final class DiskPool: Sendable {
    public static let shared = DiskPool(name: "todoku-disk")
    static let mostSets = 64
    /// Most threads of a disk for each kind of work.
    static let width = 4

    /// The kinds of work. No work waits for work of another kind.
    public enum Kind: Sendable {
        /// Work on a folder, such as stat and rename.
        case short
        /// Work on all bytes of a file, such as a verification, and its commit.
        case long
        /// The flush of a transfer, which its checkpoint waits for.
        case flush
        /// The check of the pieces of a transfer.
        case check
    }

    private struct State {
        var mounts = MountWatch()
        /// The sets of threads, the least recently used first.
        var lanes: [(disk: DiskKey, kind: Kind, pool: Pool)] = []
        var overflow: Pool?
    }

    private let name: String
    // The pointer never changes. Only pthread’s own functions touch the mutex.
    private nonisolated(unsafe) let mutex: UnsafeMutablePointer<pthread_mutex_t>
    // Every access is between lock and unlock of `mutex`.
    private nonisolated(unsafe) var state = State()

    /// - Parameter name: the threads' name, at most 15 bytes.
    public init(name: String) {
        self.name = name
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
    }

    deinit { preconditionFailure("a pool lives as long as the program") }

    /// Runs `work` on a thread for the disk of `place`, then `done` with its value on the bus loop.
    ///
    /// - Parameter takesLong: whether the work reads or flushes a file. Short work on a folder does not wait for long work.
    public func perform<R: Sendable>(
        at place: DiskPlace, takesLong: Bool = false, _ work: @escaping @Sendable () -> R,
        then done: @escaping @BusActor @Sendable (R) -> Void
    ) {
        perform(at: place, kind: takesLong ? .long : .short, work, then: done)
    }

    /// Like the function above, for work of any kind.
    public func perform<R: Sendable>(
        at place: DiskPlace, kind: Kind, _ work: @escaping @Sendable () -> R, then done: @escaping @BusActor @Sendable (R) -> Void
    ) {
        submit(at: place, kind: kind, nil) { _ in
            let result = work()
            BusActor.spawn { done(result) }
        }
    }

    /// Like the functions above, but `done` gets nil if `work` has not returned within `patience`, as on a disk that hangs. Work that has
    /// not begun by then is dropped. A value that comes later goes to `late`, which may close a descriptor.
    @BusActor public func perform<R: Sendable>(
        at place: DiskPlace, takesLong: Bool = false, within patience: Duration, late: @escaping @Sendable (R) -> Void = { _ in },
        _ work: @escaping @Sendable () -> R, then done: @escaping @BusActor @Sendable (R?) -> Void
    ) {
        perform(at: place, takesLong: takesLong, within: patience, late: late, { _ in work() }, then: done)
    }

    /// Like the function above, for work of many steps. `work` gets a function that answers false once nobody waits for the value, and asks
    /// it before each step, so that no thread of the disk is busy for nobody.
    @BusActor public func perform<R: Sendable>(
        at place: DiskPlace, takesLong: Bool = false, within patience: Duration, late: @escaping @Sendable (R) -> Void = { _ in },
        _ work: @escaping @Sendable (_ goesOn: @escaping @Sendable () -> Bool) -> R,
        then done: @escaping @BusActor @Sendable (R?) -> Void
    ) {
        let race = Race(within: patience, done)
        let ticket = race.ticket
        submit(at: place, kind: takesLong ? .long : .short, ticket) { _ in
            let result = work { !ticket.isWithdrawn.load(ordering: .relaxed) }
            BusActor.spawn { if !race.end(result) { late(result) } }
        }
    }

    /// The value of `work`; nil if it has not returned within `patience`.
    @BusActor public func value<R: Sendable>(
        at place: DiskPlace, takesLong: Bool = false, within patience: Duration, late: @escaping @Sendable (R) -> Void = { _ in },
        _ work: @escaping @Sendable () -> R
    ) async -> R? {
        await withCheckedContinuation { continuation in
            perform(at: place, takesLong: takesLong, within: patience, late: late, work) { continuation.resume(returning: $0) }
        }
    }

    /// Finds the disk of a path after all symbolic links. `done` gets nil if a disk on the way does not answer within `patience`.
    @BusActor public func locate(
        _ place: DiskPlace, within patience: Duration, then done: @escaping @BusActor @Sendable (DiskKey?) -> Void
    ) {
        if case .path = place {} else { return done(locked { Self.disk(of: place, &$0) }) }
        let race = Race(within: patience, done)
        submit(at: place, race.ticket) { disk in
            BusActor.spawn { _ = race.end(disk) }
        }
    }

    /// The disk of an absolute path, provided that none of its components is a symbolic link. Never waits.
    public func disk(byTextOf path: String) -> DiskKey { locked { $0.mounts.current().disk(of: path) } }

    /// Closes a descriptor on a thread of its disk. On a network file system close(2) waits until written data has been sent.
    public func close(_ descriptor: Int32) { submit(at: .descriptor(descriptor), nil) { _ in _ = Glibc.close(descriptor) } }

    private func locked<R>(_ body: (inout State) -> R) -> R {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return body(&state)
    }

    private func submit(
        at place: DiskPlace, kind: Kind = .short, links: Int = 0, _ ticket: Ticket?, _ work: @escaping @Sendable (DiskKey) -> Void
    ) {
        // The dropped items are released after the unlock.
        _ = locked { state in
            let disk = Self.disk(of: place, &state)
            // Submit under the lock, so that no other disk takes over the set of threads meanwhile.
            return lane(of: disk, kind, &state).submit(ticket) { [self] in
                if case .path(let path) = place, links < 40,
                    let other = pathOnOtherDisk(path, from: disk, disk: { path in locked { $0.mounts.current().disk(of: path) } })
                {
                    return submit(at: .path(other), kind: kind, links: links + 1, ticket, work)
                }
                work(disk)
            }
        }
    }

    private func lane(of disk: DiskKey, _ kind: Kind, _ state: inout State) -> Pool {
        if let index = state.lanes.firstIndex(where: { $0.disk == disk && $0.kind == kind }) {
            let lane = state.lanes.remove(at: index)
            state.lanes.append(lane)
            return lane.pool
        }
        if state.lanes.count < Self.mostSets {
            let pool = Pool(name: name, width: Self.width)
            state.lanes.append((disk, kind, pool))
            return pool
        }
        // The two idle sets that were used last keep their disks. One of them is usually the home folder's, however many other disks hang.
        let idle = state.lanes.indices.filter { state.lanes[$0].pool.isIdle }
        if idle.count > 2 {
            let pool = state.lanes.remove(at: idle[0]).pool
            state.lanes.append((disk, kind, pool))
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

    /// The mount id of an open file, from `/proc/self/fdinfo` (proc_pid_fdinfo(5)), because fstat(2) may hang.
    private static func mount(of descriptor: Int32) -> UInt64? {
        let bytes = firstBytes(of: "/proc/self/fdinfo/\(descriptor)", atMost: 1024) ?? []
        let line = bytes.split(separator: UInt8(ascii: "\n")).first { $0.starts(with: "mnt_id:".utf8) }
        return line.flatMap { UInt64(String(decoding: $0.dropFirst(7).drop { $0 <= 0x20 }, as: UTF8.self)) }
    }
}
