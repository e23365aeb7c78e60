/// Why a download waits. Raw values are the contract's.
public enum WaitReason: String, CaseIterable, Sendable {
    case retry
    /// Until the instant of the option `not-before`.
    case notBefore = "not-before"
    /// The host's request interval has not passed, or the server asked for a pause.
    case rateLimit = "rate-limit"
    /// As many transfers as the host may have are under way.
    case hostLimit = "host-limit"
    /// There is no network.
    case offline
    /// The link costs by the byte, and the option `allow-metered` is false.
    case metered
    /// What is missing does not fit on the disk.
    case diskSpace = "disk-space"
    /// The folder is not there, or cannot be written.
    case destination
    /// The server takes the link no more; the owner has to give a fresh one.
    case needsUrl = "needs-url"
    case pausedAll = "paused-all"
}

/// Where a download stands. The one way from state to state is `after(_:)`.
public enum DownloadState: Equatable, Sendable {
    case queued
    case waiting(WaitReason, until: WallTime?)
    case active
    case paused
    /// The body is whole; it is flushed and its digest computed.
    case verifying
    /// Verified; the file is being given its final name. Cannot be stopped. On the bus: `verifying`.
    case committing
    case finished
    indirect case failed(DownloadFailure)  // apart, for a hundred thousand that have not failed
    case cancelled

    /// The contract's word.
    public var name: String {
        switch self {
        case .queued: "queued"
        case .waiting: "waiting"
        case .active: "active"
        case .paused: "paused"
        case .verifying, .committing: "verifying"
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

    /// It runs, or starts as soon as its turn comes.
    package var isUnderWay: Bool {
        switch self {
        case .queued, .active, .verifying, .committing: true
        case .waiting, .paused, .finished, .failed, .cancelled: false
        }
    }

    /// Whether it goes on when a folder, or room in it, is seen.
    package var awaitsFolder: Bool {
        switch self {
        case .waiting(.diskSpace, nil), .waiting(.destination, nil): true
        default: false
        }
    }

    /// It does not go on before somebody does something: ResumeAll, a fresh link, or Resume.
    public var rests: Bool {
        switch self {
        case .paused, .waiting(.pausedAll, _), .waiting(.needsUrl, _): true
        default: false
        }
    }

    public var failure: DownloadFailure? { if case .failed(let failure) = self { failure } else { nil } }
}

/// What can happen to a download.
public enum DownloadEvent: Equatable, Sendable {
    /// The queue gives it its turn.
    case start
    /// The same, for one whose part file is whole already.
    case startWhole
    case pause
    case resume
    case cancel
    /// A failed or cancelled one again.
    case retry
    /// The owner gave a fresh link.
    case renew
    /// Another application is owed its slot, or the machine goes to sleep: it goes on later.
    case yield
    /// PauseAll: what is not paused or ended waits. `release` is ResumeAll.
    case hold
    case release
    /// Something stands in its way: it cannot start yet, or an attempt, the verification or the commit ended for that reason.
    case wait(WaitReason, until: WallTime?)
    /// What it waited for is over.
    case ready
    /// An attempt, the verification or the commit failed for good.
    case fail(DownloadFailure)
    /// The option `deadline`.
    case expire(DownloadFailure)
    /// What it writes into has gone with the process that held it, or goes now.
    case interrupt(DownloadFailure)
    case bodyComplete
    /// The name is taken and the caller said `skip`: the file that is there is the outcome.
    case skipped
    /// The server has nothing newer than the copy held, or sent the same bytes once more: that copy is the outcome.
    case unchanged
    case verified
    case committed
    /// What came in pieces does not match its checksum: once more, from 0.
    case startOver
    /// The part file that was whole is not there any more: from the start again.
    case partLost
    /// The network does not allow it, or not on such a link: it waits, and what runs stops.
    case hinder(WaitReason)
}

/// What a transition asks for. The service carries it out; the engine and the pool only do what they are told.
public enum DownloadEffect: Equatable, Sendable {
    case startTransfer
    /// The engine stops and saves a checkpoint.
    case stopTransfer
    case verify
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
    /// The state after `event`, and what is to be done. Pure.
    ///
    /// Steering (`pause`, `resume`, `hold`, `release`, `cancel`, `renew`, `expire`) that changes nothing gives the same state and no
    /// effects.
    public func after(_ event: DownloadEvent) throws(IllegalTransition) -> (DownloadState, [DownloadEffect]) {
        switch (self, event) {
        case (.queued, .start): (.active, [.startTransfer])
        case (.queued, .startWhole): (.verifying, [.verify])

        case (.queued, .pause), (.waiting, .pause): (.paused, [])
        case (.active, .pause): (.paused, [.stopTransfer])
        case (.paused, .pause), (.verifying, .pause), (.committing, .pause): (self, [])

        case (.paused, .resume): (.queued, [])
        case (.waiting(let reason, _), .resume) where reason.isHastened: (.queued, [])
        case (.queued, .resume), (.waiting, .resume), (.active, .resume), (.verifying, .resume), (.committing, .resume): (self, [])

        case (.queued, .cancel), (.waiting, .cancel), (.paused, .cancel), (.verifying, .cancel): (.cancelled, [.deletePart, .announceEnd])
        case (.active, .cancel): (.cancelled, [.stopTransfer, .deletePart, .announceEnd])

        case (.failed, .retry), (.cancelled, .retry): (.queued, [])

        case (.active, .renew), (.active, .yield): (.queued, [.stopTransfer])
        case (.failed, .renew), (.waiting(.needsUrl, _), .renew), (.waiting(.retry, _), .renew): (.queued, [])
        case (.queued, .renew), (.waiting, .renew), (.paused, .renew), (.verifying, .renew), (.committing, .renew): (self, [])

        case (.queued, .hold), (.waiting, .hold): (.waiting(.pausedAll, until: nil), [])
        case (.active, .hold): (.waiting(.pausedAll, until: nil), [.stopTransfer])
        case (.paused, .hold), (.verifying, .hold), (.committing, .hold): (self, [])
        case (.waiting(.pausedAll, _), .release): (.queued, [])
        case (.queued, .release), (.waiting, .release), (.active, .release), (.paused, .release), (.verifying, .release),
            (.committing, .release):
            (self, [])

        case (.queued, .wait(let reason, let until)), (.active, .wait(let reason, let until)), (.verifying, .wait(let reason, let until)),
            (.committing, .wait(let reason, let until)):
            (.waiting(reason, until: until), [])
        case (.waiting(let reason, _), .ready) where reason != .pausedAll: (.queued, [])

        case (.active, .fail(let failure)), (.verifying, .fail(let failure)), (.committing, .fail(let failure)):
            (.failed(failure), failure.spoilsBytes ? [.deletePart, .announceEnd] : [.announceEnd])

        case (.queued, .expire(let failure)), (.waiting, .expire(let failure)): (.failed(failure), [.announceEnd])
        case (.active, .expire(let failure)): (.failed(failure), [.stopTransfer, .announceEnd])
        case (.paused, .expire), (.verifying, .expire), (.committing, .expire): (self, [])

        case (.active, .interrupt(let failure)): (.failed(failure), [.stopTransfer, .announceEnd])
        case (.queued, .interrupt(let failure)), (.waiting, .interrupt(let failure)), (.paused, .interrupt(let failure)),
            (.verifying, .interrupt(let failure)), (.committing, .interrupt(let failure)):
            (.failed(failure), [.announceEnd])

        case (.active, .bodyComplete): (.verifying, [.verify])
        case (.active, .skipped), (.committing, .skipped): (.finished, [.deletePart, .announceEnd])
        case (.active, .unchanged), (.verifying, .unchanged): (.finished, [.deletePart, .announceEnd])
        case (.verifying, .verified): (.committing, [.commit])
        case (.committing, .committed): (.finished, [.announceEnd])
        case (.queued, .hinder(let reason)): (.waiting(reason, until: nil), [])
        case (.active, .hinder(let reason)): (.waiting(reason, until: nil), [.stopTransfer])
        case (.waiting(let old, _), .hinder(let reason)) where old.yieldsToNetwork: (.waiting(reason, until: nil), [])

        case (.verifying, .startOver): (.queued, [.deletePart])
        case (.verifying, .partLost), (.committing, .partLost): (.queued, [])

        default: throw IllegalTransition(state: self, event: event)
        }
    }
}

extension WaitReason {
    /// Whether `Resume` tries at once what would be tried by itself later.
    var isHastened: Bool {
        switch self {
        case .retry, .offline, .diskSpace, .destination: true
        case .notBefore, .rateLimit, .hostLimit, .metered, .needsUrl, .pausedAll: false
        }
    }
}

extension WaitReason {
    /// Whether a network that is gone, or must not be used, is told instead.
    package var yieldsToNetwork: Bool {
        switch self {
        case .retry, .rateLimit, .hostLimit, .offline, .metered: true
        case .notBefore, .diskSpace, .destination, .needsUrl, .pausedAll: false
        }
    }
}

extension DownloadFailure {
    /// Whether the bytes at hand are of no use to a later attempt: they are whole and wrong, or more than was allowed.
    public var spoilsBytes: Bool {
        switch name {
        case .checksumMismatch, .sizeMismatch, .tooLarge: true
        default: false
        }
    }
}
