internal import DBus
internal import DownloaderInterface
internal import Glibc
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `Updates of several assets` {
    /// The numbers of files of the archives that are tried one after another, until two extractions take long enough to be stopped.
    private static let counts = [3_000, 12_000, 48_000]

    /// The processes that unpack for the service, and whether each is stopped (SIGSTOP).
    private func unpackers(of service: pid_t) -> [(pid: pid_t, isStopped: Bool)] {
        listFolder("/proc").compactMap { pid_t($0) }.compactMap { pid -> (pid: pid_t, isStopped: Bool)? in
            let status = String(decoding: readFile("/proc/\(pid)/status") ?? [], as: UTF8.self)
            guard status.hasPrefix("Name:\ttodokud-unpack\n"), status.contains("\nPPid:\t\(service)\n") else { return nil }
            return (pid: pid, isStopped: status.contains("\nState:\tT"))
        }
    }

    @Test func `unpack two at a time: a download on their disk ends, and an update that waits for its turn may be given up`() async throws {
        let desk = try await Desk.start()
        let (client, service) = (desk.client, desk.running.daemon.pid)
        writeFile(desk.publisher.folder("file"), patternBytes(1000))
        var isCaught = false
        for (round, count) in Self.counts.enumerated() where !isCaught {
            await desk.publisher.publish("\(round)", size: 1_000_000, count: count)
            let names = ["a", "b", "c", "d"].map { "\($0)\(round)" }
            var assets: [ObjectPath] = []
            for name in names { assets.append(try await desk.register(name)) }
            func isInstalled(_ name: String) -> Bool { desk.version(at: "\(desk.directory(name))/current") == "\(round)" }
            func isUnpacked(_ name: String) -> Bool {
                listFolder(desk.directory(name)).contains { $0.hasPrefix("version-") && !$0.hasSuffix(".archive") }
            }
            let updates = assets.map { asset in Task { try? await desk.update(asset) } }
            var held: Set<pid_t> = []
            attempt: do {
                defer { for pid in held { kill(pid, SIGCONT) } }
                // Stops the processes that unpack, until two are stopped. On a busy machine, some end before.
                var stopped: [pid_t] = []
                let isOver = await eventually(within: .seconds(180)) {
                    let found = unpackers(of: service)
                    stopped = found.filter { $0.isStopped }.map { $0.pid }
                    let isAnyLeft = stopped.count + names.count { isInstalled($0) } < names.count
                    if stopped.count >= 2 || !isAnyLeft { return true }
                    for one in found where !one.isStopped {
                        kill(one.pid, SIGSTOP)
                        held.insert(one.pid)
                    }
                    return false
                }
                #expect(isOver)
                // Only if no extraction was before these two, the other updates have not begun theirs.
                guard stopped.count >= 2, !names.contains(where: { isUnpacked($0) }) else { break attempt }
                let haveCome = try await eventually(within: .seconds(180)) {
                    for asset in assets {
                        let stage = try await client.get(Asset.stage, at: asset)
                        guard stage == "extracting" || stage == "ready" else { return false }
                    }
                    return true
                }
                #expect(haveCome)
                // To be verified, the file needs a thread of the disk.
                try await desk.running.fetch(desk.publisher.server.url("/file"))
                let begun = names.filter { name in listFolder(desk.directory(name)).contains { !$0.hasSuffix(".archive") } }
                // A process that had told its end before the signal is killed.
                let still = Set(unpackers(of: service).filter { $0.isStopped }.map { $0.pid })
                guard still.isSuperset(of: stopped) else { break attempt }
                isCaught = true
                #expect(begun.count == 2, "\(begun)")
                if let (name, asset) = zip(names, assets).first(where: { name, _ in !begun.contains(name) }) {
                    try await client.call(Manager.unregisterAsset, (asset, true))
                    #expect(!fileExists(desk.directory(name)))
                }
            }
            for update in updates { _ = await update.value }
            // A call may have given up before the end of its update.
            let most = isCaught ? 3 : 4
            let areInstalled = await eventually(within: .seconds(180)) { names.count { isInstalled($0) } == most }
            #expect(areInstalled, "\(names.filter { isInstalled($0) })")
        }
        #expect(isCaught)
    }
}
