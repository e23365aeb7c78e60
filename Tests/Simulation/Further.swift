// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// A request for another part of the file, beside the transfer's first one.
struct FurtherRequest {
    let id: RequestID
    let origin: String
    var host: String { DownloadURL.host(of: origin) }
    /// The scheduler has permitted the request; and the engine has heard of it.
    var permittedAt: WallTime?
    var mayGo = false
    var hasSent = false
    var isPaced = false
    var isStalled = false
    var isWithdrawn = false
    /// The place of the source that the request asks (`DownloadRecord.sourceURLs`).
    var source = 0
    /// The bytes that its response still has to bring, and the version of the file that they are of; nil: no response has been accepted.
    var stretch: Range<ByteCount>?
    var version = 0
}

/// The further requests of transfers, by the engine's contract.
extension World {
    /// The number of permitted further requests at the host, or in the domain, named `name`.
    func further(at name: String) -> Int {
        transfers.values.lazy.filter { !$0.isStopping }.flatMap(\.further).count {
            $0.permittedAt != nil && scheduler.settings.hostRules.governing($0.host).name == name
        }
    }

    /// The scheduler permits a further request: nothing else may wait for its place.
    func permitFurther(_ id: RequestID, _ afterSave: Bool) {
        guard let entry = scheduler[id.download], let place = transfers[id.download]?.further.firstIndex(where: { $0.id == id }) else {
            return fail("\(id) is permitted, and its download is gone")
        }
        transfers[id.download]?.further[place].permittedAt = now
        transfers[id.download]?.further[place].isPaced = afterSave
        let request = transfers[id.download]!.further[place]
        let (name, rule) = scheduler.settings.hostRules.governing(request.host)
        let there = scheduler.entries.values.count { other in
            guard other.state == .active, !scheduler.isHeld(other) else { return false }
            return scheduler.settings.hostRules.governing(transfers[other.number]?.host ?? host(of: other.record)).name == name
        }
        if let limit = rule.connections, limit > 0 {
            if there + further(at: name) > limit { fail("the further \(id) goes to \(name), where \(there) of \(limit) are") }
            // Without a slot, no queued download uses the place.
            let (active, most) = (Int(scheduler.counts.active), scheduler.settings.maxActive)
            let hasSlot = most == 0 || active < (most == Settings.automatic ? 4 : Int(most))
            for other in scheduler.entries.values where hasSlot && other.state == .queued && hindrance(other) == nil {
                let waits = scheduler.settings.hostRules.governing(host(of: other.record)).name == name
                if waits, scheduler.hold(of: other, now: now)?.reason == .hostLimit {
                    fail("the further \(id) goes to \(name) before \(other.number), which waits there")
                }
            }
        }
        checkPace(entry, at: request.origin)
    }

    /// One step of a transfer's further requests.
    ///
    /// - Returns: false if the step is another one.
    func makesFurther(_ entry: ScheduledDownload, _ transfer: Transfer, _ b: Int) -> Bool {
        let number = entry.number
        if let request = transfer.further.first(where: \.isWithdrawn) {
            leave(request, of: number, nil)
            return true
        }
        if hasStretches, b / 33 % 3 > 0, bringStretch(entry, transfer, b / 99) { return true }
        let going = transfer.further.filter { $0.mayGo && $0.hasSent }
        switch hasStretches ? Self.stretchSteps[b / 3 % 11] : b / 3 % 11 {
        case 0, 1:
            guard transfer.further.count < 4, !isEnding, entry.state == .active else { return false }
            // Once joined bytes were wrong, one connection fetches the file.
            if hasStretches, entry.record.hasStartedOver { return false }
            let id = RequestID(number, entry.request.ordinal + transfer.lastOrdinal + 1)
            let (origin, source) = furtherSource(entry, transfer, b / 99)
            transfers[number]?.lastOrdinal += 1
            transfers[number]?.further.append(FurtherRequest(id: id, origin: origin, source: source))
            tell("\(number) wants a further request, \(id)")
            decide(.asks(id, host: DownloadURL.host(of: origin), origin: origin))
        case 2, 3:
            guard let place = transfer.further.firstIndex(where: { $0.mayGo && !$0.hasSent }) else { return false }
            let request = transfer.further[place]
            transfers[number]?.further[place].hasSent = true
            tell("the further request \(request.id) goes out")
            guard request.isPaced else { return true }
            let name = scheduler.settings.hostRules.governing(request.host).name
            lastSent[name] = now
            if let own = entry.record.options.requestInterval { lastSent["\(name) \(own)"] = now }
            decide(.sent(request.id, at: now))
        case 4:
            if hasStretches { return joins(entry, transfer, b / 99) }
            guard let request = going.first else { return false }
            answers(request)
            decide(.joined(request.id))
        case 5:
            guard let place = transfer.further.firstIndex(where: { $0.mayGo && $0.hasSent }) else { return false }
            transfers[number]?.further[place].isStalled.toggle()
            decide(.stalled(transfer.further[place].id, !transfer.further[place].isStalled))
        case 6:
            guard let request = transfer.further.last else { return false }
            leave(request, of: number, nil)
        case 7:
            guard let request = going.last else { return false }
            let pause: Duration = .seconds(b % 2 == 0 ? 86_400 : 120)
            refused(entry, at: request.origin, for: pause, requestedAt: request.permittedAt)
            leave(request, of: number, DownloadFailure(.httpStatus, "503", httpStatus: 503, isRetryable: true, retryAfter: pause))
        case 8:
            // The first request has its part, and another one takes its place.
            guard let next = transfer.further.firstIndex(where: { $0.permittedAt != nil }) ?? transfer.further.indices.first,
                !transfer.awaits, transfer.hasSent
            else { return false }
            let request = transfer.further[next]
            // Only an accepted response proves whose bytes come.
            if hasStretches, request.stretch == nil { return false }
            var rest = transfer
            rest.further.remove(at: next)
            (rest.id, rest.origin, rest.awaits, rest.question) = (request.id, request.origin, !request.mayGo, 0)
            (rest.hasSent, rest.isPaced, rest.isStalled) = (request.hasSent, request.isPaced, request.isStalled)
            if hasStretches { (rest.source, rest.version) = (request.source, request.version) }
            transfers[number] = rest
            if let time = request.permittedAt { requestedAt[number] = time }
            tell("\(transfer.id) is over, and \(request.id) goes on")
            decide(.over(transfer.id, nil))
        default: return false
        }
        return true
    }

    /// The clock was set by `delta`.
    func shiftFurther(by delta: Duration) {
        for (number, transfer) in transfers {
            for place in transfer.further.indices {
                let time = transfer.further[place].permittedAt
                transfers[number]?.further[place].permittedAt = time.map { $0 + delta }
            }
        }
    }

    func leave(_ request: FurtherRequest, of number: DownloadNumber, _ failure: DownloadFailure?) {
        if plant != .encroaching { transfers[number]?.further.removeAll { $0.id == request.id } }
        tell("the further request \(request.id) is over")
        decide(.over(request.id, failure))
    }

    /// The scheduler hears of an answer to a further request.
    func answers(_ request: FurtherRequest) {
        answered(request.origin, request.id.download)
        guard let time = request.permittedAt, scheduler[request.id.download]?.work == .running else { return }
        refusedDownloads[request.origin]?.remove(request.id.download)
        let ruled = scheduler.settings.hostRules.governing(request.host).rule.requestInterval ?? .zero
        let endsPauses = slowness[request.origin]?.answered(requestedAt: time, ruled: ruled, now: now) ?? false
        if endsPauses { commonFloors[request.origin] = nil }
    }
}
