internal import DownloadModel
internal import Glibc
internal import TestSupport
internal import Testing

@testable internal import DownloadStore

@Suite struct `The id of a state folder` {
    let folder = TemporaryFolder("todoku-instance")

    private func partNames() async throws -> PartNames {
        let store = Store(folder: folder.path)
        let opening = try await store.open { _ in }
        await store.close()
        return opening.partNames
    }

    @Test func `differs for each folder, and stays`() async throws {
        let names = try await partNames()
        #expect(names.instance.utf8.count == 8 && names.first == DownloadNumber(1))
        #expect(names.name(of: DownloadNumber(7)) == ".todoku-\(names.instance)-7.part")
        #expect(permissions(folder("instance")) == 0o600)
        #expect(try await partNames() == names)
        writeFile(folder("todoku.db"), patternBytes(8192))
        #expect(try await partNames() == names, "it does not lie in the database")
        let other = `The id of a state folder`()
        #expect(try await other.partNames().instance != names.instance)
    }

    @Test func `applies to later additions if the queue is older`() async throws {
        _ = try await withStore(folder.path) { store, _ in try await store.commit([], nextNumber: DownloadNumber(58)) }
        unlink(folder("instance"))  // as an earlier version left it
        let names = try await partNames()
        #expect(names.first == DownloadNumber(58))
        #expect(names.name(of: DownloadNumber(57)) == ".todoku-57.part")
        #expect(names.name(of: DownloadNumber(58)) == ".todoku-\(names.instance)-58.part")
    }

    @Test(arguments: [
        "", "x", "0badcafe", "0badcafe 0", "0badcafe -1", "0badcafe 99999999999999999999", "../../..; 1", "0BADCAFE 1", "0badcafe 1 1",
    ])
    func `that cannot be read is replaced`(text: String) async throws {
        writeFile(folder("instance"), text.utf8)
        let names = try await partNames()
        #expect(names.instance.utf8.count == 8 && names.instance != "0badcafe" && names.first == DownloadNumber(1))
        #expect(try await partNames() == names)
    }

    @Test func `is left out where it cannot be saved`() async throws {
        folder.makeFolder("instance")  // a folder cannot be replaced by a file
        let names = try await partNames()
        #expect(names == PartNames() && names.name(of: DownloadNumber(7)) == ".todoku-7.part")
    }

    @Test func `ends the start if this machine has no descriptor to read it, and stays`() async throws {
        let names = try await partNames()
        await #expect(processExitsWith: .success) { [path = folder.path as String] in
            var limit = rlimit()
            precondition(getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            let most = limit.rlim_cur
            limit.rlim_cur = 0
            precondition(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            let result = Result { () throws(StoreError) in try StoreFolder(path: path).readPartNames() }
            limit.rlim_cur = most
            precondition(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            guard case .failure(let error) = result else { preconditionFailure("\(result)") }
            precondition(error.reason == .storage && error.message.contains("\(path)/instance: Too many open files"), error.message)
        }
        #expect(try await partNames() == names)
    }
}
