internal import DownloadModel

/// What callers ask for: checks, updates, rollbacks and cancellations.
extension AssetUpdater {
    func check(_ key: AssetKey, _ call: CallNumber) {
        guard let state = assets[key] else { return }
        switch state.activity {
        case _ where state.record.isLeaving: answer(.call(call), .refused(Self.isLeaving(key)))
        case .none, .rollingBack:
            guard state.activity == .none else { return answer(.call(call), .refused(isRollingBack(key))) }
            assets[key]?.checks.append(.call(call))
            assets[key]?.isBackground = false
            beginCheck(key)
        case .checking(let ticket):
            assets[key]?.checks.append(.call(call))
            raiseCheck(key, ticket)
        case .checkingSpace, .starting, .downloading, .verifying, .extracting, .switching, .deleting:
            let latest = state.record.pending?.manifest.version ?? state.record.latest ?? ""
            answer(.call(call), .checked(isNewer: true, latest: latest))
        }
    }

    func update(_ key: AssetKey, forces: Bool, _ caller: AssetCaller, now: WallTime) {
        guard let state = assets[key] else { return }
        guard !state.record.isLeaving else { return answer(caller, .refused(Self.isLeaving(key))) }
        guard state.activity != .rollingBack else { return answer(caller, .refused(isRollingBack(key))) }
        if state.isBackground { raise(key) }
        if state.isResumed {
            return modify(key) { state in
                state.nextUpdates.append(caller)
                state.nextForces = state.nextForces == true || forces
            }
        }
        assets[key]?.updates.append(caller)
        switch state.activity {
        case .none:
            modify(key) { ($0.wantsUpdate, $0.forces) = (true, forces) }
            beginCheck(key)
        case .checking:
            modify(key) { ($0.wantsUpdate, $0.forces) = (true, state.forces && state.wantsUpdate || forces) }
        default: break
        }
    }

    /// A call asks for the update that the service began by itself: it does not wait for an unmetered connection any more.
    private func raise(_ key: AssetKey) {
        assets[key]?.isBackground = false
        guard let state = assets[key] else { return }
        if state.record.pending?.isBackground == true { change(key) { $0.pending?.isBackground = false } }
        switch state.activity {
        case .checking(let ticket): raiseCheck(key, ticket)
        case .downloading(let number), .verifying(let number): actions.append(.raiseDownload(key, number))
        case .none, .checkingSpace, .starting, .extracting, .switching, .rollingBack, .deleting: break
        }
    }

    /// Fetches the manifest anew if its fetch waits for an unmetered connection.
    private func raiseCheck(_ key: AssetKey, _ ticket: Ticket) {
        guard assets[key]?.fetchesInBackground == true else { return }
        actions.append(.cancelFetch(key, ticket))
        beginCheck(key)
    }

    /// The update of an earlier process has ended: begins the one that calls have asked for since.
    func beginNextUpdate(_ key: AssetKey) {
        guard let state = assets[key], state.isResumed else { return }
        guard !state.record.isLeaving else {
            modify(key) { ($0.isResumed, $0.nextUpdates, $0.nextForces) = (false, [], nil) }
            return answer(state.nextUpdates, .refused(Self.isLeaving(key)))
        }
        modify(key) { state in
            (state.isResumed, state.updates, state.nextUpdates) = (false, state.nextUpdates, [])
            (state.forces, state.nextForces, state.wantsUpdate) = (state.nextForces == true, nil, state.nextForces != nil)
        }
        if state.nextForces != nil { beginCheck(key) }
    }

    private func isRollingBack(_ key: AssetKey) -> Refusal { Refusal(.invalidState, "The asset \(key) is being rolled back.") }

    func updateAll(_ app: String, forces: Bool, _ call: CallNumber, now: WallTime) {
        let keys = keys(of: app)
        guard !keys.isEmpty else { return answer(.call(call), .allUpdated([])) }
        lastGroup &+= 1
        groups[lastGroup] = AssetGroup(call: call, waiting: keys, count: keys.count)
        let number = lastGroup
        for key in keys { update(key, forces: forces, .group(number, key), now: now) }
    }

    /// One asset of a call for several has ended.
    func answerGroup(_ number: UInt64, _ key: AssetKey, _ answer: Answer) {
        guard var group = groups[number] else { return }
        group.waiting.removeAll { $0 == key }
        switch answer {
        case .updated(let isChanged, let path): group.results.append(AppUpdate(key: key, isChanged: isChanged, path: path))
        default: group.failures.append((key, answer))
        }
        groups[number] = group.waiting.isEmpty ? nil : group
        guard group.waiting.isEmpty else { return }
        let failures = group.failures.sorted { $0.key < $1.key }
        guard let first = failures.first else {
            return self.answer(.call(group.call), .allUpdated(group.results.sorted { $0.key < $1.key }))
        }
        let words = "\(failures.count) of \(group.count) assets were not updated. \(first.key.name): "
        switch first.answer {
        case .failed(var failure):
            failure.message = "\(words)\(failure.message)"
            self.answer(.call(group.call), .failed(failure))
        case .refused(let refusal): self.answer(.call(group.call), .refused(Refusal(refusal.name, "\(words)\(refusal.message)")))
        default: self.answer(.call(group.call), .refused(Refusal(.invalidState, words)))
        }
    }

    func rollBack(_ key: AssetKey, _ call: CallNumber) {
        guard let state = assets[key] else { return }
        let refusal: Refusal? =
            if state.record.isLeaving {
                Self.isLeaving(key)
            } else if state.activity == .rollingBack {
                nil
            } else if state.activity != .none {
                Refusal(.invalidState, "The asset \(key) is being updated; wait for the end or cancel the update before a rollback.")
            } else if state.record.previous == nil {
                Refusal(.invalidState, "The asset \(key) has no version before the installed one.")
            } else {
                nil
            }
        if let refusal { return answer(.call(call), .refused(refusal)) }
        assets[key]?.rollbacks.append(.call(call))
        guard state.activity == .none, let previous = state.record.previous else { return }
        dropPending(key)
        change(key) { $0.isRollingBack = true }
        switchLink(key, to: previous.folder, .rollingBack)
    }

    func cancel(_ key: AssetKey, _ call: CallNumber) {
        abandon(key, DownloadFailure(.cancelled, "The update was cancelled."))
        answer(.call(call), .done)
    }

    /// Ends what is under way, and gives up what a failed update has left. A switch is one step, and is not stopped.
    func abandon(_ key: AssetKey, _ failure: DownloadFailure) {
        guard let state = assets[key] else { return }
        switch state.activity {
        case .switching, .rollingBack, .deleting: return
        case .none where state.record.pending == nil: return
        case .checking(let ticket):
            actions.append(.cancelFetch(key, ticket))
            answer(state.checks, .failed(failure))
            assets[key]?.checks = []
        case .extracting: if let folder = state.record.pending?.folder { actions.append(.cancelExtraction(key, folder: folder)) }
        case .none, .checkingSpace, .starting, .downloading, .verifying: break
        }
        let isUpdate = state.wantsUpdate || state.record.pending != nil
        modify(key) { ($0.wantsUpdate, $0.forces, $0.activity) = (false, false, .none) }
        dropPending(key)
        if isUpdate { change(key) { ($0.isCancelled, $0.failure) = (true, nil) } }
        answer(takeUpdates(key), .failed(failure))
        assets[key]?.isResumed = false
        actions.append(.tell(key))
        tidy(key)
    }
}
