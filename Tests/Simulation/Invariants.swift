// SPDX-License-Identifier: Apache-2.0
import DownloadModel

/// What must be true after every step, and at the end.
extension World {
    mutating func check() {
        var counts = StateCounts()
        var wake: WallTime?
        for entry in ledger.entries.values {
            counts.insert(entry.state)
            let number = entry.number
            if (entry.work != .idle) != (transfers[number] != nil || delayed.contains(number)) {
                fail("\(number) has \(entry.work) work, and the engine disagrees")
            }
            if entry.state == .active, transfers[number]?.isStopping ?? !delayed.contains(number) {
                fail("\(number) is active without a transfer")
            }
            if case .waiting(let reason, nil) = entry.state, ![.needsUrl, .pausedAll, .diskSpace, .destination].contains(reason) {
                fail("\(number) waits for \(reason) without an end")
            }
            if entry.isEntered, let time = nextWake(entry) { wake = min(wake ?? time, time) }
            if entry.isEntered, entry.state.hasEnded == ledger.order.contains(number) { fail("\(number) is in the wrong order") }
            if entry.isEntered, entry.state.hasEnded != ledger.ended.contains(number) { fail("\(number) is not among the ended") }
        }
        if counts != ledger.counts { fail("the counts are \(ledger.counts), and should be \(counts)") }
        checkSums()
        checkIndex()
        if ledger.nextWake != wake { fail("the next wake is \(ledger.nextWake as Any), and should be \(wake as Any)") }

        for number in acknowledged where saved.records[number] == nil && !removals.contains(number) {
            if !ledgerPruned(number) { fail("\(number) was acknowledged, and is not on disk any more") }
        }
        for number in acknowledged where ledger[number] == nil && !removals.contains(number) {
            fail("\(number) was acknowledged, and is not on the list any more")
        }
        for (number, (path, version)) in finishedPaths where !removals.contains(number) {
            guard let file = disk.finals[path] else {
                fail("\(number) was told as finished, and its file is not there")
                continue
            }
            if ledger[number]?.record.options.ifExists == .skip { continue }
            guard let version, file.content.version != nil else {
                fail("the file of \(number) is a mixture: \(file.content.stretches)")
                continue
            }
            _ = version
        }
        for (path, file) in disk.finals where file.content.version == nil { fail("\(path) is a mixture: \(file.content.stretches)") }
    }

    private mutating func checkSums() {
        var received: ByteCount = 0
        var total: ByteCount? = 0
        for number in ledger.order.ordered {
            guard let record = ledger[number]?.record else { continue }
            received += record.received
            total = total.flatMap { sum in (record.total ?? record.options.size).map { sum + $0 } }
        }
        if (ledger.received, ledger.total) != (received, total) {
            fail("the sums are \(ledger.received) of \(ledger.total as Any), and should be \(received) of \(total as Any)")
        }
    }

    /// What is found by app is what a walk through all finds.
    private mutating func checkIndex() {
        let all = (ledger.order.ordered + ledger.ended.ordered).compactMap { ledger[$0] }
        for app in Set(all.map(\.record.options.app)) {
            var found: [DownloadNumber] = []
            ledger.visit(app: app, tag: nil) { entry in
                found.append(entry.number)
                return false
            }
            let expected = all.filter { $0.record.options.app == app }.map(\.number)
            if found != expected { fail("of the app \(app), \(found) are found, and should be \(expected)") }
        }
    }

    private func ledgerPruned(_ number: DownloadNumber) -> Bool { false }

    private func nextWake(_ entry: LedgerEntry) -> WallTime? {
        switch entry.state {
        case .waiting(.pausedAll, _): nil
        case .waiting(_, let until): [until, entry.record.expiresAt].compactMap { $0 }.min()
        case .queued, .active: entry.record.expiresAt
        default: nil
        }
    }

    /// Everything has come to its end, nothing lies about, and disk and process agree.
    mutating func checkEnd() {
        for entry in ledger.entries.values {
            if !entry.state.hasEnded { fail("\(entry.number) never ends: \(entry.state), \(entry.work)") }
            if saved.records[entry.number]?.state != entry.state { fail("\(entry.number) is \(entry.state.name), and on disk it is not") }
        }
        for number in saved.records.keys where ledger[number] == nil { fail("\(number) is on disk, and not on the list") }
        if !saved.sweeps.isEmpty { fail("part files are still to be deleted: \(saved.sweeps.keys.sorted())") }
        for number in disk.parts.keys {
            guard let entry = ledger[number], entry.state.failure != nil, entry.record.resume != nil else {
                fail("the part file of \(number) lies about; it is \(ledger[number]?.state.name ?? "off the list")")
                continue
            }
        }
        for entry in ledger.entries.values where entry.state == .finished {
            guard let path = entry.record.path, disk.finals[path] != nil else {
                fail("\(entry.number) finished without a file")
                continue
            }
        }
        if ledger.hasWork { fail("the ledger has work, though everything has ended") }
    }
}
