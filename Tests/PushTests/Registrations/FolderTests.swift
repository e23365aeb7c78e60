import TestSupport
import Testing

@testable import PushInterface

@Suite struct `The folder of registrations` {
    /// An earlier process has made the folders, and died before it flushed their names.
    @Test func `is on disk before its first record, also if it is there already`() {
        let place = TemporaryFolder("todoku-push-folder")
        let folder = PushFolder(place("push"))
        let names = ["push", "push/registrations", "push/messages"]
        for name in names { place.makeFolder(name) }
        var flushed: Set<String> = []
        let first = folder.make { flushed.insert($0) }
        #expect(first == 0 && flushed.isSuperset(of: names.map { place("\($0)/..") }), "\(flushed)")
        // Whoever has had the lock has flushed the folders before.
        let isLocked = folder.lock(within: .zero) != nil
        flushed = []
        let second = folder.make { flushed.insert($0) }
        #expect(isLocked && second == 0 && flushed.isEmpty, "\(flushed)")
    }

    @Test func `is made with each missing folder above it, also one whose name begins with a combining mark`() {
        let place = TemporaryFolder("todoku-push-folder")
        let code = PushFolder(place("state/\u{301}a/push")).make()
        #expect(code == 0 && fileExists(place("state/\u{301}a/push/messages")))
    }
}
