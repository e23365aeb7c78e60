internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import EventLoop

@Suite struct `The table of mounts` {
    private static let table = MountTable(
        Array(
            """
            22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
            30 22 0:26 / /home rw - tmpfs tmpfs rw
            31 30 0:40 / /home/u/My\\040stick rw - fuse.x x rw
            32 22 0:41 / /mnt rw - nfs nas:/a rw
            33 22 0:42 / /mnt rw - nfs nas:/b rw
            a line that cannot be read
            34 22

            """.utf8))

    @Test(arguments: [
        ("/etc/passwd", "8:2"), ("/", "8:2"), ("/home", "0:26"), ("/homes", "8:2"), ("/home/u/My stick/a/b", "0:40"),
        ("/home/u/My stick", "0:40"), ("/home/u/My stickers", "0:26"), ("/mnt/x", "0:42"), ("//mnt/./x/", "0:42"), ("/mnt/../etc", "8:2"),
    ])
    func `tells the disk of a path by the longest mount point above it`(path: String, disk: String) {
        #expect(Self.table.disk(of: path) == DiskKey(name: disk))
    }

    @Test func `tells the disk of a mount by its number, and keeps unlisted ones apart`() {
        #expect(Self.table.disk(ofMount: 31) == DiskKey(name: "0:40"))
        #expect(Self.table.disk(ofMount: 12) != Self.table.disk(ofMount: 13))
        #expect(MountTable([]).disk(of: "/a") == DiskKey(name: ""))
    }

    @Test func `is read again until it can be read`() {
        let folder = TemporaryFolder("todoku-mounts")
        var mounts = MountWatch(path: folder("mountinfo"))
        // The missing file has the same effect as a process that has too many open files: the table cannot be read.
        let unread = mounts.current()
        writeFile(folder("mountinfo"), "22 1 8:2 / / rw - ext4 /dev/sda2 rw\n".utf8)
        let read = mounts.current()
        #expect(unread.disk(of: "/a") == DiskKey(name: "") && read.disk(of: "/a") == DiskKey(name: "8:2"))
    }
}

@Suite(.timeLimit(.minutes(5))) struct `A pool of disks` {
    // Pools live as long as the program.
    private static let pool = DiskPool(name: "test-disks")
    private static let many = DiskPool(name: "test-many")
    private static let other = "/dev/shm"

    @Test @BusActor func `keeps a disk that hangs apart from the others, links followed`() async throws {
        let folder = TemporaryFolder("todoku-disks")
        let far = TemporaryFolder("todoku-disks", in: Self.other)
        symlink(far.path, folder("link"))
        let here = await locate(folder.path), there = await locate(folder("link/x/y"))
        try #require(here != nil && there != nil && here != there, "\(folder.path) and \(Self.other) must be two file systems")
        #expect(await locate(far.path) == there)
        // All threads of that disk hang, through links on this disk.
        let pipe = Pipe()
        let journal = Journal<Int>()
        for number in 0..<2 * DiskPool.width {
            Self.pool.perform(at: .path(folder("link"))) {
                _ = pipe.take()
            } then: {
                journal.append(number)
            }
        }
        #expect(await Self.pool.value(at: .path(folder.path), within: .seconds(60)) { 1 } == 1)
        #expect(journal.entries.isEmpty)
        pipe.put([UInt8](repeating: 1, count: 2 * DiskPool.width))
        #expect(await eventually { journal.entries.count == 2 * DiskPool.width })
    }

    @Test @BusActor func `gives up on work that does not return, and does not begin it later`() async {
        let place = DiskPlace.disk(DiskKey(name: "test"))
        let pipe = Pipe()
        let (late, begun, ended) = (Journal<Int>(), Journal<Int>(), Journal<Int?>())
        for number in 0..<DiskPool.width {
            // All must have begun by then, however busy the machine is.
            Self.pool.perform(at: place, within: .seconds(40), late: { value in BusActor.spawn { late.append(value) } }) {
                BusActor.spawn { begun.append(number) }
                _ = pipe.take()
                return number
            } then: {
                ended.append($0)
            }
        }
        #expect(await eventually { begun.entries.count == DiskPool.width })
        // No thread is free.
        let value = await Self.pool.value(at: place, within: .milliseconds(20)) {
            BusActor.spawn { begun.append(-1) }
            return 1
        }
        #expect(value == nil)
        #expect(await eventually(within: .seconds(120)) { ended.entries == Array(repeating: nil, count: DiskPool.width) })
        pipe.put([UInt8](repeating: 1, count: DiskPool.width))
        #expect(await eventually { late.entries.sorted() == Array(0..<DiskPool.width) })
        #expect(await Self.pool.value(at: place, within: .seconds(60)) { 2 } == 2)
        #expect(!begun.entries.contains(-1))
    }

    @Test @BusActor func `tells work that nobody waits for it any more`() async {
        let (begun, ended) = (Journal<Int>(), Journal<Int>())
        var patience = Duration.milliseconds(20)
        // Work that has not begun within its patience is dropped.
        while begun.entries.isEmpty {
            patience += patience
            let value: Int? = await withCheckedContinuation { continuation in
                Self.pool.perform(at: .disk(DiskKey(name: "many steps")), within: patience) { goesOn in
                    BusActor.spawn { begun.append(1) }
                    while goesOn() { sched_yield() }
                    BusActor.spawn { ended.append(1) }
                    return 1
                } then: {
                    continuation.resume(returning: $0)
                }
            }
            #expect(value == nil)
        }
        #expect(await eventually { ended.entries.count == begun.entries.count })
    }

    @Test @BusActor func `stores only the work that waits for a hanging disk`() async {
        let place = DiskPlace.disk(DiskKey(name: "full"))
        let pipe = Pipe()
        for _ in 0..<DiskPool.width {
            Self.pool.perform(at: place) {
                _ = pipe.take()
            } then: {
            }
        }
        final class Held: Sendable {}
        weak var first: Held?
        do {
            let held = Held()
            first = held
            Self.pool.perform(at: place, within: .milliseconds(1)) {
                _ = held
            } then: { _ in
            }
        }
        let before = Journal<Int>()
        for number in 0..<200 {
            Self.pool.perform(at: place, within: .milliseconds(1)) {
            } then: { _ in
                before.append(number)
            }
            if number == 100 { #expect(await eventually { before.entries.count == 101 }) }
        }
        #expect(await eventually { before.entries.count == 200 })
        #expect(first == nil)
        pipe.put([UInt8](repeating: 1, count: DiskPool.width))
    }

    /// Calls its pool in its deinit, like a descriptor that is closed there.
    private final class Closing: Sendable {
        let place: DiskPlace
        let ends: Journal<Int>
        init(_ place: DiskPlace, _ ends: Journal<Int>) { (self.place, self.ends) = (place, ends) }
        deinit {
            `A pool of disks`.pool.perform(at: place) { [ends] in
                BusActor.spawn { ends.append(1) }
            } then: {
            }
        }
    }

    @Test @BusActor func `releases work outside its locks`() async {
        let place = DiskPlace.disk(DiskKey(name: "closing"))
        let ends = Journal<Int>()
        for _ in 0..<20 {
            let value = Closing(place, ends)
            Self.pool.perform(at: place) {
                _ = value
            } then: {
            }
        }
        #expect(await eventually { ends.entries.count == 20 })
        // The same holds for dropped work.
        let pipe = Pipe()
        for _ in 0..<DiskPool.width {
            Self.pool.perform(at: place) {
                _ = pipe.take()
            } then: {
            }
        }
        let given = Journal<Int>()
        for number in 0..<200 {
            let value = Closing(place, ends)
            Self.pool.perform(at: place, within: .milliseconds(1)) {
                _ = value
            } then: { _ in
                given.append(number)
            }
            if number == 100 { #expect(await eventually { given.entries.count == 101 }) }
        }
        pipe.put([UInt8](repeating: 1, count: DiskPool.width))
        #expect(await eventually { ends.entries.count == 220 })
    }

    @Test @BusActor func `shares one more set of threads among disks beyond the most`() async {
        let pool = Self.many
        let pipe = Pipe()
        let journal = Journal<Int>()
        for number in 0..<DiskPool.mostSets {
            pool.perform(at: .disk(DiskKey(name: "many \(number)"))) {
                _ = pipe.take()
            } then: {
                journal.append(number)
            }
        }
        #expect(await pool.value(at: .disk(DiskKey(name: "one more")), within: .seconds(60)) { 1 } == 1)
        pipe.put([UInt8](repeating: 1, count: DiskPool.mostSets))
        #expect(await eventually { journal.entries.count == DiskPool.mostSets })
        #expect(await pool.value(at: .disk(DiskKey(name: "and another")), within: .seconds(60)) { 1 } == 1)
    }

    @Test @BusActor func `knows the disk of an open file`() async {
        let folder = TemporaryFolder("todoku-disks")
        let file = open(folder("a"), O_CREAT | O_RDWR | O_CLOEXEC, 0o600)
        defer { close(file) }
        let (byFile, byPath) = (await locate(.descriptor(file)), await locate(folder("a")))
        #expect(byFile != nil && byFile == byPath)
    }

    @BusActor private func locate(_ path: String) async -> DiskKey? { await locate(.path(path)) }
    @BusActor private func locate(_ place: DiskPlace) async -> DiskKey? {
        await withCheckedContinuation { done in Self.pool.locate(place, within: .seconds(60)) { done.resume(returning: $0) } }
    }
}
