import EventLoop
import Glibc
import Synchronization
import TestSupport
import Testing

@testable internal import PartFiles

/// Flushes that wait for a gate.
private final class SlowFlushes: Sendable {
    let gate = Gate()
    /// The number of flushes that have begun, and the results that threads have got.
    private let log = Mutex<(begun: Int, results: [Int32])>((0, []))
    private let shared = Mutex<SharedFlushes?>(nil)

    init(_ code: @escaping @Sendable (_ number: Int) -> Int32 = { _ in 0 }) {
        let flushes = SharedFlushes { [weak self] _ in
            guard let self else { return EIO }
            let number = log.withLock { log in
                log.begun += 1
                return log.begun
            }
            gate.wait()
            return code(number)
        }
        shared.withLock { $0 = flushes }
    }

    private var flushes: SharedFlushes? { shared.withLock { $0 } }

    var begun: Int { log.withLock { $0.begun } }
    var results: [Int32] { log.withLock { $0.results } }
    var threads: Int { flushes?.threads ?? 0 }

    /// Flushes the folder on a thread of its own.
    func start(_ path: String) {
        startThread("flush") { [self] in
            guard let folder = try? OpenFolder.open(path, allowHidden: true), let flushes else { return }
            let code = flushes.flush(folder)
            log.withLock { $0.results.append(code) }
        }
    }
}

@Suite(.timeLimit(.minutes(5))) struct `Flushes of a folder` {
    let folder = TemporaryFolder("todoku-flush")

    @Test func `that begin during one share the next, and its failure`() async {
        let flushes = SlowFlushes { $0 == 1 ? 0 : EIO }
        defer { flushes.gate.open() }
        flushes.start(folder.path)
        #expect(await eventually { flushes.begun == 1 })
        for _ in 0..<3 { flushes.start(folder.path) }
        #expect(await eventually { flushes.threads == 4 })
        #expect(flushes.begun == 1 && flushes.results.isEmpty)
        flushes.gate.open()
        #expect(await eventually { flushes.results.count == 4 })
        #expect(flushes.begun == 2 && flushes.results.sorted() == [0, EIO, EIO, EIO])
        #expect(flushes.threads == 0)
    }

    @Test func `do not wait for another folder, not even for one that had its path`() async {
        let flushes = SlowFlushes()
        defer { flushes.gate.open() }
        let path = folder.makeFolder("a")
        flushes.start(path)
        #expect(await eventually { flushes.begun == 1 })
        #expect(rename(path, folder("b")) == 0)
        _ = folder.makeFolder("a")
        flushes.start(path)
        #expect(await eventually { flushes.begun == 2 })
        flushes.start(folder.makeFolder("c"))
        #expect(await eventually { flushes.begun == 3 })
        flushes.gate.open()
        #expect(await eventually { flushes.results == [0, 0, 0] })
    }

    @Test func `that follow each other are not shared`() async {
        let flushes = SlowFlushes()
        flushes.gate.open()
        for count in 1...3 {
            flushes.start(folder.path)
            #expect(await eventually { flushes.results.count == count && flushes.begun == count })
        }
    }
}
