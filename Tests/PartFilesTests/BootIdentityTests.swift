import Glibc
import Testing

@testable internal import PartFiles

@Suite struct `The boot id of a part file's identity` {
    /// Without it, no written map is believed until the service ends.
    @Test func `is read later if there is no descriptor at first`() async {
        await #expect(processExitsWith: .success) {
            var limit = rlimit()
            precondition(getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            let most = limit.rlim_cur
            limit.rlim_cur = 0
            precondition(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            precondition(bootIdentity().isEmpty)
            limit.rlim_cur = most
            precondition(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            let known = bootIdentity()
            precondition(known.utf8.count == 36 && bootIdentity() == known, known)
        }
    }
}
