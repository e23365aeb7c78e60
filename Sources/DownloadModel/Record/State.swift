/// Why a download waits. Raw values are those of the D-Bus contract.
public enum WaitReason: String, CaseIterable, Sendable {
    case retry
    /// Until the instant of the option `not-before`.
    case notBefore = "not-before"
    /// The host's request interval has not passed, or the server requested a pause.
    case rateLimit = "rate-limit"
    /// The host already has as many transfers as it may have.
    case hostLimit = "host-limit"
    /// There is no network.
    case offline
    /// The connection is metered, and the option `allow-metered` is false.
    case metered
    /// The missing bytes do not fit on the disk.
    case diskSpace = "disk-space"
    /// The folder does not exist, or is not writable.
    case destination
    /// The server no longer accepts the link; the owner must give a fresh one.
    case needsUrl = "needs-url"
    case pausedAll = "paused-all"
}

/// The state of a download. `after(_:)` defines all transitions. At a start, and when the clock is set, a wait is computed again.
public enum DownloadState: Equatable, Sendable {
    case queued
    case waiting(WaitReason, until: WallTime?)
    case active
    case paused
    /// The body is whole; its file is flushed and its digest computed.
    case verifying
    /// Verified; the archive is being unpacked beside its part file (option `extract`).
    case extracting
    /// Verified and, with `extract`, unpacked; the file or folder is getting its final name. Cannot be stopped. `verifying` on the bus.
    case committing
    case finished
    indirect case failed(DownloadFailure)  // indirect: keeps the other 100,000 records small
    case cancelled

    /// The state's name in the D-Bus contract.
    public var name: String {
        switch self {
        case .queued: "queued"
        case .waiting: "waiting"
        case .active: "active"
        case .paused: "paused"
        case .verifying, .committing: "verifying"
        case .extracting: "extracting"
        case .finished: "finished"
        case .failed: "failed"
        case .cancelled: "cancelled"
        }
    }

    public var hasEnded: Bool {
        switch self {
        case .finished, .failed, .cancelled: true
        default: false
        }
    }

    /// The download runs, or will start as soon as its turn comes.
    package var isUnderWay: Bool {
        switch self {
        case .queued, .active, .verifying, .extracting, .committing: true
        case .waiting, .paused, .finished, .failed, .cancelled: false
        }
    }

    /// The body is whole, and the pool brings the download to its end.
    package var isEnding: Bool { self == .verifying || self == .extracting || self == .committing }

    /// Whether the download resumes as soon as its folder, or free space, appears.
    package var awaitsFolder: Bool {
        switch self {
        case .waiting(.diskSpace, nil), .waiting(.destination, nil): true
        default: false
        }
    }

    /// The download resumes only when a person or an app acts: ResumeAll, a fresh link, or Resume.
    public var rests: Bool {
        switch self {
        case .paused, .waiting(.pausedAll, _), .waiting(.needsUrl, _): true
        default: false
        }
    }

    public var failure: DownloadFailure? { if case .failed(let failure) = self { failure } else { nil } }
}

/// An event in the life of a download.
public enum DownloadEvent: Equatable, Sendable {
    /// The scheduler starts the download.
    case start
    /// As `start`, for a download whose part file is whole already.
    case startWhole
    case pause
    case resume
    case cancel
    /// Queues a failed or cancelled download again.
    case retry
    /// The owner gave a fresh link.
    case renew
    /// The download releases its slot, because another application is due or the machine suspends. It is queued again.
    case yield
    /// PauseAll: every download that is not paused or ended waits. `release` is ResumeAll.
    case hold
    case release
    /// The download cannot start yet; or an attempt, the verification, the extraction or the commit ended for `reason`.
    case wait(WaitReason, until: WallTime?)
    /// The reason for the wait is gone.
    case ready
    /// An attempt, the verification, the extraction or the commit failed for good.
    case fail(DownloadFailure)
    /// An attempt failed for good at a response of a wrong size, which says nothing about the bytes that earlier responses have brought.
    case refuse(DownloadFailure)
    /// The received archive is broken, and nothing proves that the server has the same: its bytes are useless.
    case spoil(DownloadFailure)
    /// The option `deadline` expired.
    case expire(DownloadFailure)
    /// The descriptor that the download writes into is gone with its process, or will be.
    case interrupt(DownloadFailure)
    case bodyComplete
    /// The name is taken and the caller said `skip`: the existing file is the outcome.
    case skipped
    /// The server has nothing newer than the cached copy, or sent the same bytes again: the copy is the outcome.
    case unchanged
    case verified
    case committed
    /// The archive is verified: it must be unpacked.
    case unpack
    /// All files of the archive are on disk, in a folder without its final name.
    case unpacked
    /// The unpacked folder has its final name, and the archive is deleted next.
    case folderCommitted
    /// A file of several responses does not match its checksum: restart from 0.
    case startOver
    /// The whole part file no longer exists: queue the download again.
    case partLost
    /// The network is gone or must not be used: the download waits, and a running transfer stops.
    case hinder(WaitReason)
}

/// The effects of a transition. The service performs them; the engine and the pool only follow orders.
public enum DownloadEffect: Equatable, Sendable {
    case startTransfer
    /// The engine stops and saves a checkpoint.
    case stopTransfer
    case verify
    case unpack
    /// Stops before the next chunk. What is unpacked stays for a later extraction.
    case stopUnpacking
    case commit
    case deletePart
    case announceEnd
}

/// An event that a state cannot take.
public struct IllegalTransition: Error, Equatable, Sendable {
    public let state: DownloadState
    public let event: DownloadEvent

    package init(state: DownloadState, event: DownloadEvent) { (self.state, self.event) = (state, event) }
}

extension DownloadState {
    /// The state after `event`, and the effects to perform. Pure.
    ///
    /// Steering events (`pause`, `resume`, `hold`, `release`, `cancel`, `renew`, `expire`) that change nothing return the same state and no
    /// effects.
    public func after(_ event: DownloadEvent) throws(IllegalTransition) -> (DownloadState, [DownloadEffect]) {
        switch (self, event) {
        case (.queued, .start): (.active, [.startTransfer])
        case (.queued, .startWhole): (.verifying, [.verify])

        case (.queued, .pause), (.waiting, .pause): (.paused, [])
        case (.active, .pause): (.paused, [.stopTransfer])
        case (.extracting, .pause): (.paused, [.stopUnpacking])
        case (.paused, .pause), (.verifying, .pause), (.committing, .pause): (self, [])

        case (.paused, .resume): (.queued, [])
        case (.waiting(let reason, _), .resume) where reason.isHastened: (.queued, [])
        case (.queued, .resume), (.waiting, .resume), (.active, .resume), (.verifying, .resume), (.extracting, .resume),
            (.committing, .resume):
            (self, [])

        case (.queued, .cancel), (.waiting, .cancel), (.paused, .cancel), (.verifying, .cancel): (.cancelled, [.deletePart, .announceEnd])
        case (.active, .cancel): (.cancelled, [.stopTransfer, .deletePart, .announceEnd])
        case (.extracting, .cancel): (.cancelled, [.stopUnpacking, .deletePart, .announceEnd])

        case (.failed, .retry), (.cancelled, .retry): (.queued, [])

        case (.active, .renew), (.active, .yield): (.queued, [.stopTransfer])
        case (.failed, .renew), (.waiting(.needsUrl, _), .renew), (.waiting(.retry, _), .renew): (.queued, [])
        case (.queued, .renew), (.waiting, .renew), (.paused, .renew), (.verifying, .renew), (.extracting, .renew), (.committing, .renew):
            (self, [])

        case (.queued, .hold), (.waiting, .hold): (.waiting(.pausedAll, until: nil), [])
        case (.active, .hold): (.waiting(.pausedAll, until: nil), [.stopTransfer])
        case (.extracting, .hold): (.waiting(.pausedAll, until: nil), [.stopUnpacking])
        case (.paused, .hold), (.verifying, .hold), (.committing, .hold): (self, [])
        case (.waiting(.pausedAll, _), .release): (.queued, [])
        case (.queued, .release), (.waiting, .release), (.active, .release), (.paused, .release), (.verifying, .release),
            (.extracting, .release), (.committing, .release):
            (self, [])

        case (.queued, .wait(let reason, let until)), (.active, .wait(let reason, let until)), (.verifying, .wait(let reason, let until)),
            (.extracting, .wait(let reason, let until)), (.committing, .wait(let reason, let until)):
            (.waiting(reason, until: until), [])
        case (.waiting(let reason, _), .ready) where reason != .pausedAll: (.queued, [])

        case (.active, .fail(let failure)), (.verifying, .fail(let failure)), (.extracting, .fail(let failure)),
            (.committing, .fail(let failure)):
            (.failed(failure), failure.spoilsBytes ? [.deletePart, .announceEnd] : [.announceEnd])
        case (.active, .refuse(let failure)): (.failed(failure), [.announceEnd])
        case (.extracting, .spoil(let failure)): (.failed(failure), [.deletePart, .announceEnd])

        case (.queued, .expire(let failure)), (.waiting, .expire(let failure)): (.failed(failure), [.announceEnd])
        case (.active, .expire(let failure)): (.failed(failure), [.stopTransfer, .announceEnd])
        case (.paused, .expire), (.verifying, .expire), (.extracting, .expire), (.committing, .expire): (self, [])

        case (.active, .interrupt(let failure)): (.failed(failure), [.stopTransfer, .announceEnd])
        case (.extracting, .interrupt(let failure)): (.failed(failure), [.stopUnpacking, .announceEnd])
        case (.queued, .interrupt(let failure)), (.waiting, .interrupt(let failure)), (.paused, .interrupt(let failure)),
            (.verifying, .interrupt(let failure)), (.committing, .interrupt(let failure)):
            (.failed(failure), [.announceEnd])

        case (.active, .bodyComplete): (.verifying, [.verify])
        case (.active, .skipped), (.committing, .skipped): (.finished, [.deletePart, .announceEnd])
        case (.active, .unchanged), (.verifying, .unchanged): (.finished, [.deletePart, .announceEnd])
        case (.verifying, .verified): (.committing, [.commit])
        case (.committing, .committed): (.finished, [.announceEnd])
        case (.verifying, .unpack): (.extracting, [.unpack])
        case (.extracting, .unpacked): (.committing, [.commit])
        case (.committing, .folderCommitted): (.finished, [.deletePart, .announceEnd])
        case (.queued, .hinder(let reason)): (.waiting(reason, until: nil), [])
        case (.active, .hinder(let reason)): (.waiting(reason, until: nil), [.stopTransfer])
        case (.waiting(let old, _), .hinder(let reason)) where old.yieldsToNetwork: (.waiting(reason, until: nil), [])

        case (.verifying, .startOver): (.queued, [.deletePart])
        case (.verifying, .partLost), (.extracting, .partLost), (.committing, .partLost): (.queued, [])

        default: throw IllegalTransition(state: self, event: event)
        }
    }
}

extension WaitReason {
    /// Whether `Resume` retries at once instead of when the wait ends by itself.
    var isHastened: Bool {
        switch self {
        case .retry, .offline, .diskSpace, .destination: true
        case .notBefore, .rateLimit, .hostLimit, .metered, .needsUrl, .pausedAll: false
        }
    }
}

extension WaitReason {
    /// Whether this reason is replaced if the network is gone or must not be used.
    package var yieldsToNetwork: Bool {
        switch self {
        case .retry, .rateLimit, .hostLimit, .offline, .metered: true
        case .notBefore, .diskSpace, .destination, .needsUrl, .pausedAll: false
        }
    }
}

extension DownloadFailure {
    /// Whether the received bytes are useless to a later attempt: they are whole but wrong, or more than allowed.
    public var spoilsBytes: Bool {
        switch name {
        case .checksumMismatch, .sizeMismatch, .tooLarge: true
        default: false
        }
    }
}
