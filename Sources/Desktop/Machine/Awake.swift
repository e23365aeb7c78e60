public import DBus
public import EventLoop
internal import Glibc

/// Keeps the machine awake while bytes move, and reports when the machine sleeps nevertheless. The screen may turn off.
///
/// Takes two logind locks on the system bus. `block` prevents sleep. `delay` holds back a requested sleep until downloads have been saved.
/// Also takes one session lock, if any is available, because logind ignores a `block` lock of the user whose desktop starts the sleep.
/// Each lock may be absent or refused. Without any lock the machine may sleep, and nothing fails.
@BusActor public final class Awake {
    /// How long the locks stay after the last byte, so that many small files take the locks once.
    public static let linger: Duration = .seconds(3)

    private let system: SystemBus
    private let session: Connection
    private let patience: Duration
    private let sleeps: @BusActor (Bool) -> Void

    private var isNeeded = false
    private var isAsleep = false
    private var lingerTimer: Poller.Token?
    private var member: SystemBus.Member?
    private var bus: Connection?
    private var peer: BusPeer?
    private var owner: String?
    private var prepares: Connection.Subscription?
    private var block: InhibitorLock?
    private var delay: InhibitorLock?
    private var inSession: SessionLock?
    /// Follows the program that has granted the last lock of the session.
    private var granter: BusPeer?
    /// The programs of the session that have not answered yet. None is asked twice at a time, so calls to a hanging program do not pile up.
    private var unanswered: Set<SessionLock.Program> = []
    /// Increases when the locks are released. A lock of logind that an earlier call obtains is released at once.
    private var round: UInt64 = 0
    /// The round in which the locks were requested; nil: request those that are missing again.
    private var askedIn: UInt64?

    /// - Parameters:
    ///   - patience: how long a program of the session may take to grant its lock before the next program is asked.
    ///   - sleeps: called with true when the machine is about to sleep; logind then waits a few seconds for `release`. Called with false
    ///     when the machine is awake again.
    public init(
        system: SystemBus, session: Connection, patience: Duration = .seconds(25), sleeps: @escaping @BusActor (Bool) -> Void
    ) { (self.system, self.session, self.patience, self.sleeps) = (system, session, patience, sleeps) }

    /// Sets whether bytes move. Cheap if nothing has changed.
    public func keep(_ isBusy: Bool) {
        if isBusy {
            if let lingerTimer { Poller.shared.cancel(lingerTimer) }
            lingerTimer = nil
            guard !isNeeded else { return }
            isNeeded = true
            if member == nil { member = system.join { [weak self] in self?.found($0) } } else if bus != nil { inhibit() }
        } else if isNeeded, lingerTimer == nil {
            lingerTimer = Poller.shared.schedule(after: Self.linger) { [self] in
                (lingerTimer, isNeeded) = (nil, false)
                release()
                leaveBus()
            }
        }
    }

    /// Releases all locks.
    public func release() {
        round += 1
        block = nil
        delay = nil
        inSession?.release(on: session)
        inSession = nil
        granter?.stop()
        granter = nil
    }

    // MARK: logind

    private func found(_ connection: Connection?) {
        forgetPeer()
        bus = connection
        guard let connection else { return logind(is: nil) }
        peer = BusPeer(Login.name, on: connection) { [weak self] in self?.logind(is: $0) }
    }

    /// logind has appeared, was replaced, or has gone. The locks of the previous logind are void.
    private func logind(is owner: String?) {
        if let prepares { bus?.unsubscribe(prepares) }
        (self.owner, prepares) = (owner, nil)
        if let owner, let bus {
            // Match the unique name, because any other process may send this signal, even to us alone.
            let rule = MatchRule(sender: owner, path: Login.path.value, interface: Login.interface, member: Login.prepareForSleep.name)
            prepares = bus.subscribe(rule) { [weak self] message in
                if let begins = Login.prepareForSleep.read(message) { self?.prepare(begins) }
            }
        }
        round += 1
        block = nil
        delay = nil
        if owner == nil, isAsleep { prepare(false) } else { inhibit() }  // no logind is left to report the wake-up
    }

    private func prepare(_ begins: Bool) {
        // The sleep of a wake-up may have begun before this program listened.
        guard !begins || !isAsleep else { return }
        isAsleep = begins
        sleeps(begins)
        guard !begins else { return }
        askedIn = nil  // logind grants no lock from the start of a sleep to its end
        if isNeeded { inhibit() } else { leaveBus() }
    }

    private func forgetPeer() {
        if let prepares { bus?.unsubscribe(prepares) }
        peer?.stop()
        (peer, owner, prepares, bus) = (nil, nil, nil, nil)
    }

    /// Leaves the system bus, except during a sleep, because logind then still has to report the wake-up.
    private func leaveBus() {
        guard !isNeeded, !isAsleep, let member else { return }
        forgetPeer()
        self.member = nil
        system.leave(member)
    }

    // MARK: Locks

    /// Takes the locks that are missing, once per round.
    private func inhibit() {
        guard isNeeded, !isAsleep, askedIn != round else { return }
        askedIn = round
        let round = round
        BusActor.spawn { [self] in
            guard delay == nil else { return }
            let lock = await ask(round, "delay", "Todoku saves what it has downloaded")
            if round == self.round, delay == nil { delay = consume lock }
        }
        BusActor.spawn { [self] in
            if block == nil {
                let lock = await ask(round, "block", "Downloads are under way")
                if round == self.round, block == nil { block = consume lock }
            }
            let isBlocked = block != nil
            await inhibitInSession(round, startingPortal: !isBlocked)
        }
    }

    /// Takes a lock of the first program of the session that grants one.
    private func inhibitInSession(_ round: UInt64, startingPortal: Bool) async {
        for program in SessionLock.Program.allCases where round == self.round && inSession == nil {
            await takeLock(of: program, startingPortal: startingPortal)
        }
    }

    /// Takes a lock of `program` if it is there. Returns when the program has answered, or after `patience`.
    ///
    /// - Parameter startingPortal: call the portal even if the bus has to start it.
    private func takeLock(of program: SessionLock.Program, startingPortal: Bool) async {
        let owner = await program.owner(on: session)
        guard owner != nil || startingPortal && program == .portal, unanswered.insert(program).inserted else { return }
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            let race = Race<Void>(within: patience) { _ in continuation.resume() }
            BusActor.spawn { [self] in
                let lock = await SessionLock.granted(by: program, runningAs: owner, on: session)
                unanswered.remove(program)
                // By now, the lock may be needed no longer, or another program may have granted one.
                if let lock { if isNeeded, inSession == nil { hold(lock) } else { lock.release(on: session) } }
                _ = race.end(())
            }
        }
    }

    private func hold(_ lock: SessionLock) {
        inSession = lock
        granter?.stop()
        granter = BusPeer(lock.program.rawValue, on: session) { [weak self] in self?.granterHas(owner: $0) }
    }

    /// The program that has granted the last lock of the session now runs as `owner`, or no longer runs. The lock of its earlier process is
    /// void.
    private func granterHas(owner: String?) {
        if let inSession {
            guard owner != inSession.owner else { return }
            inSession.release(on: session)  // the process may still run, without its name
            self.inSession = nil
        }
        guard isNeeded, !isAsleep else { return }
        let round = round
        // Does not start the portal: a portal that ends at each request would be started again and again.
        BusActor.spawn { [self] in await inhibitInSession(round, startingPortal: false) }
    }

    private func ask(_ round: UInt64, _ mode: String, _ reason: String) async -> InhibitorLock? {
        guard round == self.round, let bus, let owner else { return nil }
        let answer = try? await bus.call(Login.inhibit, on: owner, at: Login.path, ("sleep", "Todoku", reason, mode))
        guard let descriptor = answer?.take() else { return nil }
        return InhibitorLock(descriptor: descriptor)
    }
}

/// The members of logind that we use (org.freedesktop.login1(5)).
private enum Login {
    static let name = "org.freedesktop.login1"
    static let path = ObjectPath("/org/freedesktop/login1")
    static let interface = "org.freedesktop.login1.Manager"
    static let inhibit = MethodOf(interface, "Inhibit", in: String.self, String.self, String.self, String.self, out: FileDescriptor.self)
    static let prepareForSleep = SignalOf(interface, "PrepareForSleep", Bool.self)
}

/// A logind lock. logind releases the lock when its descriptor is closed, at the latest when this process ends.
private struct InhibitorLock: ~Copyable {
    let descriptor: Int32
    deinit { close(descriptor) }
}

/// A lock of the portal, the power manager, or GNOME's session manager. The lock ends with our connection at the latest.
private struct SessionLock {
    /// The programs that grant such locks, by their names on the bus, in the order in which they are asked.
    enum Program: String, CaseIterable {
        case portal = "org.freedesktop.portal.Desktop"
        case power = "org.freedesktop.PowerManagement"
        case manager = "org.gnome.SessionManager"

        /// The unique name of the running program; nil: it does not run.
        @BusActor func owner(on session: Connection) async -> String? {
            try? await session.call(BusDaemon.getNameOwner, on: BusDaemon.name, at: BusDaemon.path, rawValue)
        }

        /// Makes the bus start the program, within the bus's own time limit. Returns its unique name; nil: it cannot be started.
        @BusActor func start(on session: Connection) async -> String? {
            _ = try? await session.call(
                BusDaemon.startServiceByName, on: BusDaemon.name, at: BusDaemon.path, (rawValue, 0), timeout: nil)
            return await owner(on: session)
        }
    }

    /// What the program calls its lock. Only the process that has granted the lock knows it: the next process may use the same number.
    private enum Handle {
        case request(ObjectPath)
        case cookie(UInt32)
    }

    private static let portalPath = ObjectPath("/org/freedesktop/portal/desktop")
    private static let portalInhibit = MethodOf(
        "org.freedesktop.portal.Inhibit", "Inhibit", in: String.self, UInt32.self, [String: Variant].self, out: ObjectPath.self)
    private static let portalClose = MethodOf("org.freedesktop.portal.Request", "Close")
    private static let power = "org.freedesktop.PowerManagement.Inhibit"
    private static let powerPath = ObjectPath("/org/freedesktop/PowerManagement/Inhibit")
    private static let powerInhibit = MethodOf(power, "Inhibit", in: String.self, String.self, out: UInt32.self)
    private static let powerUninhibit = MethodOf(power, "UnInhibit", in: UInt32.self)
    private static let manager = "org.gnome.SessionManager"
    private static let managerPath = ObjectPath("/org/gnome/SessionManager")
    private static let managerInhibit = MethodOf(
        manager, "Inhibit", in: String.self, UInt32.self, String.self, UInt32.self, out: UInt32.self)
    private static let managerUninhibit = MethodOf(manager, "Uninhibit", in: UInt32.self)
    /// The flag for suspend. Flag 8 is the idle session, which includes the screen.
    private static let suspend: UInt32 = 4
    private static let reason = "Downloads are under way"

    let program: Program
    /// The unique name of the process that has granted the lock.
    let owner: String
    private let handle: Handle

    /// Asks `program` for a lock; nil if it refuses.
    ///
    /// Without a time limit, because only the answer names the lock. A lock without a name would stay until our connection closes.
    ///
    /// - Parameter known: the unique name of the program; nil: it does not run, and is started.
    @BusActor static func granted(by program: Program, runningAs known: String?, on session: Connection) async -> SessionLock? {
        var running = known
        if running == nil { running = await program.start(on: session) }
        guard let owner = running else { return nil }
        let handle: Handle?
        switch program {
        case .portal:
            let request = try? await session.call(
                portalInhibit, on: owner, at: portalPath, ("", suspend, ["reason": .string(reason)]), timeout: nil)
            handle = request.map { .request($0) }
        case .power:
            let cookie = try? await session.call(powerInhibit, on: owner, at: powerPath, ("Todoku", reason), timeout: nil)
            handle = cookie.map { .cookie($0) }
        case .manager:
            let cookie = try? await session.call(
                managerInhibit, on: owner, at: managerPath, ("org.todoku.Downloader1", 0, reason, suspend), timeout: nil)
            handle = cookie.map { .cookie($0) }
        }
        return handle.map { SessionLock(program: program, owner: owner, handle: $0) }
    }

    @BusActor func release(on session: Connection) {
        BusActor.spawn { [self] in
            switch (handle, program) {
            case (.request(let request), _): try? await session.call(Self.portalClose, on: owner, at: request, ())
            case (.cookie(let cookie), .manager):
                try? await session.call(Self.managerUninhibit, on: owner, at: Self.managerPath, cookie)
            case (.cookie(let cookie), _): try? await session.call(Self.powerUninhibit, on: owner, at: Self.powerPath, cookie)
            }
        }
    }
}
