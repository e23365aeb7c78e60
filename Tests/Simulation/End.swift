// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// The end of a history.
extension World {
    /// From now on, server, disk and network work, so every download must end. A source with wrong bytes keeps them.
    func comeToAnEnd() {
        for index in resources.indices { (resources[index].mood, resources[index].mirrorMoods) = (0, [0, 0]) }
        (disk.isFull, disk.isFolderThere, isEnding, isBehind) = (false, true, true, false)
        assets?.settle()
        network(.open)
        sleep(false)
        resumeAll()
        runDown()
        if problem != nil { return }
        if assetMachine != nil { return endWithAssets() }
        // The next startup deletes the part files that could not be deleted.
        restart(power: false)
        var rounds = 0
        while !pool.isEmpty || gate.isBusy || !asked.isEmpty || !toasts.isEmpty || !loop.isEmpty {
            rounds += 1
            guard rounds < 3000 else { return fail("the service has work for ever") }
            slice()
            callOwner()
            showToast()
            if inFlight != nil || isCommitDue { commit(1) }
            if !pool.isEmpty { work(0, 1) }
        }
        checkEnd()
    }

    /// Everything that is under way ends.
    func runDown() {
        for round in 0..<3000 {
            random = Random(UInt64(round))
            slice()
            if inFlight != nil || isCommitDue { commit(1) }
            if !pool.isEmpty { work(round, 1) }
            for number in transfers.keys.sorted() { transfer(Int(number.value), round % 3 == 0 ? 7 : 3, number) }
            callOwner()
            showToast()
            probe()
            goOn()
            if transfers.values.allSatisfy(\.awaits), pool.isEmpty, asked.isEmpty, toasts.isEmpty, !gate.isBusy, loop.isEmpty {
                guard let alarm else { break }
                now = max(now, alarm)
            }
            ringAll()
            decide()
            check()
            if problem != nil { return }
        }
    }

    /// Resumes every download that waits for a person.
    private func goOn() {
        for entry in scheduler.entries.values.sorted(by: { $0.number < $1.number }) where entry.isEntered {
            if entry.state == .paused {
                isWantedAtOnce(entry.number)
                decide(.steer(entry, .resume))
            }
            if case .waiting(.needsUrl, _) = entry.state, let url = try? DownloadURL(entry.record.url) {
                urgent.insert(entry.number)
                decide(.replaceUrl(entry, FreshLink(url)))
            }
        }
    }
}
