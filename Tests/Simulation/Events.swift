// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// The events of a step.
extension World {
    func pick(_ index: Int, _ isWanted: (ScheduledDownload) -> Bool = { _ in true }) -> ScheduledDownload? {
        let all = scheduler.entries.values.filter { $0.isEntered && isWanted($0) }.sorted { $0.number < $1.number }
        return all.isEmpty ? nil : all[index % all.count]
    }

    func happen(_ step: Step) {
        switch step.kind {
        case .add: add(step.a, step.b)
        case .steer: steer(step.a, step.b)
        case .all: all(step.b)
        case .batch: steerBatch(step.a, step.b)
        case .slice: slice()
        case .setting: setting(step.a, step.b)
        case .transfer: transfer(step.a, step.b)
        case .pool: work(step.a, step.b)
        case .commit: commit(step.b)
        case .owner where step.b % 16 == 1: describe(step.a % 4)
        case .owner: if step.b % 4 == 0 { acknowledge(step.a) } else { callOwner() }
        case .toast: showToast()
        case .clock:
            now = now + .milliseconds([100, 700, 3000, 40_000, 400_000][step.b % 5])
            tell("the clock is at +\((now - WallTime(microseconds: 1_000_000_000_000_000)) / .seconds(1)) s")
            decide(.time)
        case .jump:
            let delta: Duration = .seconds([-5000, 5000, 90_000][step.b % 3])
            tell("the clock is set by \(delta)")
            now = now + delta
            floors = floors.mapValues { $0 + delta }
            originFloors = originFloors.mapValues { $0.mapValues { $0 + delta } }
            for origin in slowness.keys { slowness[origin]?.shift(by: delta) }
            requestedAt = requestedAt.mapValues { $0 + delta }
            shiftFurther(by: delta)
            commonFloors = commonFloors.mapValues { ($0.since + delta, $0.until + delta) }
            lastSent = [:]  // the saved requests have the old clock's times until they are saved again
            decide(.clockJumped(delta))
            assets?.clockIsSet()
        case .server:
            let index = step.a % resources.count
            // A refusal delays other applications only for a while, and downloads must arrive in that time: so refusals are frequent.
            let mood = step.b % 13 < 9 ? step.b % 13 : 3
            if hasMirrors { return changeSource(of: index, mood, step.b) }
            resources[index].mood = mood
            if step.b % 4 == 0 {
                resources[index].version += 1
                if step.b % 8 == 0 { resources[index].size = 500 + ByteCount(step.b % 1000) }
            }
            tell("server \(index): version \(resources[index].version), mood \(resources[index].mood)")
        case .disk:
            if step.a % 2 == 0 { return touch(step.a / 2, step.b / 2) }
            if step.b % 2 == 0 { disk.isFull.toggle() } else { disk.isFolderThere.toggle() }
            tell("disk: \(disk.isFull ? "full" : "room"), folder \(disk.isFolderThere ? "there" : "gone")")
            probe()
        case .network:
            let bad: [NetworkCondition?] = [
                nil, .init(reach: .limited), .init(reach: .offline), .init(reach: .captive), .init(isMetered: true),
            ]
            network(network == .open ? bad[step.b % bad.count] : .open)
        case .sleep: sleep(!isAsleep)
        case .assetCall: assets?.call(step.a, step.b)
        case .publish: assets?.publish(step.a, step.b)
        case .spoil: assets?.spoil(step.a, step.b)
        case .flow: flow(2 + step.a % 40)
        case .kill where step.b % 4 == 0: leave()
        case .kill: restart(power: false)
        case .powerCut: restart(power: true)
        }
    }

    /// Another program writes or deletes a finished file.
    private func touch(_ a: Int, _ b: Int) {
        // Half of the time, a file that a later download may find unchanged.
        let copies = a % 2 == 1 || plant == .credulous ? saved.copies.values.map(\.path).filter { disk.finals[$0] != nil } : []
        let paths = (copies.isEmpty ? Array(disk.finals.keys) : copies).sorted()
        guard !paths.isEmpty else { return }
        spoil(paths[a % paths.count], deletes: b % 2 == 0)
    }

    func spoil(_ path: String, deletes: Bool) {
        tell("\(path) is \(deletes ? "deleted" : "written") by somebody")
        for (number, file) in finishedPaths where file.path == path { finishedPaths[number] = nil }
        strangers.insert(path)
        assetMachine?.touched.insert(path)
        if deletes { return disk.finals[path] = nil }
        disk.finals[path]?.modified += 1
        disk.finals[path]?.content = Content()
        disk.finals[path]?.content.append(-1, upTo: 500)
    }

    func probe() {
        for directory in scheduler.awaitedFolders {
            decide(.folderSeen(directory.text, free: disk.isFolderThere ? (disk.isFull ? 10 : 1 << 40) : nil))
        }
    }

    /// In a world of mirrors: one source of a resource gets another mood, or begins or ceases to send wrong bytes. Sometimes, all sources
    /// get a new version.
    private func changeSource(of index: Int, _ mood: Int, _ b: Int) {
        let source = b / 13 % 3
        if b / 39 % 2 == 0 {
            if source == 0 { resources[index].mood = mood } else { resources[index].mirrorMoods[source - 1] = mood }
        } else if resources[index].wrong.remove(source) == nil {
            resources[index].wrong.insert(source)
        }
        if b / 78 % 8 == 0 { resources[index].version += 1 }
        let resource = resources[index]
        let moods = [resource.mood] + resource.mirrorMoods
        tell("resource \(index): version \(resource.version), moods \(moods), wrong \(resource.wrong.sorted())")
    }

    func network(_ condition: NetworkCondition?) {
        tell("network: \(condition.map { "\($0.reach)\($0.isMetered ? ", metered" : "")" } ?? "nobody knows yet")")
        if condition?.reach != network?.reach { (defying, mayDefy) = ([], resuming.filter(isBeingResumed)) }
        network = condition
        if plant != .severed { decide(.network(condition)) }
    }

    func sleep(_ sleeps: Bool) {
        tell(sleeps ? "the machine goes to sleep" : "the machine is awake")
        isAsleep = sleeps
        if plant == .restless { return }
        decide(sleeps ? .sleeps : .wakes)
    }

    private func add(_ a: Int, _ b: Int) {
        if b % 16 == 7, addAgain(a) { return }
        guard b % 8 == 0 else {
            return executor.add(makeRecord(a, b)) { [self] entry in
                checkSaved(entry)
                send(.added(entry.number))
            } undone: { _, _ in
                nil
            }
        }
        let count = 1 + a % 3
        let number = nextNumber
        nextNumber = DownloadNumber(number.value + 1)
        tell("add batch \(number) of \(count)")
        let members = (0..<count).map { index in
            var record = makeRecord(a + index, b + index * 7)
            record.batch = number
            return record
        }
        var record = BatchRecord(number: number, count: UInt32(count))
        record.notify = [.background, .never][b / 8 % 2]
        var prepared = PreparedMembers()
        for member in members { scheduler.prepare(member, in: &prepared) }
        let entries = prepared.entries
        executor.add(record, prepared) { [self] batch in
            if saved.batches[batch.number] == nil { fail("batch \(batch.number) is acknowledged and not on disk") }
            for entry in entries where !entry.isRemoved { checkSaved(entry) }
            entering = batch
            post(.batchAdded(batch))
            gate.postSeries(about: entries[0].number, count: entries.count) { .added(entries[$0].number) }
        } undone: { _, _ in
            nil
        }
    }

    /// A caller has got no answer yet, and repeats its call with the same token.
    ///
    /// - Returns: false if no call waits for an answer.
    private func addAgain(_ a: Int) -> Bool {
        let unsaved = scheduler.entries.values.filter { !$0.isEntered }.sorted { $0.number < $1.number }
        guard !unsaved.isEmpty else { return false }
        let entry = unsaved[a % unsaved.count]
        tell("add \(entry.number) again")
        executor.answer(repeating: entry) { [self] in
            // By the time of the answer, another call may have removed the download.
            if !removals.contains(entry.number) { checkSaved(entry) }
            return .added(entry.number)
        } failure: { _ in
            nil
        }
        return true
    }

    func checkSaved(_ entry: ScheduledDownload) {
        if saved.records[entry.number] == nil { fail("\(entry.number) is acknowledged and not on disk") }
        acknowledged.insert(entry.number)
    }

    /// The file that an application has and asks for again, as it often does; nil: none.
    private func knownCopy(_ a: Int) -> CopyKey? {
        guard a % 2 == 1 || plant == .credulous else { return nil }
        let known = saved.copies.keys.filter { $0.directory == Self.directory && Self.resource(of: $0.url) != nil }
        let ordered = known.sorted { ($0.app, $0.url, $0.wantedName ?? "") < ($1.app, $1.url, $1.wantedName ?? "") }
        return ordered.isEmpty ? nil : ordered[a / 2 % ordered.count]
    }

    private static func resource(of url: String) -> Int? { url.split(separator: "/").last.flatMap { Int($0) } }

    private func makeRecord(_ a: Int, _ b: Int) -> DownloadRecord {
        var options = DownloadOptions()
        let again = knownCopy(a)
        let resource = again.flatMap { Self.resource(of: $0.url) } ?? a % resources.count
        if b % 5 == 0 { options.checksum = Checksum(.md5, digest: [UInt8](repeating: 1, count: 16)) }
        if b % 7 == 0 { options.deadline = .seconds(30) }
        if b % 11 == 0 { options.notBefore = now + .seconds(b % 600) }
        if b % 3 == 0 { options.renewable = true }
        if b % 4 == 1 { options.activate = "org.example.App" }
        if b % 13 == 0 { options.ifExists = [.replace, .skip, .fail][a % 3] }
        if b % 17 == 0 { options.fileName = "same" }
        options.onlyIfChanged = b % 2 == 0 || plant == .credulous
        options.retries = UInt32(b % 4)
        options.allowsMetered = b % 4 != 1
        options.priority = Int32(b % 3)
        options.desktopID = [nil, DesktopID("org.example.A"), DesktopID("org.example.B")][b / 3 % 3]
        options.showProgress = b % 19 != 0
        options.notify = [.background, .always, .never][b / 5 % 3]
        options.app = Self.apps[a / 6 % 3]
        if let again { (options.app, options.fileName, options.onlyIfChanged) = (again.app, again.wantedName, true) }
        let isArchive = a % 3 == 1 && !options.onlyIfChanged && options.ifExists != .replace && b % 23 != 1 && again == nil
        if isArchive { options.extract = .namedAfterArchive }
        if a % 23 == 0 { options.requestInterval = .seconds(1 + a % 2) }
        options.mirrors = mirrors(of: resource, a / 7)
        if !options.mirrors.isEmpty {
            options.onlyIfChanged = false
            if b % 5 < 3 { options.checksum = Checksum(.md5, digest: [UInt8](repeating: 1, count: 16)) }
        }
        let number = nextNumber
        nextNumber = DownloadNumber(number.value + 1)
        let host = resource == 4 ? "127.0.0.1" : "h\(resource % 2)"
        // Downloads that may share a cached copy have the same origin.
        let origins = ["http://\(host)", "https://\(host)", "http://\(host):8080"]
        let start = options.onlyIfChanged ? origins[0] : origins[a / 18 % 3]
        var record = DownloadRecord(
            number: number, url: again?.url ?? "\(start)/\(resource)", options: options,
            directory: Self.directory, state: .paused,
            queuedAt: now, position: DownloadQueue.position(of: number))
        (record.isFetch, record.isToDescriptor) = (b % 8 == 0 && !isArchive, b % 23 == 1)
        if record.isToDescriptor {
            record.directory = ""
            descriptors.insert(number)
        }
        if b % 19 != 0 { record.state = record.obstacle(now: now, paused: scheduler.settings.paused) }
        tell("add \(number): \(record.url)\(options.checksum == nil ? "" : ", checksum")")
        wanted[number] = resources[resource].version
        return record
    }

    /// A person resumes the download: its servers' pauses and the state of the network no longer delay it.
    private func isResumed(_ entry: ScheduledDownload) {
        if !entry.state.hasEnded { isWantedAtOnce(entry.number) }
        // Nothing delays an active download, so a resume has no effect, not even on a later redirect. The same of one whose file is
        // verified or named, even if a wrong checksum then makes it fetch the file again.
        if entry.state == .active && !scheduler.isHeld(entry) || [.verifying, .committing].contains(entry.state) {
            hastened.remove(entry.number)
        }
        // The same of a queued download that no server's pause delays now.
        let isSlowed = scheduler.slowedOrigins(now: now)[origin(of: entry.record)] != nil
        if entry.state == .queued, !isSlowed { hastened.remove(entry.number) }
        // PauseAll may not have reached the download yet.
        switch scheduler.upcoming(entry, now: now) ?? entry.state {
        case .waiting(.retry, _): floors[entry.number] = nil
        case .waiting(.offline, _):
            floors[entry.number] = nil
            defying.insert(entry.number)
        case .waiting(let reason, _) where ![.diskSpace, .destination].contains(reason):
            hastened.remove(entry.number)  // Resume does not end this wait
        default: break
        }
    }

    func isWantedAtOnce(_ number: DownloadNumber) {
        urgent.insert(number)
        hastened.insert(number)
    }

    private func steer(_ a: Int, _ b: Int) {
        guard let entry = pick(a) else { return }
        // As in the service, Remove is refused for the archive of an update.
        if b % 8 == 7, assets?.isArchive(entry.number) == true { return }
        let number = entry.number
        switch b % 8 {
        case 0:
            hastened.remove(number)
            decide(.steer(entry, .pause))
        case 1, 2:
            isResumed(entry)
            decide(.steer(entry, .resume))
        case 3: decide(.steer(entry, .cancel))
        case 4, 5: retry(entry)
        case 6:
            guard let url = try? DownloadURL(entry.record.url + "?fresh") else { break }
            renew(entry, FreshLink(url))
        default:
            let wasRemoved = !removals.insert(number).inserted
            if decide(.remove(entry)) != nil, !wasRemoved { removals.remove(number) }
        }
        tell("\(["pause", "resume", "resume", "cancel", "retry", "retry", "renew", "remove"][b % 8]) \(number): now \(entry.state.name)")
    }

    /// - Returns: whether the state of the download allows it.
    @discardableResult func retry(_ entry: ScheduledDownload) -> Bool {
        // Compute the effects of the retry before its actions are performed.
        let before = (urgent, hastened, revivals, batchRevivals, floors, finishedPaths, cancelledByAll, blamed)
        isWantedAtOnce(entry.number)
        revive(entry.number)
        // If all sources had wrong bytes, they may have been repaired.
        if entry.record.knownSources.allSatisfy({ $0.left == .wrongBytes }) { blamed[entry.number] = nil }
        if decide(.steer(entry, .retry)) == nil { return true }
        (urgent, hastened, revivals, batchRevivals, floors, finishedPaths, cancelledByAll, blamed) = before
        return false
    }

    /// - Returns: whether the state of the download allows a fresh link.
    @discardableResult func renew(_ entry: ScheduledDownload, _ link: FreshLink) -> Bool {
        let before = (urgent, revivals, batchRevivals, floors, finishedPaths, cancelledByAll, blamed)
        urgent.insert(entry.number)
        floors[entry.number] = nil
        if entry.state.hasEnded { revive(entry.number) }
        // Nothing is known of the fresh link. The faults of the mirrors stay.
        blamed[entry.number]?.remove(0)
        if decide(.replaceUrl(entry, link)) == nil { return true }
        (urgent, revivals, batchRevivals, floors, finishedPaths, cancelledByAll, blamed) = before
        return false
    }

    /// An owner acknowledges an outcome; the answer follows once that is on disk.
    private func acknowledge(_ a: Int) {
        guard let entry = pick(a, { $0.record.options.activate != nil && $0.state.hasEnded }) else { return }
        decide(.acknowledge(entry))
        tell("acknowledge \(entry.number)")
        post(.taken(entry.number, revival: revivals[entry.number, default: 0]))
    }

    private func revive(_ number: DownloadNumber) {
        if let batch = scheduler[number]?.batch { batchRevivals[batch.number, default: 0] += 1 }
        revivals[number, default: 0] += 1
        cancelledByAll.remove(number)
        if scheduler[number]?.state == .cancelled, saved.records[number]?.state != .cancelled { cancelledTwice.insert(number) }
        (floors[number], finishedPaths[number]) = (nil, nil)
    }

    private func steerBatch(_ a: Int, _ b: Int) {
        let all = scheduler.batches.values.filter(\.isEntered).sorted { $0.number < $1.number }
        guard !all.isEmpty else { return }
        let batch = all[a % all.count]
        tell("\(["pause", "resume", "cancel", "remove"][b % 4]) batch \(batch.number)")
        switch b % 4 {
        case 0:
            hastened.subtract(scheduler.members(of: batch).map(\.number))
            decide(.steerBatch(batch, .pause))
        case 1:
            for entry in scheduler.members(of: batch) { isResumed(entry) }
            decide(.steerBatch(batch, .resume))
            // By the time of its slice, the wait of a member may be one that Resume does not end.
            if scheduler.hasSlices {
                hastened.subtract(scheduler.members(of: batch).map(\.number))
                resuming.formUnion(scheduler.members(of: batch).map(\.number))
                // The network is lost, and the news has not reached all members. A member that hears of it before its slice is resumed.
                if network?.reach == .offline || network?.reach == .captive { mayDefy.formUnion(resuming) }
            }
        case 2:
            let members = scheduler.members(of: batch).map(\.number)
            call(.cancels, members) { .steerBatch(batch, .cancel, answering: $0) }
        default:
            removals.formUnion(scheduler.members(of: batch).map(\.number))
            decide(.removeBatch(batch))
        }
    }

    private func all(_ b: Int) {
        tell(["pause all", "resume all", "resume all", "cancel all", "clear ended"][b % 5])
        switch b % 5 {
        case 0:
            decide(.pauseAll)
            post(.allPaused(resumes: resumes))
        case 1, 2: resumeAll()
        case 3: call(.cancelsAll, scheduler.order.ordered) { .cancelAll(answering: $0) }
        default:
            let spared = plant == .sweeping ? [] : assets?.archives ?? []
            let numbers = scheduler.ended.ordered.filter { !spared.contains($0) }
            removals.formUnion(numbers)
            call(.clears, numbers) { .clearEnded(answering: $0, sparing: spared) }
        }
    }

    private func setting(_ a: Int, _ b: Int) {
        switch b % 6 {
        case 4, 5:
            let host = ["h0", "h1", "*"][a % 3]
            let rule = [
                HostRule(), HostRule(connections: UInt32(b % 3)), HostRule(requestInterval: .seconds(1 + b % 5)),
                HostRule(connections: 1, requestInterval: .milliseconds(500)),
            ][b / 6 % 4]
            tell("the rule of \(host): \(rule)")
            (lastSent, passes) = ([:], [:])
            for origin in slowness.keys { slowness[origin]?.ruleChanged() }
            for number in transfers.keys { transfers[number]?.isPaced = false }
            unpaced.formUnion(delayed)
            set { try? $0.hostRules.set(host, rule) }
        case 0: set { $0.maxActive = a % 5 == 4 ? Settings.automatic : UInt32(a % 5) }
        case 1: set { $0.maxPerHost = UInt32(a % 3) }
        case 2: if let entry = pick(a, { !$0.state.hasEnded }) { move(entry, to: UInt32(b % 5)) }
        case 3 where b / 6 % 2 == 0: changeFolder(a, b / 12)
        default: if let entry = pick(a, { !$0.state.hasEnded }) { decide(.setPriority(entry, Int32(b % 5))) }
        }
    }

    /// As in the service, downloads of `Fetch` and updates of assets keep their folders.
    private func changeFolder(_ a: Int, _ b: Int) {
        guard let entry = pick(a, { $0.mayChangeFolder && !$0.record.isFetch }), assets?.isArchive(entry.number) != true else { return }
        let directory = [Self.directory, "/e"][b % 2]
        decide(.setDirectory(entry, directory))
        disk.turn(entry.number, to: entry.record.directory)
        tell("the folder of \(entry.number) is \(directory)")
    }

    private func set(_ change: (inout Settings) -> Void) {
        var settings = scheduler.settings
        change(&settings)
        decide(.set(settings))
    }

    private func move(_ entry: ScheduledDownload, to place: UInt32) {
        passes = [:]  // a download moved to the front gets an extra turn
        decide(.move(entry, to: place))
    }

    /// One step of the store: a commit begins, succeeds or fails.
    func commit(_ b: Int) {
        guard let changes = inFlight else {
            guard isCommitDue else { return }
            isCommitDue = false
            inFlight = gate.beginCommit()
            return
        }
        if anew == nil, gate.owesEverything || b % 40 == 2 {
            tell("the database is lost")
            gate.owesEverything = true
            anew = NewDatabase(scheduler.walkRows(), changes)
        }
        if anew?.isWhole == false { return gatherRows() }
        if b % 40 == 1, !isEnding {
            tell("a commit hangs")
            (isHanging, owesRecovery) = (true, true)
            return gate.commitHangs(Refusal(.storage, "hangs"))
        }
        let rows = anew?.rows
        (inFlight, anew, isHanging) = (nil, nil, false)
        if b % 10 == 0 {
            tell("a commit fails")
            gate.commitFailed(Refusal(.storage, "full"))
        } else {
            if rows != nil { (saved, gate.owesEverything) = (Saved(), false) }
            for change in rows ?? changes { saved.take(change, plant) }
            saved.next = max(saved.next, nextNumber)
            gate.commitSucceeded()
        }
        gate.release()
        if gate.failures == 0, owesRecovery {
            owesRecovery = false
            decide()
        }
        gate.commitIsOver()
    }

    /// One part of the rows for the new database. Calls and transfers continue between two parts.
    private func gatherRows() {
        if let part = scheduler.nextRows(&anew!.walk) {
            anew?.rows += part.filter { plant != .partial || !isWithoutPlace($0) }
        } else {
            anew?.rows += assets?.rows ?? []
            anew?.rows += gate.extendCommit()
            anew?.isWhole = true
        }
    }

    /// Whether the row is of a download that has no place in the queue yet.
    private func isWithoutPlace(_ row: StoreChange) -> Bool {
        if case .put(let record) = row { scheduler[record.number]?.isEntered == false } else { false }
    }

    func resumeAll() {
        isPausedForGood = false
        resumes += 1
        decide(.resumeAll)
    }
}
