// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// The engine and the pool, by their contracts.
extension World {
    private func identity(_ inode: UInt64) -> FileIdentity { FileIdentity(device: 1, inode: inode, mount: 1, boot: "\(boot)") }

    func resource(of record: DownloadRecord) -> Int {
        Int(record.url.split(separator: "/").last?.prefix { $0.isNumber } ?? "0") ?? 0
    }

    /// The rules for the start of a transfer.
    func checkStart(_ entry: ScheduledDownload) {
        let number = entry.number
        let limits = scheduler.settings
        let idle = transfers.values.count { ($0.awaits || $0.isStalled) && !$0.isStopping }
        if limits.maxActive > 0, Int(scheduler.counts.active) > Int(limits.maxActive) + idle { fail("\(number) starts beyond MaxActive") }
        if limits.maxActive == Settings.automatic { checkSizes(entry, idle: idle) }
        checkRequest(entry, at: origin(of: entry.record))
        checkTurn(entry, at: host(of: entry.record))
        if sweeping[number]?.contains(entry.record.directory) == true {
            fail("\(number) starts while its part file is still to be deleted")
        }
        if limits.paused { fail("\(number) starts while all is paused") }
        if let floor = floors[number], now < floor { fail("\(number) starts before the server’s Retry-After") }
        if let time = entry.record.options.notBefore, now < time { fail("\(number) starts before its not-before") }
        if isAsleep { fail("\(number) starts while the machine sleeps") }
        if let reason = hindrance(entry), reason != "offline" || !mayDefy.contains(number) {
            fail("\(number) starts, and should wait: \(reason)")
        }
    }

    /// The rules for the start of a transfer while `MaxActive` is automatic.
    private func checkSizes(_ entry: ScheduledDownload, idle: Int) {
        func isLarge(_ other: ScheduledDownload) -> Bool {
            let told = transfers[other.number].flatMap { $0.hasBegun && !$0.isUntold ? $0.total : nil }
            return (told ?? other.record.total ?? other.record.options.size ?? 0) >= FileSize.leastLarge
        }
        let active = scheduler.entries.values.filter { $0.state == .active }
        if isLarge(entry), active.count(where: isLarge) > 4 + idle { fail("\(entry.number) is large, and starts beside four large files") }
        if active.count > 64 + idle { fail("\(entry.number) starts beside 64 files") }
    }

    /// The reason why the network hinders `entry`; nil: none.
    func hindrance(_ entry: ScheduledDownload) -> String? {
        if host(of: entry.record) == "127.0.0.1" { return nil }
        guard let network else { return "unknown" }
        if network.reach == .offline || network.reach == .captive, !defying.contains(entry.number) { return "offline" }
        return network.isMetered && !entry.record.options.allowsMetered ? "metered" : nil
    }

    func host(of record: DownloadRecord) -> String { place(of: record).host }
    func origin(of record: DownloadRecord) -> String { place(of: record).origin }

    private func place(of record: DownloadRecord) -> (origin: String, host: String) {
        let url = record.firstURL
        if let known = places[url] { return known }
        let origin = (try? DownloadURL(url).origin) ?? ""
        let place = (origin, DownloadURL.host(of: origin))
        places[url] = place
        return place
    }

    /// The origin of the request that `entry` waits for or has sent.
    func requestOrigin(of entry: ScheduledDownload) -> String {
        scheduler.isHeld(entry) ? transfers[entry.number]?.origin ?? "" : origin(of: entry.record)
    }

    /// The rules for a request to `origin`.
    func checkRequest(_ entry: ScheduledDownload, at origin: String) {
        let (number, host) = (entry.number, DownloadURL.host(of: origin))
        let (name, rule) = scheduler.settings.hostRules.governing(host)
        let limit = rule.connections ?? scheduler.settings.maxPerHost
        let others = scheduler.entries.values.filter { other in
            guard other.state == .active, !scheduler.isHeld(other) else { return false }
            return scheduler.settings.hostRules.governing(transfers[other.number]?.host ?? self.host(of: other.record)).name == name
        }
        checkPace(entry, at: origin)
        guard !mustShare(entry) else {
            if !mayShare(entry, origin) { fail("\(number) goes to \(host), and must share a connection that does not exist") }
            return
        }
        let there = connections(others)
        if limit > 0, there > limit { fail("\(number) goes to \(host), where \(there) of \(limit) are") }
        if let limit = rule.connections, limit > 0, there + further(at: name) > limit {
            fail("\(number) goes to \(host), where \(there) and \(further(at: name)) further of \(limit) are")
        }
    }

    /// Whether the current request of `entry` may open no connection.
    private func mustShare(_ entry: ScheduledDownload) -> Bool { scheduler.mustShare(transfers[entry.number]?.id ?? entry.request) }

    /// The number of connections of the downloads. Small files share their HTTP/2 connection.
    private func connections(_ downloads: [ScheduledDownload]) -> Int {
        var (own, shared) = (0, Set<[String]>())
        for entry in downloads where !mustShare(entry) {
            let transfer = transfers[entry.number]
            if let transfer, let connection = transfer.connection, transfer.toldTotal < FileSize.leastLarge {
                shared.insert([transfer.origin, "\(connection)"])
            } else {
                own += 1
            }
        }
        return own + shared.count
    }

    /// The HTTP/2 connection to `origin`.
    private func connectionNumber(of origin: String) -> UInt32 { origin.utf8.reduce(1) { $0 + UInt32($1) } }

    /// Whether a request to `origin` may find a connection that it can share.
    private func mayShare(_ entry: ScheduledDownload, _ origin: String) -> Bool {
        (entry.record.total ?? 0) < FileSize.leastLarge
            && transfers.contains {
                $0 != entry.number && $1.connection != nil && $1.toldTotal < FileSize.leastLarge && $1.origin == origin
            }
    }

    /// The rules for the time of a request to `origin`.
    func checkPace(_ entry: ScheduledDownload, at origin: String) {
        let (number, host) = (entry.number, DownloadURL.host(of: origin))
        let (name, rule) = scheduler.settings.hostRules.governing(host)
        // An urgent request is allowed during a pause, and its answer may end the pause for all.
        if !urgent.contains(number) {
            if let floor = originFloors[origin]?[entry.record.options.app], now < floor { fail("\(number) goes to \(origin) in its pause") }
            if let floor = commonFloors[origin]?.until, now < floor { fail("\(number) goes to \(origin) in the pause of all") }
        }
        func check(_ key: String, _ interval: Duration) {
            if let last = lastSent[key], now - last < interval { fail("\(number) goes to \(key) \(now - last) after the last request") }
        }
        check(name, rule.requestInterval ?? .zero)
        if let own = entry.record.options.requestInterval { check("\(name) \(own)", own) }
        let isUnsent = transfers.contains { other, transfer in
            other != number && !transfer.awaits && !transfer.hasSent && !transfer.isStopping && transfer.isPaced
                && scheduler.settings.hostRules.governing(transfer.host).name == name
        }
        if isUnsent, rule.requestInterval ?? .zero > .zero { fail("\(number) goes to \(host) while another request has not gone out") }
    }

    /// A request goes to `host`. An application that waits there only for its turn must not see many requests of one other application.
    func checkTurn(_ entry: ScheduledDownload, at host: String) {
        let (name, rule) = scheduler.settings.hostRules.governing(host)
        let isPlain = entry.record.options.requestInterval == nil && !urgent.contains(entry.number)
        let app = entry.record.options.app
        passes[name]?[app] = nil
        guard rule.requestInterval ?? .zero > .zero, isPlain else { return }
        let slowed = scheduler.slowedOrigins(now: now)
        func waits(_ other: ScheduledDownload) -> Bool {
            let origin = requestOrigin(of: other)
            guard scheduler.settings.hostRules.governing(DownloadURL.host(of: origin)).name == name, slowed[origin] == nil,
                other.record.options.requestInterval == nil
            else { return false }
            // A queued download may also wait for a slot, or behind a higher priority.
            return scheduler.isHeld(other)
                || scheduler.settings.maxActive == 0 && hindrance(other) == nil
                    && other.record.options.priority >= entry.record.options.priority && !other.record.isWhole
                    && other.state == .queued && scheduler.hold(of: other, now: now)?.reason == .rateLimit
        }
        let waiting = Set(scheduler.entries.values.filter(waits).map(\.record.options.app)).subtracting([app])
        var passes = passes[name, default: [:]].filter { waiting.contains($0.key) }
        for other in waiting {
            passes[other, default: [:]][app, default: 0] += 1
            if passes[other]![app]! > 2 { fail("\(app) has its turn at \(host) again and again, and \(other) waits there") }
        }
        self.passes[name] = passes
    }

    /// libcurl has found no connection with room for the request, or the request needs a connection of its own. Nothing was sent, and the
    /// engine asks again.
    private func failsToShare(_ entry: ScheduledDownload, _ transfer: Transfer) -> Bool {
        guard transfer.mustShare, random.below(3) == 0 || !mayShare(entry, transfer.origin) else { return false }
        let isAlone = random.below(3) == 0
        transfers[entry.number]?.isAlone = isAlone
        transfers[entry.number]?.awaits = true
        transfers[entry.number]?.mustShare = false
        transfers[entry.number]?.question += 1
        tell("\(entry.number) finds no connection to share at \(transfer.origin)")
        decide(
            .asks(
                transfer.id, host: transfer.host, origin: transfer.origin, isAnswered: false, sharing: isAlone ? .impossible : .failed,
                question: transfer.question + 1))
        return true
    }

    private func send(_ entry: ScheduledDownload, _ transfer: Transfer) {
        if failsToShare(entry, transfer) { return }
        if transfer.mustShare {
            transfers[entry.number]?.connection = connectionNumber(of: transfer.origin)
            decide(.shares(transfer.id, connection: connectionNumber(of: transfer.origin)))
        }
        let name = scheduler.settings.hostRules.governing(transfer.host).name
        transfers[entry.number]?.hasSent = true
        tell("the request of \(entry.number) goes out to \(transfer.origin)")
        guard transfer.isPaced else { return }
        lastSent[name] = now
        if let own = entry.record.options.requestInterval { lastSent["\(name) \(own)"] = now }
        decide(.sent(transfer.id, at: now))
    }

    func start(_ entry: ScheduledDownload) {
        let number = entry.number
        if transfers[number] != nil { fail("\(number) has two transfers") }
        if pool.contains(where: { $0.touches(number, in: entry.record.directory) }) {
            fail("\(number) starts while the pool works on its files")
        }
        tell("start \(number)")
        disk.turn(number, to: entry.record.directory)
        transfers[number] = Transfer(
            id: entry.request, origin: origin(of: entry.record), isPaced: scheduler.isPaced(entry.request) && unpaced.remove(number) == nil)
        transfers[number]?.mustShare = scheduler.mustShare(entry.request)
        guard !entry.record.mirrors.isEmpty else { return }
        let source = entry.record.sourceURLs.firstIndex(of: entry.record.firstURL) ?? 0
        transfers[number]?.source = source
        transfers[number]?.heldBefore = entry.record.resume?.written ?? 0
        checkSource(entry, source)
    }

    /// One step of a transfer.
    func transfer(_ a: Int, _ b: Int, _ which: DownloadNumber? = nil) {
        let numbers = transfers.keys.sorted()
        guard let number = which ?? (numbers.isEmpty ? nil : numbers[a % numbers.count]), let transfer = transfers[number] else { return }
        guard let entry = scheduler[number] ?? scheduler.leaving[number] else { return fail("a transfer of \(number), which nobody knows") }
        if transfer.isUntold { return tellBegan(entry, transfer) }
        if transfer.isStopping {
            return stop(entry, transfer, b)
        }
        if ranges, transfer.hasBegun, makesFurther(entry, transfer, b) { return }
        if transfer.awaits { return }
        guard transfer.hasSent else { return send(entry, transfer) }
        if b % 6 == 5 {
            transfers[number]?.isStalled.toggle()
            decide(.stalled(transfer.id, !transfer.isStalled))
            return
        }
        guard transfer.hasBegun else {
            if redirects ? b % 4 != 0 && transfer.hops < 12 : b % 7 == 0 && transfer.hops < 2 { return hop(entry, transfer, b) }
            // The desktop does not name the proxy: nothing was sent.
            if b % 23 == 0 { return lose(number, DownloadFailure(.network, "no proxy is known", isRetryable: true, wait: .retry)) }
            return respond(entry, b)
        }
        let mood = mood(resources[resource(of: entry.record)], at: transfer.source)
        switch b % 5 {
        case 0 where mood > 0:
            let failure = DownloadFailure(.network, "lost", isRetryable: true)
            if !movesOn(entry, failure) { lose(number, failure) }
        case 1:
            flushOrPretend(number)
            if let resume = resume(number) {
                transfers[number]?.checkpoint = resume
                decide(.checkpoint(entry, resume))
            }
        case 2, 0:
            // Some disks tell the needed space, and some (quotas) do not.
            if disk.isFull {
                return lose(number, DownloadFailure(.diskFull, "full", wait: .diskSpace, neededRoom: b % 2 == 0 ? 1000 : nil))
            }
            grow(number, by: (1 + random.next() % 700) * max(1, transfer.total / 1000))
        default:
            if disk.isFull { return lose(number, DownloadFailure(.diskFull, "full", wait: .diskSpace)) }
            complete(entry, transfer, name: name(entry))
        }
    }

    /// The order to stop has reached the engine: in mid-transfer, after the last byte, or after the connection was lost.
    private func stop(_ entry: ScheduledDownload, _ transfer: Transfer, _ b: Int) {
        let number = entry.number
        guard transfer.hasBegun, disk.parts[number] != nil else {
            return end(number, .stopped(transfer.holds ? resume(number) : entry.record.resume))
        }
        switch b % 4 {
        case 0 where !disk.isFull: complete(entry, transfer, name: plant == .nameless ? "download" : name(entry))
        case 1: lose(number, DownloadFailure(.network, "lost", isRetryable: true))
        default:
            flush(number)
            end(number, .stopped(resume(number)))
        }
    }

    private func complete(_ entry: ScheduledDownload, _ transfer: Transfer, name: String) {
        let number = entry.number
        grow(number, by: transfer.total)
        guard let file = disk.parts[number] else { return fail("the part file of \(number) is gone under its transfer") }
        let part = ResumeData(
            written: file.content.length, total: transfer.total, validator: transfer.validator, identity: identity(file.inode),
            mirror: transfer.mirror)
        validators[number] =
            entry.record.mirrors.isEmpty ? transfer.validator.flatMap { CopyValidators($0, vary: nil, source: entry.record.url) } : nil
        end(number, .complete(size: file.content.length, fileName: name, part))
    }

    /// A redirect to another origin, or to the same origin. No redirect leads from https to http.
    private func hop(_ entry: ScheduledDownload, _ transfer: Transfer, _ b: Int) {
        let number = entry.number
        let (host, isSecure) = ("h\(b / 7 % 2)", transfer.origin.hasPrefix("https:"))
        let origin =
            isSecure
            ? "https://\(host):\([443, 8443][b / 14 % 2])"
            : ["http://\(host):80", "http://\(host):8080", "https://\(host):443"][b / 14 % 3]
        if plant == .unheard {
            hearsAnswer(entry, transfer)
            return lose(number, DownloadFailure(.network, "lost", isRetryable: true))
        }
        transfers[number]?.hops += 1
        transfers[number]?.isAlone = false
        transfers[number]?.awaits = true
        transfers[number]?.question += 1
        transfers[number]?.isStalled = false
        transfers[number]?.origin = origin
        tell("\(number) is redirected to \(origin)")
        answered(transfer.origin, number)
        hearsAnswer(entry, transfer, isRedirect: true)
        decide(.asks(transfer.id, host: host, origin: plant == .portless ? nil : origin, question: transfer.question + 1))
    }

    /// The option `filename`, else the server's name, which differs from the URL's.
    func name(_ entry: ScheduledDownload) -> String { entry.record.options.fileName ?? "f\(entry.number)" }
    static let mediaType = "application/x-told"

    private func grow(_ number: DownloadNumber, by bytes: ByteCount) {
        guard let transfer = transfers[number], disk.parts[number] != nil else { return fail("no part file of \(number)") }
        disk.parts[number]?.grow(by: bytes, upTo: transfer.total, transfer.version, from: transfer.source)
    }

    func flush(_ number: DownloadNumber) {
        if transfers[number]?.holds == true { disk.parts[number]?.flush() }
    }

    private func flushOrPretend(_ number: DownloadNumber) { if plant != .unflushed { flush(number) } }

    /// The engine's resume data for the bytes on disk; nil if no later transfer could resume from them.
    func resume(_ number: DownloadNumber) -> ResumeData? {
        guard let transfer = transfers[number], let file = disk.parts[number], let entry = scheduler[number] ?? scheduler.leaving[number],
            transfer.validator != nil || entry.record.options.checksum != nil || plant == .trusting
        else { return nil }
        return ResumeData(
            ranges: file.ranges, total: transfer.total, validator: transfer.validator, identity: identity(file.inode),
            mirror: plant == .placeless ? nil : transfer.mirror)
    }

    /// The server answers, or does not.
    private func respond(_ entry: ScheduledDownload, _ b: Int) {
        let number = entry.number
        var resource = resources[resource(of: entry.record)]
        if let version = assetMachine?.version(at: entry.record.url) { resource.version = version }
        guard let transfer = transfers[number] else { return }
        // The resume data of the bytes in the part file.
        let known = transfer.holds ? transfer.begun : entry.record.resume
        let progress = transfer.holds && known?.written ?? 0 > transfer.heldBefore
        let failures: [DownloadFailure?] = [
            nil, nil, DownloadFailure(.network, "unreachable", isRetryable: true),
            DownloadFailure(
                .httpStatus, "503", httpStatus: 503, host: transfer.host, isRetryable: true,
                retryAfter: .seconds(b % 2 == 0 ? 86_400 : 120)),
            DownloadFailure(.httpStatus, "403", httpStatus: 403), DownloadFailure(.httpStatus, "404", httpStatus: 404),
            DownloadFailure(.network, "offline", isRetryable: true, wait: .offline), nil,
            DownloadFailure(.writeFailed, "EIO", isRetryable: true, wait: .destination),
            DownloadFailure(.httpStatus, "410", httpStatus: 410),
        ]
        let mood = mood(resource, at: transfer.source)
        if let failure = failures[mood] {
            if let pause = failure.retryAfter {
                if !isBeingResumed(number), entry.record.mirrors.isEmpty { floors[number] = now + pause }
                refused(entry, at: transfer.origin, for: pause, requestedAt: requestedAt[number])
            } else if [4, 5, 9].contains(mood) {
                answered(transfer.origin, number)
                hearsAnswer(entry, transfer)
            }
            if movesOn(entry, failure) { return }
            return end(number, .failed(failure, madeProgress: progress, claims(entry, at: known?.mirror) == nil ? nil : known))
        }
        answered(transfer.origin, number)
        let isToDescriptor = entry.record.isToDescriptor
        guard disk.isFolderThere || isToDescriptor else {
            let failure = DownloadFailure(.permissionDenied, "gone", wait: .destination)
            return end(number, .failed(failure, madeProgress: progress, known))
        }
        if let copy = copy(of: entry), isIntact(copy) || plant == .credulous, claims(entry) == nil, let tag = copy.validators?.entityTag,
            tag == "\"\(resource.version)\""
        {
            if disk.finals[copy.path]?.content.version != resource.version { fail("\(number) ends with a copy that is not the file") }
            hearsAnswer(entry, transfer)
            return end(number, .unchanged(copy))
        }
        let policy = entry.record.options.ifExists
        if !isToDescriptor, policy == .skip || policy == .fail, disk.finals[path(entry)] != nil {
            return end(number, .nameTaken(path: path(entry)))
        }

        var begun = transfer
        let validator = resource.hasValidator || plant == .credulous ? Validator.entityTag("\"\(resource.version)\"") : nil
        // No mirror equals the URL of its download, so the places of the sources are those of the mirrors, and one more.
        let mirror: UInt32? = transfer.source == 0 ? nil : UInt32(transfer.source - 1)
        let isOfAnother = known.map { $0.mirror != mirror } ?? false
        var offset: ByteCount = 0
        (begun.validator, begun.mirror) = (validator, mirror)
        // A part file without bytes belongs to no source.
        if let held = claims(entry, at: mirror), !held.isEmpty || !hasMirrors, let known,
            isOfAnother || known.validator == validator || known.validator == nil, !hasStretches || known.total == resource.size
        {
            offset = believe(held.clipped(to: resource.size), of: number)
            // A joined file keeps the validator of the source that began it.
            if isOfAnother { (begun.validator, begun.mirror) = (known.validator, known.mirror) }
        } else {
            disk.parts[number] = File(inode: disk.newInode())
        }
        (begun.hasBegun, begun.holds, begun.isUntold, begun.total) = (true, true, true, resource.size)
        begun.version = version(resource, at: transfer.source, for: entry.record)
        begun.heldAtStart = offset
        transfers[number] = begun
    }

    /// - Parameter requestedAt: when the refused request was permitted.
    func refused(_ entry: ScheduledDownload, at origin: String, for pause: Duration, requestedAt: WallTime?) {
        let (app, until) = (entry.record.options.app, now + pause)
        let isHeard = entry.work == .running && entry.state == .active && !entry.isRemoved
        let mayDelay = slowness[origin, default: Slowness()].refused(
            entry.number, requestedAt: requestedAt, isHeard: isHeard, until: until, by: app, now: now)
        hastened = []
        guard mayDelay else { return }
        guard refusedDownloads[origin, default: []].insert(entry.number).inserted else {
            // If the scheduler has not counted the earlier refusal, or tries the first interval again, the common pause begins now.
            if commonFloors[origin].map({ now - $0.since > .seconds(600) }) ?? true { commonFloors[origin] = (now, now) }
            return
        }
        originFloors[origin, default: [:]][app] = max(originFloors[origin]?[app] ?? until, until)
        // A later refusal prolongs the pause only for the applications that it refuses, not for the others.
        if commonFloors[origin].map({ now - $0.since > .seconds(600) }) ?? true {
            commonFloors[origin] = (now, min(until, now + OriginPace.longestForOthers))
        }
    }

    /// An answer may end the pauses. The scheduler keeps them if it does not hear of the answer, or if the request was older than the
    /// refusal.
    func answered(_ origin: String, _ number: DownloadNumber) {
        slowness[origin]?.mayHaveAnswered(number)
        originFloors[origin] = nil
        if let since = commonFloors[origin]?.since { commonFloors[origin]?.until = since }
    }

    /// The scheduler hears of an answer that is no refusal.
    private func hearsAnswer(_ entry: ScheduledDownload, _ transfer: Transfer, isRedirect: Bool = false) {
        slowness[transfer.origin]?.mayHaveAnswered(entry.number)
        guard entry.work == .running, !entry.isRemoved, let time = requestedAt[entry.number] else { return }
        if !isRedirect { refusedDownloads[transfer.origin]?.remove(entry.number) }
        let ruled = scheduler.settings.hostRules.governing(transfer.host).rule.requestInterval ?? .zero
        let endsPauses = slowness[transfer.origin]?.answered(requestedAt: time, ruled: ruled, now: now) ?? false
        if endsPauses { commonFloors[transfer.origin] = nil }
    }

    /// The scheduler hears of an accepted response later than the engine, because the service and the engine have separate event loops.
    private func tellBegan(_ entry: ScheduledDownload, _ transfer: Transfer) {
        transfers[entry.number]?.isUntold = false
        if plant == .nameless, transfer.isStopping { return }
        hearsAnswer(entry, transfer)
        let isResumable = transfer.validator != nil || entry.record.options.checksum != nil || plant == .trusting
        var response = Scheduler.Response(
            fileName: name(entry), mediaType: Self.mediaType, source: nil, total: plant == .sizeless ? nil : transfer.total,
            offset: plant == .slanderous ? 0 : transfer.heldAtStart, isResumable: isResumable)
        // Some requests get a connection of their own, although another connection has room.
        if crowd == .connections || crowd == .rules, transfer.mustShare || random.below(6) > 0 {
            response.connection = connectionNumber(of: transfer.origin)
        }
        transfers[entry.number]?.connection = response.connection
        // The request that the transfer began with may be over.
        decide(.began(transfer.id, response))
    }

    private func copy(of entry: ScheduledDownload) -> CachedCopy? {
        entry.record.options.onlyIfChanged && !entry.record.isToDescriptor ? saved.copies[entry.record.copyKey] : nil
    }

    /// Whether the copy's file has not changed since it was written.
    func isIntact(_ copy: CachedCopy) -> Bool {
        guard disk.isFolderThere, let file = disk.finals[copy.path] else { return false }
        return file.inode == copy.stamp.identity.inode && file.modified == copy.stamp.modified
    }

    private func path(_ entry: ScheduledDownload) -> String { "\(entry.record.directory)/\(name(entry))" }

    /// The slice of its batch's Resume may come later, and end a wait that begins now.
    func isBeingResumed(_ number: DownloadNumber) -> Bool {
        if !scheduler.hasSlices { resuming = [] }
        return resuming.contains(number)
    }

    func lose(_ number: DownloadNumber, _ failure: DownloadFailure) {
        flush(number)
        if let transfer = transfers[number], let entry = scheduler[number] ?? scheduler.leaving[number], !entry.record.mirrors.isEmpty {
            let known = transfer.holds ? resume(number) : entry.record.resume
            return end(number, .failed(failure, madeProgress: known?.written ?? 0 > transfer.heldBefore, known))
        }
        let progress = (disk.parts[number]?.ranges.byteCount ?? 0) > (transfers[number]?.heldAtStart ?? 0)
        end(number, .failed(failure, madeProgress: progress, resume(number)))
    }

    /// - Parameter isByRequest: whether the response to a request, or the lack of one, ended the transfer.
    func end(_ number: DownloadNumber, _ outcome: TransferOutcome, isByRequest: Bool = true) {
        let request = transfers.removeValue(forKey: number)?.id
        switch outcome {
        case .stopped: break  // urgency outlasts a mere stop
        default:
            if !isBeingResumed(number) { urgent.remove(number) }
            hastened.remove(number)
        }
        tell("transfer of \(number) ends: \(outcome.word)")
        if case .failed(let failure, _, _) = outcome, failure.name == .network, scheduler[number]?.state == .active {
            defying.remove(number)
            mayDefy.remove(number)
        }
        let first = (scheduler[number] ?? scheduler.leaving[number])?.request
        decide(.transferEnded(number, outcome, by: isByRequest ? hasStretches ? request : first : nil))
    }

    // MARK: The pool

    /// One step of one piece of work in the pool.
    func work(_ a: Int, _ b: Int) {
        guard !pool.isEmpty else { return }
        let work = pool.remove(at: a % pool.count)
        switch work {
        case .verify(let number): verify(number)
        case .unpack(let number): unpack(number, b)
        case .commit(let number): commitFile(number, b)
        case .find(let number): find(number)
        case .sweep(let number, let directory):
            let isOwn = (scheduler[number] ?? scheduler.leaving[number]).map { $0.record.directory == directory } ?? true
            if isOwn, transfers[number] != nil { fail("the part file of \(number) is deleted under its transfer") }
            if isOwn, pool.contains(where: { if case .unpack(number) = $0 { true } else { false } }) {
                fail("the part file of \(number) is deleted under its extraction")
            }
            if descriptors.contains(number) {
                disk.parts[number] = nil
                return reportSwept(number, directory, isGone: true)
            }
            if !disk.isFolderThere, !isEnding { return reportSwept(number, directory, isGone: false) }
            if let file = disk.delete(number, in: directory, keepsFolder: plant == .leaky) {
                return pool.append(.unlinked(number, directory, file))
            }
            reportSwept(number, directory, isGone: true)
        case .unlinked(let number, let directory, _): reportSwept(number, directory, isGone: true)
        case .swept(let number, let directory, let isGone):
            sweeping[number]?.remove(directory)
            decide(.swept(number, directory: directory, isGone: isGone))
        case .renamed(let number, let path, _): reportCommitted(number, path)
        case .renamedFolder(let number, let path): reportFolder(number, path)
        case .asset(let work): assets?.perform(work, b)
        case .tell(let event): decide(event)
        }
    }

    private func reportSwept(_ number: DownloadNumber, _ directory: String, isGone: Bool) {
        pool.append(.swept(number, directory, isGone: isGone))
    }

    private func report(_ event: Scheduler.Event) { pool.append(.tell(event)) }

    private func verify(_ number: DownloadNumber) {
        guard let entry = scheduler[number] ?? scheduler.leaving[number] else { return fail("\(number) is verified, and nobody knows it") }
        guard let file = disk.parts[number], let resume = entry.record.resume, resume.identity == identity(file.inode),
            file.content.length == entry.record.received
        else { return report(.partLost(entry)) }
        guard disk.isFolderThere || entry.record.isToDescriptor else {
            let failure = DownloadFailure(.permissionDenied, "gone", wait: .destination)
            return report(.endingFailed(entry, failure))
        }
        disk.parts[number]?.flush()
        if entry.record.options.checksum != nil, file.content.version != wanted[number] {
            if let maker = file.makers.first, file.makers.count == 1 { guilty[number, default: []].insert(maker) }
            let failure = DownloadFailure(.checksumMismatch, "differs")
            return report(.endingFailed(entry, failure))
        }
        if let copy = copy(of: entry), isIntact(copy), disk.finals[copy.path]?.content == file.content {
            var renewed = copy
            renewed.validators = validators[number]
            return report(.foundUnchanged(entry, renewed))
        }
        let identity = identity(file.inode)
        report(.verified(entry, identity))
    }

    // MARK: Extractions

    /// Unpacks half of the archive, or the rest.
    private func unpack(_ number: DownloadNumber, _ b: Int) {
        guard let entry = scheduler[number] ?? scheduler.leaving[number] else { return fail("\(number) is unpacked, and nobody knows it") }
        if stopping.remove(number) != nil { return report(.unpackingStopped(entry)) }
        guard disk.isFolderThere else {
            return report(.endingFailed(entry, DownloadFailure(.permissionDenied, "gone", wait: .destination)))
        }
        guard let part = disk.parts[number], part.inode == entry.record.resume?.identity.inode, part.content.length == entry.record.received
        else { return report(.partLost(entry)) }
        if part.durable < part.content.length { fail("\(number) is unpacked, and its archive is not on disk") }
        if disk.isFull { return report(.endingFailed(entry, DownloadFailure(.diskFull, "full", wait: .diskSpace))) }
        // The process that unpacks was killed.
        if b % 13 == 5 { return report(.endingFailed(entry, DownloadFailure(.extraction, "stopped", isRetryable: true))) }
        guard let version = part.content.version else { return fail("the archive of \(number) is a mixture: \(part.content.stretches)") }
        if b % 11 == 0 {
            disk.folders[number] = nil
            return report(.unpackingFailed(entry, DownloadFailure(.extraction, "refused"), isDamaged: b % 2 == 0))
        }
        if disk.folders[number]?.archive != part.inode || disk.folders[number]?.file == nil {
            let inode = disk.newInode()
            disk.folders[number] = Unpacked(archive: part.inode, inode: inode, file: File(inode: inode))
        }
        let length = part.content.length
        let isHalf = disk.folders[number]?.file.map { $0.content.length >= length / 2 } ?? false
        disk.folders[number]?.file?.content.append(version, upTo: isHalf ? length : length / 2)
        if isHalf || b % 2 == 0 { disk.folders[number]?.file?.durable = isHalf ? length : length / 2 }
        if isHalf { report(.unpacked(entry)) } else { pool.append(.unpack(number)) }
    }

    private func commitFolder(_ entry: ScheduledDownload, _ b: Int) {
        let number = entry.number
        guard disk.isFolderThere, b % 9 != 0 else {
            return report(.endingFailed(entry, DownloadFailure(.permissionDenied, "gone", wait: .destination)))
        }
        guard let folder = disk.folders[number]?.file else { return fail("the unpacked folder of \(number) is gone before its commit") }
        if folder.content.length != entry.record.received { fail("\(number) gets its name, and is not whole") }
        var target = "\(entry.record.directory)/\(entry.record.folderName ?? "")"
        if disk.finals[target] != nil {
            switch entry.record.options.ifExists {
            case .skip: return report(.committed(entry, path: target, skipped: true))
            case .fail: return report(.endingFailed(entry, DownloadFailure(.alreadyExists, "taken")))
            case .rename, .replace:
                var count = 1
                while disk.finals["\(target) (\(count))"] != nil { count += 1 }
                target = "\(target) (\(count))"
            }
        }
        disk.finals[target] = folder
        disk.folders[number]?.file = nil
        pool.append(.renamedFolder(number, path: target))
    }

    private func reportFolder(_ number: DownloadNumber, _ path: String) {
        guard let entry = scheduler[number], let inode = disk.folders[number]?.inode else { return }
        report(.folderCommitted(entry, path: path, identity(inode)))
    }

    private func findFolder(_ entry: ScheduledDownload) {
        let inode = disk.folders[entry.number]?.inode
        if let path = disk.finals.first(where: { $0.value.inode == inode })?.key {
            reportFolder(entry.number, path)
        } else if disk.folders[entry.number]?.file?.content.length == entry.record.received {
            pool.append(.commit(entry.number))
        } else {
            report(.partLost(entry))
        }
    }

    private func commitFile(_ number: DownloadNumber, _ b: Int) {
        guard let entry = scheduler[number], entry.state == .committing else { return }
        if entry.record.folderName != nil, !entry.record.isToDescriptor { return commitFolder(entry, b) }
        if entry.record.isToDescriptor {
            disk.parts[number] = nil  // the file belongs to the caller
            return report(.committed(entry, path: ""))
        }
        guard disk.isFolderThere, b % 9 != 0 else {
            let failure = DownloadFailure(.permissionDenied, "gone", wait: .destination)
            return report(.endingFailed(entry, failure))
        }
        guard let file = disk.parts[number] else { return fail("the part file of \(number) is gone before its commit") }
        var target = "\(entry.record.directory)/\(entry.record.finalName)"
        let was = disk.finals[target]
        if was != nil {
            switch entry.record.options.ifExists {
            case .replace: break
            case .rename:
                var count = 1
                while disk.finals["\(target) (\(count))"] != nil { count += 1 }
                target = "\(target) (\(count))"
            case .skip:
                disk.parts[number] = nil
                return report(.committed(entry, path: target, skipped: true))
            case .fail:
                return report(.endingFailed(entry, DownloadFailure(.alreadyExists, "taken")))
            }
        }
        stamps[number] = FileStamp(identity: identity(file.inode), size: file.content.length, modified: file.modified)
        disk.finals[target] = file
        disk.parts[number] = nil
        pool.append(.renamed(number, path: target, was: entry.record.options.ifExists == .replace ? was : nil))
    }

    private func reportCommitted(_ number: DownloadNumber, _ path: String) {
        guard let entry = scheduler[number] else { return }
        var copy: CachedCopy?
        if entry.record.keepsCopy, let file = disk.finals[path] {
            let now = FileStamp(identity: identity(file.inode), size: file.content.length, modified: file.modified)
            let stamp = stamps[number] ?? now  // found after a restart: no validators are known
            copy = CachedCopy(
                key: entry.record.copyKey, name: String(path.split(separator: "/").last ?? ""), stamp: stamp, validators: validators[number]
            )
        }
        report(.committed(entry, path: path, copy: copy))
    }

    private func find(_ number: DownloadNumber) {
        guard let entry = scheduler[number], let inode = entry.record.resume?.identity.inode else { return }
        if entry.record.folderName != nil { return findFolder(entry) }
        if let path = disk.finals.first(where: { $0.value.inode == inode })?.key {
            reportCommitted(number, path)
        } else if disk.parts[number]?.inode == inode {
            pool.append(.commit(number))
        } else {
            report(.partLost(entry))
        }
    }
}

extension Work {
    fileprivate func touches(_ number: DownloadNumber, in directory: String) -> Bool {
        switch self {
        case .verify(number), .unpack(number), .commit(number), .find(number), .renamed(number, _, _), .renamedFolder(number, _): true
        // In a folder that the download has left, a deletion touches nothing of it.
        case .sweep(number, let place), .unlinked(number, let place, _): place == directory
        default: false
        }
    }
}

extension TransferOutcome {
    fileprivate var word: String {
        switch self {
        case .complete(let size, _, _): "complete, \(size)"
        case .failed(let failure, _, let resume): "failed, \(failure.message), \(resume?.written ?? 0) held"
        case .stopped(let resume): "stopped, \(resume?.written ?? 0) held"
        case .nameTaken: "name taken"
        case .unchanged: "unchanged"
        }
    }
}
