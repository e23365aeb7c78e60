import DBus
import DownloadModel
import EventLoop
import Glibc
import StatusNotifier
import TestSupport
import Testing
import TodokuClient

/// A private session with our programs and, if wanted, a panel.
final class TrayWorld: Sendable {
    static let todokud = builtProgram("todokud", variable: "TODOKUD")
    static let program = builtProgram("todoku-tray", variable: "TODOKU_TRAY")

    let bus: PrivateBus
    let environment: [String: String]
    /// For the calls of the test itself: queueing downloads, and checking the service's state.
    let client: DownloaderClient

    /// - Parameters:
    ///   - names: further activatable names, with the programs that the bus starts for them.
    ///   - startsService: whether the service runs from the start, in English.
    init(
        extra: [String: String] = [:], names: [String: String] = [:], startsService: Bool = true
    ) async throws {
        let proxies = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
        let plain = Dictionary(uniqueKeysWithValues: proxies.map { ($0, "") })
        bus = await PrivateBus(
            activatable: names.merging(["org.todoku.Downloader1": "\(Self.todokud) --idle-exit 86400"]) { $1 },
            extra: plain.merging(extra) { $1 })
        environment = bus.environment
        client = try await DownloaderClient.connect(to: bus.address)
        if startsService { try await client.set(.language(.english)) }
    }

    /// Starts the tray. The child ends with its last reference, so it is kept as long as this world.
    func start() async -> Child {
        let program = Child([Self.program, "--language", "en"], environment: environment)
        await keep(program)
        return program
    }
    @BusActor private var programs: [Child] = []
    @BusActor private func keep(_ program: Child) { programs.append(program) }

    func panel() async throws -> TrayPanel { try await TrayPanel(on: bus.address) }

    /// Starts the tray, and waits until the panel has its item.
    func start(on panel: TrayPanel) async throws -> (program: Child, item: Item) {
        let program = await start()
        let isThere = await eventually { await !panel.items.isEmpty || !program.isRunning }
        #expect(isThere && program.isRunning, "todoku-tray did not register: \(program.errors)")
        return (program, Item(connection: panel.connection, name: try #require(await panel.items.last)))
    }

    func isServiceThere() async -> Bool { await bus.hasOwner("org.todoku.Downloader1") }

    /// Queues a download without toasts. Its server may be silent for as long as the test takes.
    func download(_ url: String, _ change: (inout DownloadRequest) -> Void = { _ in }) async throws -> DownloadReference {
        var request = DownloadRequest()
        request.notify = .never
        request.stallTimeout = .seconds(3600)
        change(&request)
        return try await client.download(url, request)
    }

    /// Kills the service, as a crash does.
    func killService() async { #expect(await bus.end("org.todoku.Downloader1", by: SIGKILL)) }
}

/// The tray's item, as a panel reads and clicks it.
struct Item: Sendable {
    let connection: Connection
    let name: String

    /// On a busy machine, the answer may take longer than a call of D-Bus waits by default.
    func call<In: Sendable, Out: Sendable>(_ method: MethodOf<In, Out>, at path: ObjectPath = ItemInterface.path, _ arguments: In)
        async throws
        -> Out
    { try await connection.call(method, on: name, at: path, arguments, timeout: .seconds(120)) }

    func get<V>(_ property: PropertyOf<V>, at path: ObjectPath = ItemInterface.path) async throws -> V {
        let variant = try await call(Standard.get, at: path, (property.interface, property.name))
        return try #require(V(variant), "\(property.name) has the type \(variant.type)")
    }

    func menu<In: Sendable, Out: Sendable>(_ method: MethodOf<In, Out>, _ arguments: In) async throws -> Out {
        try await call(method, at: DBusMenu.path, arguments)
    }

    /// One entry with its children.
    struct Entry {
        let number: Int32
        let properties: [String: Variant]
        let children: [Entry]
        var label: String { properties["type"] == .string("separator") ? "-" : properties["label"]?.string ?? "" }
        var isOn: Bool { properties["toggle-state"] == .int32(1) }

        init(_ layout: MenuInterface.Layout) {
            let (number, properties, children) = layout.fields
            self.init(number, properties, children)
        }
        private init(_ number: Int32, _ properties: [String: Variant], _ children: [Variant]) {
            (self.number, self.properties) = (number, properties)
            self.children = children.compactMap { child in
                guard case .structure(let fields) = child, let number = fields[0].int32, let properties = fields[1].vardict,
                    case .array("v", let below) = fields[2]
                else { return nil }
                return Entry(number, properties, below.compactMap { if case .variant(let value) = $0 { value } else { nil } })
            }
        }

        var all: [Entry] { [self] + children.flatMap(\.all) }
    }

    func menu() async throws -> Entry { Entry(try await menu(MenuInterface.getLayout, (0, -1, [])).1) }

    var labels: [String] { get async throws { try await menu().children.map(\.label) } }

    func entry(_ label: String) async throws -> Entry {
        let menu = try await menu()
        return try #require(menu.all.first { $0.label.hasPrefix(label) }, "\(label) is not in \(menu.all.map(\.label))")
    }

    /// Waits until the entry's mark is on, or off.
    func marks(_ label: String, _ isOn: Bool = true) async -> Bool {
        await eventually { (try? await menu())?.all.first { $0.label.hasPrefix(label) }?.isOn == isOn }
    }

    func click(_ entry: Entry, data: Variant = .int32(0)) async throws {
        try await menu(MenuInterface.event, (entry.number, "clicked", data, 0))
    }

    /// Reports the menu as opened, as a panel does for its user.
    func open() async throws { try await menu(MenuInterface.event, (0, "opened", .int32(0), 0)) }

    /// Waits until a label starts with `label`.
    func shows(_ label: String) async -> Bool {
        await eventually { (try? await menu())?.all.contains { $0.label.hasPrefix(label) } ?? false }
    }
}
