internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import PushInterface
internal import PushModel
internal import WebPush

/// All registrations. What changes here is noted in the store.
@BusActor final class Registry {
    nonisolated static let mostOfApp = 32
    nonisolated static let most = PushFolder.mostRegistrations
    /// Bytes of an app's name for a registration.
    private static let longestName = 64

    private let store: PushStore
    private var byToken: [String: Registration] = [:]
    private var tokens: [RegistrationKey: String] = [:]
    /// Changes of options that are not on disk yet, oldest first, by the registration's token.
    private var unsaved: [String: [OptionChange]] = [:]
    /// Registrations whose end is not on disk yet, by their tokens.
    private var ending: [String: Registration] = [:]
    /// The tokens of registrations whose counts are not noted in the store yet.
    private var counted: Set<String> = []
    /// When sandboxed apps were started, by app id. A new registration does not restart the hour in which an app's starts are counted.
    private var starts: [String: [WallTime]]

    /// - Parameter starts: the record of starts.
    init(_ registrations: [Registration], starts: [String: Variant] = [:], store: PushStore) {
        self.store = store
        self.starts = starts.mapValues { value in
            guard case .array(_, let values) = value else { return [] }
            return values.compactMap { $0.uint64.map { WallTime(microseconds: $0) } }
        }
        for registration in registrations where tokens[registration.key] == nil {
            byToken[registration.token] = registration
            tokens[registration.key] = registration.token
        }
    }

    subscript(token: String) -> Registration? { byToken[token] }
    subscript(key: RegistrationKey) -> Registration? { tokens[key].flatMap { byToken[$0] } }

    /// The registration with the options that are on disk. nil: it is gone, or the call that makes it has not been answered yet.
    func saved(_ token: String) -> Registration? {
        guard var registration = byToken[token], let change = unsaved[token]?.first else { return byToken[token] }
        guard let former = change.former else { return nil }
        registration.takeOptions(of: former)
        return registration
    }

    /// Oldest first.
    var all: [Registration] { byToken.values.sorted { ($0.created, $0.token) < ($1.created, $1.token) } }

    /// Changes a registration, if it is still there.
    func change(_ token: String, _ body: (inout Registration) -> Void) {
        guard var registration = byToken[token] else { return }
        body(&registration)
        byToken[token] = registration
        counted.remove(token)
        store.put(.registration(token), registration.record)
    }

    /// Counts a message. A count alone writes nothing, because whoever knows the endpoint may send any number of messages. The counts are
    /// saved with the next change of the registration, or after `noteCounts`.
    func count(_ token: String, _ body: (inout Registration.Counts) -> Void) {
        guard var registration = byToken[token] else { return }
        body(&registration.counts)
        byToken[token] = registration
        counted.insert(token)
    }

    /// Notes all counts in the store. Call at the end of the program.
    func noteCounts() { for token in counted { change(token) { _ in } } }

    /// Makes a registration, or changes the options of one.
    ///
    /// - Returns: the change, for `confirm` or `undo`. Call one of them in the order of the changes, as the store answers.
    func register(app: String, name: String, options: [String: Variant], from caller: CallerIdentity) throws(Refusal) -> OptionChange {
        try Self.check(app: app, for: caller)
        guard (1...Self.longestName).contains(name.utf8.count), name.utf8.allSatisfy(Self.isNameByte) else {
            throw Refusal(
                .invalidOption,
                "The name of a registration must have 1 to 64 characters of A–Z, a–z, 0–9, “_”, “-” and “.”, not “\(shown(name))”.")
        }
        if case .app(let id, false) = caller {
            throw Refusal(.notAllowed, "The sandbox of \(id) has no network (share=network), so nothing is fetched for it.")
        }
        let rules = try PushRules(decoding: options, app: app, from: caller)
        let isSandboxed = caller != .user
        let key = RegistrationKey(app: app, name: name)
        if let former = self[key] {
            change(former.token) { ($0.options, $0.rules, $0.isSandboxed) = (options, rules, isSandboxed) }
            return noteChange(of: former.token, from: former)
        }
        guard byToken.count < Self.most else {
            throw Refusal(.limitExceeded, "There are \(Self.most) registrations, which is the most in all; unregister some.")
        }
        guard byToken.values.count(where: { $0.key.app == app }) < Self.mostOfApp else {
            throw Refusal(.limitExceeded, "\(app) has \(Self.mostOfApp) registrations, which is the most of one app; unregister some.")
        }
        let keys: WebPushKeys
        do throws(WebPushError) { keys = try .generate() } catch {
            throw Refusal(.storage, "No keys can be made for the registration: \(error).")
        }
        let token = randomName()
        byToken[token] = Registration(
            key: key, token: token, keys: keys, created: WallTime(microseconds: wallClock()), isSandboxed: isSandboxed, options: options,
            rules: rules)
        tokens[key] = token
        change(token) { _ in }
        return noteChange(of: token, from: nil)
    }

    private func noteChange(of token: String, from former: Registration?) -> OptionChange {
        let change = OptionChange(of: token, from: former)
        unsaved[token, default: []].append(change)
        return change
    }

    /// A change is on disk.
    func confirm(_ change: OptionChange) { _ = end(change) }

    /// Takes back a change that could not be saved.
    func undo(_ change: OptionChange) {
        let token = change.token
        if let next = end(change) {
            // A later call has set other options, which stay. If they cannot be saved either, go back to those before both calls.
            next.former = change.former
        } else if let former = change.former {
            // An endpoint that came meanwhile stays.
            self.change(token) { $0.takeOptions(of: former) }
            ending[token]?.takeOptions(of: former)
        } else {
            remove(token)
            ending[token] = nil
        }
    }

    /// - Returns: the next change of the registration.
    private func end(_ change: OptionChange) -> OptionChange? {
        guard var changes = unsaved[change.token], let index = changes.firstIndex(where: { $0 === change }) else { return nil }
        changes.remove(at: index)
        unsaved[change.token] = changes.isEmpty ? nil : changes
        return changes.indices.contains(index) ? changes[index] : nil
    }

    /// Ends a registration. Call `confirmEnd` or `restore` when the store has answered.
    ///
    /// - Returns: the registration that was removed.
    func unregister(app: String, name: String, from caller: CallerIdentity) throws(Refusal) -> Registration {
        try Self.check(app: app, for: caller)
        guard let registration = self[RegistrationKey(app: app, name: name)] else {
            throw Refusal(.noSuchObject, "\(shown(app)) has no registration “\(shown(name))”.")
        }
        remove(registration.token)
        ending[registration.token] = registration
        return registration
    }

    private func remove(_ token: String) {
        guard let registration = byToken.removeValue(forKey: token) else { return }
        tokens[registration.key] = nil
        counted.remove(token)
        store.put(.registration(token), nil)
    }

    /// The end of a registration is on disk.
    func confirmEnd(of registration: Registration) { ending[registration.token] = nil }

    /// Puts back a registration whose removal could not be saved.
    func restore(_ ended: Registration) {
        // nil: the call that made it was refused, too.
        guard let registration = ending.removeValue(forKey: ended.token) else { return }
        // A call that has registered again meanwhile is not answered yet, because the store answers in order. That call fails.
        if let token = tokens[registration.key] { remove(token) }
        byToken[registration.token] = registration
        tokens[registration.key] = registration.token
        change(registration.token) { _ in }
    }

    /// Whether `app` may be started once more: an app in a sandbox is started at most `Limits.ownerStarts` times in an hour.
    func countStart(of token: String) -> Bool {
        guard let registration = byToken[token], registration.isSandboxed else { return true }
        let now = WallTime(microseconds: wallClock())
        // The clock was set back if a start lies in the future: such a start counts as of now.
        starts = starts.mapValues { $0.map { min($0, now) }.filter { now - $0 < .seconds(3600) } }.filter { !$0.value.isEmpty }
        guard starts[registration.key.app, default: []].count < Limits.ownerStarts else { return false }
        starts[registration.key.app, default: []].append(now)
        store.put(.starts, starts.mapValues { .array(of: "t", $0.map { .uint64($0.microseconds) }) })
        return true
    }

    /// - Throws: if `app` is no id, or not the one of a sandboxed caller.
    static func check(app: String, for caller: CallerIdentity) throws(Refusal) {
        if case .app(let id, _) = caller, id != app {
            throw Refusal(.notAllowed, "An app in a sandbox may not use the id of another app; its own is \(id).")
        }
        // The option activate takes the same names.
        guard (try? DownloadOptions(decoding: ["activate": .string(app)])) != nil else {
            throw Refusal(.invalidOption, "The id of an app must be a name such as org.example.App, not “\(shown(app))”.")
        }
    }

    private static func isNameByte(_ byte: UInt8) -> Bool { byte.isLetter || byte.isDigit || "_-.".utf8.contains(byte) }
}

/// New options of a registration, which a later call may replace before they are on disk.
@BusActor final class OptionChange {
    let token: String
    /// The registration before the change; nil: there was none. If the previous change is refused, the registration before both changes.
    fileprivate(set) var former: Registration?

    fileprivate init(of token: String, from former: Registration?) { (self.token, self.former) = (token, former) }
}

/// 32 hexadecimal digits, at random.
func randomName() -> String { hexadecimal((0..<16).map { _ in UInt8.random(in: .min ... .max) }) }
