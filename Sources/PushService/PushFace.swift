internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import PushInterface
internal import PushModel
internal import WebPush

/// `org.todoku.Push1`: the registrations on the bus.
@BusActor final class PushObject: EndpointObserver {
    /// How long `Register` waits for an endpoint.
    private static let patience: Duration = .seconds(10)
    /// Most calls that wait for the endpoint of one registration.
    private static let mostAsking = 256

    /// A call of `Register` that waits for an endpoint.
    private struct Asking {
        let number: UInt64
        let reply: Reply<[String: Variant]>
    }

    let registry: Registry
    let link: DistributorLink
    let deliveries: Deliveries
    private let store: PushStore
    private let connection: Connection
    private let hold: IdleExit.Hold
    /// Calls of `Register` that wait for the endpoint of a registration, oldest first.
    private var asking: [String: [Asking]] = [:] { didSet { hold.isHeld = !asking.isEmpty } }
    /// The number of calls so far that waited for an endpoint.
    private var askings: UInt64 = 0
    /// The number of calls so far that chose a distributor, with the refused ones.
    private var choices: UInt64 = 0

    init(
        registry: Registry, link: DistributorLink, deliveries: Deliveries, store: PushStore, connection: Connection,
        hold: IdleExit.Hold
    ) {
        (self.registry, self.link, self.deliveries, self.store) = (registry, link, deliveries, store)
        (self.connection, self.hold) = (connection, hold)
    }

    static let face = Face<PushObject>(
        Push.interface, xml: { Push.element },
        methods: [
            Row(Push.register) { object, arguments, reply in
                try object.register(arguments.0, arguments.1, arguments.2, reply)
            },
            Row(Push.unregister) { object, arguments, reply in
                try object.unregister(arguments.0, arguments.1, reply)
            },
            Row(Push.list) { object, app, reply in try object.list(app, reply) },
        ],
        properties: [
            PropertyRow(Push.distributor, { $0.link.setting }, set: { try $0.choose($1, $2) }),
            PropertyRow(Push.distributors) { $0.link.distributors },
            PropertyRow(Push.version) { _ in PushProgram.version },
        ],
        signals: [Push.endpointChanged.name: Push.endpointChanged.signature])

    private func register(
        _ app: String, _ name: String, _ options: [String: Variant], _ reply: Reply<[String: Variant]>
    ) throws(Refusal) {
        if let former = registry[RegistrationKey(app: app, name: name)], asking[former.token]?.count ?? 0 >= Self.mostAsking {
            throw Refusal(.limitExceeded, "At most \(Self.mostAsking) calls may wait for the endpoint of one registration.")
        }
        let formerCalls = link.calls
        let change = try registry.register(app: app, name: name, options: options, from: reply.call.caller)
        let token = change.token
        BusActor.spawn { [self] in
            do throws(Refusal) { try await store.commit() } catch {
                registry.undo(change)
                return reply.fail(error)
            }
            registry.confirm(change)
            guard let registration = registry.saved(token) else {
                return reply.fail(Refusal(.noSuchObject, "The registration was ended by another call."))
            }
            if !registration.endpoint.isEmpty {
                // The distributor takes the key only with the registration, and may give another endpoint for it.
                if registration.rules.vapid != change.former?.rules.vapid { link.register(token, unlessDoneAfter: formerCalls) }
                return reply(answer(registration))
            }
            askings +|= 1
            asking[token, default: []].append(Asking(number: askings, reply: reply))
            link.register(token, unlessDoneAfter: formerCalls)
            // A later call waits for its own time.
            Poller.shared.schedule(after: Self.patience) { [weak self, number = askings] in self?.answerAll(token, upTo: number) }
        }
    }

    /// A registration has an endpoint, or cannot have one now.
    func changed(_ token: String, hasNewEndpoint: Bool) {
        answerAll(token)
        guard hasNewEndpoint, let key = registry[token]?.key else { return }
        BusActor.spawn { [self] in
            // As in `answerAll`: the app may ask by List, and tell its server.
            try? await store.commit()
            connection.send(Push.endpointChanged.message(from: Push.path, (key.app, key.name)))
        }
    }

    /// Answers the calls that wait for the endpoint of a registration.
    ///
    /// - Parameter number: of the last call to answer.
    private func answerAll(_ token: String, upTo number: UInt64 = .max) {
        guard let waiting = asking[token] else { return }
        let calls = Array(waiting.prefix { $0.number <= number })
        guard !calls.isEmpty else { return }
        asking[token] = calls.count == waiting.count ? nil : Array(waiting.dropFirst(calls.count))
        BusActor.spawn { [self] in
            // An app must not tell its server of an endpoint that a crash makes us forget.
            try? await store.commit()
            for call in calls {
                if let registration = registry[token] {
                    call.reply(answer(registration))
                } else {
                    call.reply.fail(Refusal(.noSuchObject, "The registration was ended by another call."))
                }
            }
        }
    }

    private func answer(_ registration: Registration) -> [String: Variant] {
        let problem = registration.endpoint.isEmpty ? link.problems[registration.token] ?? "the distributor has not answered yet" : ""
        return [
            "endpoint": .string(registration.endpoint), "public-key": .string(Base64URL.encode(registration.keys.publicKey)),
            "auth-secret": .string(Base64URL.encode(registration.keys.authSecret)), "version": .uint32(registration.version),
            "problem": .string(problem),
        ]
    }

    private func unregister(_ app: String, _ name: String, _ reply: Reply<Void>) throws(Refusal) {
        let registration = try registry.unregister(app: app, name: name, from: reply.call.caller)
        BusActor.spawn { [self] in
            do throws(Refusal) { try await store.commit() } catch {
                registry.restore(registration)
                deliveries.resume(registration.token)
                // A call to the distributor that ended meanwhile has found no registration, and has ended it there.
                link.register(registration.token)
                return reply.fail(error)
            }
            registry.confirmEnd(of: registration)
            deliveries.forget(registration)
            link.unregister(registration)
            answerAll(registration.token)
            reply()
        }
    }

    private func list(_ given: String, _ reply: Reply<[[String: Variant]]>) throws(Refusal) {
        var app = given
        if case .app(let id, _) = reply.call.caller {
            if app.isEmpty { app = id }
            try Registry.check(app: app, for: reply.call.caller)
        }
        reply(
            registry.all.filter { app.isEmpty || $0.key.app == app }.map { registration in
                let counts = registration.counts
                var entry = answer(registration)
                entry["app"] = .string(registration.key.app)
                entry["name"] = .string(registration.key.name)
                entry["received"] = .uint64(counts.received)
                entry["fetched"] = .uint64(counts.fetched)
                entry["unchanged"] = .uint64(counts.unchanged)
                entry["failed"] = .uint64(counts.failed)
                entry["waiting"] = .uint32(UInt32(clamping: deliveries.waitingCount(of: registration.token)))
                entry["refused"] = .dictionary(
                    key: "s", value: "t",
                    counts.refused.sorted { $0.key.rawValue < $1.key.rawValue }.map {
                        Variant.Entry(key: .string($0.key.rawValue), value: .uint64($0.value))
                    })
                return entry
            })
    }

    private func choose(_ name: String, _ reply: Reply<Void>) throws(Refusal) {
        if reply.call.caller != .user { throw Refusal(.notAllowed, "An app in a sandbox may not choose the distributor.") }
        try DistributorLink.check(name)
        store.put(.settings, ["distributor": .string(name)])
        choices +|= 1
        BusActor.spawn { [self, number = choices] in
            do throws(Refusal) { try await store.commit() } catch {
                // A later call has replaced this choice in the store. If that call is refused, too, it notes the former choice.
                if number == choices { store.put(.settings, ["distributor": .string(link.setting)]) }
                return reply.fail(error)
            }
            let former = link.setting
            link.choose(name)
            if name != former {
                connection.send(
                    Standard.propertiesChanged.message(
                        from: Push.path, (Push.interface, [Push.distributor.name: .string(name)], [])))
            }
            reply()
        }
    }
}
