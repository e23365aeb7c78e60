// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// What must be true after every step, and at the end.
extension World {
    func check() {
        var counts = StateCounts()
        var wake: WallTime?
        for entry in scheduler.entries.values {
            counts.insert(entry.state)
            let number = entry.number
            if (entry.work != .idle) != (transfers[number] != nil || delayed.contains(number)) {
                fail("\(number) has \(entry.work) work, and the engine disagrees")
            }
            if entry.state == .active, transfers[number]?.isStopping ?? !delayed.contains(number) {
                fail("\(number) is active without a transfer")
            }
            if case .waiting(let reason, nil) = entry.state {
                switch reason {
                case .needsUrl, .pausedAll, .diskSpace, .destination: break
                case .offline where scheduler.hasSlices, .metered where scheduler.hasSlices: break
                case .offline, .metered:
                    if hindrance(entry) != reason.rawValue { fail("\(number) waits for \(reason), and the network is \(network as Any)") }
                default: fail("\(number) waits for \(reason) without an end")
                }
            }
            if entry.state == .extracting, !entry.isInPool { fail("\(number) is extracting, and nobody unpacks it") }
            if entry.isCallDue, entry.record.reminders.isAcknowledged || !entry.state.hasEnded {
                fail("the owner of \(number) is to be called for nothing")
            }
            if entry.isEntered { checkNetwork(entry) }
            if entry.isEntered { checkPause(entry) }
            if entry.isEntered, let time = nextWake(entry) { wake = min(wake ?? time, time) }
            if entry.isEntered, entry.state.hasEnded == scheduler.order.contains(number) { fail("\(number) is in the wrong order") }
            if entry.isEntered, entry.state.hasEnded != scheduler.ended.contains(number) { fail("\(number) is not among the ended") }
        }
        checkSlowness()
        checkBlame()
        checkBatches()
        checkToasts()
        checkMany()
        if isHeld != gate.isBusy { fail("the gate is \(gate.isBusy ? "busy" : "idle"), and the service does not know it") }
        if scheduler.counts.remaining == 0, endsUntold > 0 { fail("all have ended, and nobody was told") }
        for record in saved.records.values where record.state == .cancelled && record.resume != nil {
            fail("\(record.number) is cancelled, and its row tells of bytes that are gone")
        }
        let folders = Set(scheduler.entries.values.lazy.filter { $0.state.awaitsFolder }.map { ByteText($0.record.directory) })
        if folders != scheduler.awaitedFolders { fail("the folders waited for are \(scheduler.awaitedFolders), and should be \(folders)") }
        if counts != scheduler.counts { fail("the counts are \(scheduler.counts), and should be \(counts)") }
        checkSums()
        checkIcons()
        checkIndex()
        assets?.check()
        if let wake, alarm.map({ $0 > wake }) ?? true {
            fail("the alarm is \(alarm as Any), and should be \(wake) at the latest")
        }

        for number in acknowledged where saved.records[number] == nil && !removals.contains(number) {
            fail("\(number) was acknowledged, and is not on disk any more")
        }
        for number in acknowledged where scheduler[number] == nil && !removals.contains(number) {
            fail("\(number) was acknowledged, and is not on the list any more")
        }
        for (number, (path, version)) in finishedPaths where !removals.contains(number) {
            guard let file = disk.finals[path] else {
                fail("\(number) was told as finished, and its file is not there")
                continue
            }
            if scheduler[number]?.record.options.ifExists == .skip { continue }
            guard let version, file.content.version != nil else {
                fail("the file of \(number) is a mixture: \(file.content.stretches)")
                continue
            }
            _ = version
        }
        // An unchanged copy has the content that its entity tag names.
        for copy in saved.copies.values {
            guard let tag = copy.validators?.entityTag, let file = disk.finals[copy.path], isIntact(copy) else { continue }
            if file.content.version.map({ "\"\($0)\"" }) != tag { fail("the copy \(copy.path) is not what it is taken for") }
        }
        for (path, file) in disk.finals where file.content.version == nil { fail("\(path) is a mixture: \(file.content.stretches)") }
    }

    /// No download waits for a server's pause longer than the server may delay it.
    private func checkPause(_ entry: ScheduledDownload) {
        // In the slices after a change of the rules, a download may still show the wait of an earlier rule.
        guard !scheduler.hasSlices, entry.state == .queued || scheduler.isHeld(entry), let hold = scheduler.hold(of: entry, now: now),
            hold.reason == .rateLimit
        else { return }
        let hosts = scheduler.settings.hostRules
        let origin = requestOrigin(of: entry)
        let rule = hosts.governing(DownloadURL.host(of: origin)).rule.requestInterval ?? .zero
        let own = entry.record.options.requestInterval ?? .zero
        if hastened.contains(entry.number), rule == .zero, own == .zero {
            fail("\(entry.number) is wanted at once, and waits until \(hold.until as Any)")
        }
        guard let until = hold.until else { return }
        let app = entry.record.options.app
        // Other origins do not delay the download.
        let pause = slowness[origin]?.pause(of: app, now: now) ?? .zero
        // The longest interval between requests: the pace of the origin, three intervals of a rule and two of the download's own.
        let interval: Duration = .seconds(1) + (slowness[origin]?.interval ?? .zero) + rule * 3 + own * 2
        if until - now > pause + interval * (scheduler.entries.count + 2) {
            fail("\(entry.number) of \(app) waits \(until - now) for \(origin), and its pause is \(pause)")
        }
    }

    /// Only an origin that refused a request is slowed, and no longer or more than its answers since then allow.
    private func checkSlowness() {
        for (origin, pace) in scheduler.slowedOrigins(now: now) {
            guard let slowness = slowness[origin] else {
                fail("\(origin) is slowed, and has refused nothing")
                continue
            }
            if pace.interval > slowness.interval { fail("\(origin) keeps \(pace.interval) apart, and should at most \(slowness.interval)") }
            for app in Self.apps {
                let pause = pace.pausedUntil(for: app).map { $0 - now } ?? .zero
                if pause > slowness.pause(of: app, now: now) {
                    fail("\(origin) pauses \(app) for \(pause), and was answered since, or asked less")
                }
            }
        }
    }

    /// A finished file is announced with the facts from its server.
    func checkTold(_ entry: ScheduledDownload) {
        let record = entry.record
        guard record.state == .finished, !record.isUnchanged || mayHaveSkipped(record) else { return }
        if record.fileName != name(entry) { fail("\(entry.number) is told to be \(record.fileName ?? "nameless"), and is \(name(entry))") }
        // A file of that name existed, and nothing was fetched.
        if record.options.ifExists == .skip, record.total == nil { return }
        if record.mediaType != Self.mediaType { fail("\(entry.number) finished without its media type") }
        if record.total != record.received { fail("\(entry.number) finished with \(record.received) of \(record.total as Any)") }
        guard let file = record.path?.split(separator: "/").last, !record.isToDescriptor else { return }
        let isNamed = file == name(entry) || file.hasPrefix("\(name(entry)) (") && record.options.ifExists == .rename
        if !isNamed { fail("\(entry.number) is to be \(name(entry)), and is \(file)") }
    }

    /// The counts of each batch include the members on the list and the removed ones.
    private func checkBatches() {
        for batch in scheduler.batches.values {
            let members = scheduler.entries.values.filter { $0.record.batch == batch.number }
            let remaining = members.count { !$0.state.hasEnded }
            let (number, outcomes) = (batch.number, batch.outcomes)
            if members.isEmpty { fail("batch \(number) has no members") }
            if !members.allSatisfy({ $0.batch === batch }) { fail("a member of batch \(number) does not know it") }
            if Set(scheduler.members(of: batch).map(\.number)) != Set(members.map(\.number)) {
                fail("batch \(number) does not find its members")
            }
            if Int(batch.counts.remaining) != remaining {
                fail("\(batch.counts.remaining) of batch \(number) remain, and should be \(remaining)")
            }
            let underWay = members.count { entry in
                switch entry.state {
                case .queued, .active, .verifying, .extracting, .committing: true
                default: false
                }
            }
            if Int(batch.counts.underWay) != underWay {
                fail("\(batch.counts.underWay) of batch \(number) are under way, and should be \(underWay)")
            }
            if outcomes.finished + outcomes.failed + outcomes.cancelled + batch.counts.remaining != batch.record.count {
                fail("the counts of batch \(number) are \(outcomes) and \(batch.counts.remaining), of \(batch.record.count)")
            }
            let failed = batch.record.removed.failed + UInt32(members.count { $0.state.failure != nil })
            let finished = batch.record.removed.finished + UInt32(members.count { $0.state == .finished })
            if outcomes.failed != failed || outcomes.finished != finished { fail("batch \(number) counts \(outcomes)") }
            let open = members.filter { $0.isEntered && !$0.state.hasEnded && $0.record.options.showProgress }
            if batch.progress.open != ProgressTally(of: open.map(\.record)) { fail("batch \(number) has come to \(batch.progress)") }
            if open.isEmpty, batch.progress != ProgressTally() { fail("batch \(number) begins anew with \(batch.progress)") }
            if Int(batch.counts.resting) != members.count(where: \.state.rests) { fail("\(batch.counts.resting) of batch \(number) rest") }
            if batch.isLeaving, !scheduler.hasSlices, !members.contains(where: { $0.state == .committing }) {
                fail("batch \(number) should be gone")
            }
        }
        for entry in scheduler.entries.values {
            if let number = entry.record.batch, scheduler.batch(number) == nil { fail("batch \(number) of \(entry.number) is not there") }
        }
    }

    /// Every owed toast is about to be shown, and every other toast was shown.
    private func checkToasts() {
        for entry in scheduler.entries.values where entry.isEntered {
            let (number, record) = (entry.number, entry.record)
            if let toast = entry.owedToast {
                if !gate.isBusy, !toasts.contains(toast) { fail("the toast of \(number) is owed, and nobody is about to show it") }
            } else if entry.batch == nil, isNews(record), record.options.notify != .never, toasted[number] != record.endedAt,
                stale[number] != record.endedAt
            {
                fail("the end of \(number) was never shown")
            }
        }
        // A batch that a person removes owes no toast. This holds between the slices of the removal, and after a kill during the removal.
        for batch in scheduler.batches.values where batch.hasEnded && batch.isEntered && !batch.isLeaving {
            if scheduler.members(of: batch).allSatisfy({ removals.contains($0.number) }) { continue }
            if let toast = batch.owedToast {
                if !gate.isBusy, !toasts.contains(toast) {
                    fail("the toast of batch \(batch.number) is owed, and nobody is about to show it")
                }
            } else if batch.record.notify != .never, batch.record.removed == OutcomeCounts(), toasted[batch.number] == nil,
                stale[batch.number] == nil, scheduler.members(of: batch).contains(where: { isNews($0.record) || $0.state.failure != nil })
            {
                fail("the end of batch \(batch.number) was never shown")
            }
        }
    }

    private func isNews(_ record: DownloadRecord) -> Bool {
        record.state.failure != nil
            || record.state == .finished && !record.isToDescriptor && (!record.isUnchanged || mayHaveSkipped(record))
    }

    /// The file that the download ended with is no cached copy.
    private func mayHaveSkipped(_ record: DownloadRecord) -> Bool {
        record.options.ifExists == .skip && !record.options.onlyIfChanged && !record.isFetch
    }

    /// No download runs that sleep or the network forbids.
    private func checkNetwork(_ entry: ScheduledDownload) {
        switch (entry.state, hindrance(entry)) {
        case (.active, _) where isAsleep: fail("\(entry.number) is active while the machine sleeps")
        case (.active, "metered"): fail("\(entry.number) goes on over a metered link")
        case (.active, "offline") where mayDefy.contains(entry.number), (.queued, "offline") where mayDefy.contains(entry.number): break
        case (.active, "offline") where network?.reach == .captive: fail("\(entry.number) goes on behind a captive portal")
        // The pass has not reached the download yet.
        case (.queued, _) where scheduler.hasPass, (.waiting(.retry, _), _) where scheduler.hasPass: break
        case (.queued, "offline"), (.queued, "metered"): fail("\(entry.number) is queued, and should say what it waits for")
        case (.waiting(.retry, _), "offline"?): fail("\(entry.number) waits for a retry without a network")
        default: break
        }
    }

    private func checkSums() {
        var received: ByteCount = 0
        var total: ByteCount? = 0
        for number in scheduler.order.ordered {
            guard let record = scheduler[number]?.record else { continue }
            received += record.received
            total = total.flatMap { sum in (record.total ?? record.options.size).map { sum + $0 } }
        }
        if (scheduler.received, scheduler.total) != (received, total) {
            fail("the sums are \(scheduler.received) of \(scheduler.total as Any), and should be \(received) of \(total as Any)")
        }
    }

    /// The sums of each icon equal a sum over all downloads.
    private func checkIcons() {
        let open = scheduler.order.ordered.compactMap { scheduler[$0]?.record }.filter(\.options.showProgress)
        let expected = Dictionary(grouping: open, by: \.options.desktopID).mapValues(ProgressTally.init)
        if scheduler.icons.mapValues(\.open) != expected { fail("the icons have \(scheduler.icons), and should have \(expected)") }
    }

    /// The index of each app finds the same downloads as a search through all.
    private func checkIndex() {
        let all = (scheduler.order.ordered + scheduler.ended.ordered).compactMap { scheduler[$0] }
        for app in Set(all.map(\.record.options.app)) {
            let found = scheduler.some(.max, app: app).map(\.number)
            let expected = all.filter { $0.record.options.app == app }.map(\.number)
            if found != expected { fail("of the app \(app), \(found) are found, and should be \(expected)") }
        }
    }

    private func nextWake(_ entry: ScheduledDownload) -> WallTime? {
        switch entry.state {
        case .waiting(.pausedAll, _): nil
        case .waiting(_, let until): [until, entry.record.expiresAt].compactMap { $0 }.min()
        case .queued, .active: entry.record.expiresAt
        case .finished, .failed, .cancelled: entry.isCallDue ? nil : entry.record.reminders.nextAt
        default: nil
        }
    }

    /// Everything has ended, nothing is left behind, and disk and process agree.
    func checkEnd() {
        for entry in scheduler.entries.values {
            if !entry.state.hasEnded { fail("\(entry.number) never ends: \(entry.state), \(entry.work)") }
            guard let row = saved.records[entry.number] else {
                fail("\(entry.number) is not on disk")
                continue
            }
            if row.state != entry.state { fail("\(entry.number) is \(entry.state.name), and on disk it is not") }
            if row.resume != entry.record.resume { fail("the row of \(entry.number) tells of other bytes than the record") }
        }
        for entry in scheduler.entries.values where entry.record.options.activate != nil && !entry.record.reminders.isAcknowledged {
            if called[entry.number] != entry.record.endedAt { fail("the owner of \(entry.number) never hears of its end") }
        }
        for record in saved.records.values where record.owesToast { fail("the toast of \(record.number) is owed for ever") }
        let batches = Dictionary(uniqueKeysWithValues: scheduler.batches.values.map { ($0.number, $0.record) })
        if saved.batches != batches { fail("the batches on disk are not those on the list") }
        for number in saved.records.keys where scheduler[number] == nil { fail("\(number) is on disk, and not on the list") }
        if !saved.sweeps.isEmpty { fail("part files are still to be deleted: \(saved.sweeps.keys.sorted())") }
        if !disk.left.isEmpty { fail("what downloads have left in other folders lies about: \(disk.left.keys.sorted())") }
        for number in disk.parts.keys {
            guard let entry = scheduler[number], entry.state.failure != nil, entry.record.resume != nil else {
                fail("the part file of \(number) lies about; it is \(scheduler[number]?.state.name ?? "off the list")")
                continue
            }
        }
        for number in disk.folders.keys {
            guard let entry = scheduler[number], entry.state.failure != nil, entry.record.resume != nil else {
                fail("the unpacked files of \(number) lie about; it is \(scheduler[number]?.state.name ?? "off the list")")
                continue
            }
        }
        for entry in scheduler.entries.values where entry.state == .finished {
            if entry.record.isToDescriptor || entry.record.path.map(strangers.contains) == true { continue }
            guard let path = entry.record.path, disk.finals[path] != nil else {
                fail("\(entry.number) finished without a file")
                continue
            }
        }
        if scheduler.hasWork { fail("the scheduler has work, though everything has ended") }
    }
}
