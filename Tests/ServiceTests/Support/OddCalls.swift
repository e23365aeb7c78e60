internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import TestSupport
internal import Testing

/// A caller that must be answered while others misbehave. It calls again and again until it is told to stop.
@BusActor final class Bystander {
    /// A generous limit. Calls are served in the order in which the bus read them, so a call may wait behind 100,000 others. That takes
    /// seconds in a release build, and half a minute in a debug build on a shared machine; beside busy loops, several times as long. A
    /// blocked service does not answer at all.
    static let longest: Duration = .seconds(180)
    /// libdbus stops reading while 63 MiB of messages live. A message has at most 1,000,000 values of about 50 bytes each; the contract's
    /// limits bound the values that are kept. The rest is the daemon itself, and memory that its allocator keeps.
    private static let mostMemory: UInt64 = (63 + 50 + 87) << 20

    private let running: Running
    private var times: [Duration] = []
    private var failure: DBusError?
    private var isStopped = false
    private var hasEnded = false

    init(_ running: Running) {
        self.running = running
        BusActor.spawn { await self.ask() }
    }

    private func ask() async {
        while !isStopped {
            let start = ContinuousClock.now
            failure =
                await thrown { _ = try await running.client.call(Manager.list, ["limit": .uint32(5)], timeout: Self.longest) } ?? failure
            times.append(ContinuousClock.now - start)
            await pause(milliseconds: 5)
        }
        hasEnded = true
    }

    /// Stops the calls. Checks that each call was answered in time, that the daemon runs, and that its memory is within the bound.
    func expectServed() async throws {
        isStopped = true
        #expect(await eventually(within: Self.longest) { hasEnded })
        #expect(failure == nil, "\(String(describing: failure))")
        #expect(running.daemon.isRunning, "\(running.daemon.errors)")
        let sorted = times.sorted()
        let slowest = try #require(sorted.last)
        #expect(slowest < Self.longest)
        let peak = try #require(memory(running.daemon.pid, "VmHWM"))
        print("bystander: \(sorted.count) calls, median \(sorted[sorted.count / 2]), slowest \(slowest); VmHWM \(peak >> 20) MiB")
        if let sanitizer = underSanitizer() {
            print("bystander: the \(sanitizer) sanitizer's own memory is in VmHWM: its bound is not checked")
        } else {
            #expect(peak < Self.mostMemory, "\(peak >> 20) MiB")
        }
    }
}

/// Calls of every member of every interface, with right, nearly right and wrong arguments. A seed always gives the same calls.
struct OddCalls: Sendable {
    struct Member: Hashable, Sendable { let interface, name, signature: String }
    struct Outcome: Equatable, Sendable {
        var successes = 0
        var errors = 0
        var unanswered = 0
        var complaints: [String] = []
    }

    private var random: SeededRandom
    private let members: [Member]
    private let downloads: [String]

    init(_ seed: UInt64, _ members: [Member], downloads: [String]) {
        (random, self.members, self.downloads) = (SeededRandom(seed), members, downloads)
    }

    /// Every method of the objects at `paths`, by introspection.
    @BusActor static func members(of client: Client, at paths: [String]) async throws -> [Member] {
        var members: Set<Member> = []
        for path in paths {
            var (interface, name, signature) = ("", "", "")
            func end() { if !name.isEmpty { members.insert(Member(interface: interface, name: name, signature: signature)) } }
            for element in Elements(try await client.call(Standard.introspect, at: ObjectPath(path), ())).all {
                switch element.name {
                case "method", "signal", "property", "interface":
                    end()
                    name = element.name == "method" ? element.attributes["name"] ?? "" : ""
                    if element.name == "interface" { interface = element.attributes["name"] ?? "" }
                    signature = ""
                case "arg" where element.attributes["direction"] == "in": signature += element.attributes["type"] ?? ""
                default: break
                }
            }
            end()
        }
        return members.sorted { ($0.interface, $0.name) < ($1.interface, $1.name) }
    }

    /// Sends `count` calls, a few dozen at a time, and waits for all answers.
    func run(on caller: RawCaller, count: Int) -> Outcome {
        var calls = self
        var outcome = Outcome()
        var open: [UInt32: String] = [:]
        func take(_ message: RawCaller.Incoming) {
            guard message.kind != 4 else { return }
            guard let call = open.removeValue(forKey: message.replySerial) else {
                return outcome.complaints.append("an answer too many: \(message)")
            }
            guard message.kind == 3 else { return outcome.successes += 1 }
            outcome.errors += 1
            let isProper = message.errorName.hasPrefix("org.todoku.Error.") || Self.properErrors.contains(message.errorName)
            if !isProper || message.text.isEmpty || message.text.utf8.count > 20_000 {
                outcome.complaints.append("\(call): \(message.errorName) \(message.text.prefix(200))")
            }
        }
        var sent = 0
        while sent < count {
            for _ in 0..<40 {
                let (path, member, arguments) = calls.next()
                let serial = caller.call(path, member.interface, member.name, arguments)
                open[serial] = "\(path) \(member.interface).\(member.name)(\(arguments.map(\.type).joined()))"
                sent += 1
            }
            let marker = caller.callLast()
            caller.flush()
            while true {
                guard let message = caller.read() else {
                    outcome.complaints.append(
                        "thrown off the bus, or not answered within a minute; first open: \(open.min { $0.key < $1.key }.map { "\($0)" } ?? "none")"
                    )
                    outcome.unanswered = open.count
                    return outcome
                }
                if message.kind != 4, message.replySerial == marker { break }
                take(message)
            }
        }
        // End all downloads, so that the waiting calls are answered.
        open[caller.call(BusName.managerPath.value, Manager.interface, "CancelAll")] = "CancelAll"
        caller.flush()
        while !open.isEmpty, let message = caller.read() { take(message) }
        outcome.unanswered = open.count
        if !open.isEmpty { outcome.complaints.append("no answer: \(open.min { $0.key < $1.key }.map { "\($0)" } ?? "none")") }
        return outcome
    }

    private static let properErrors = Set(
        [
            "UnknownMethod", "UnknownInterface", "UnknownObject", "UnknownProperty", "PropertyReadOnly", "InvalidArgs", "LimitsExceeded",
            "InvalidSignature", "NotSupported",
        ].map { "org.freedesktop.DBus.Error.\($0)" })

    private mutating func next() -> (path: String, Member, [Variant]) {
        var member = members.randomElement(using: &random)!
        let isDownload = member.interface == Download.interface || Bool.random(using: &random)
        var path = isDownload ? downloads.randomElement(using: &random)! : BusName.managerPath.value
        var arguments = Self.types(of: member.signature).map { value(of: $0) }
        switch Int.random(in: 0..<24, using: &random) {
        case 0: arguments.append(tape().variant())
        case 1: if !arguments.isEmpty { arguments.removeLast() }
        case 2, 3, 4: arguments = (0..<Int.random(in: 0...4, using: &random)).map { _ in tape().variant() }
        case 5:
            // Nested nearly as deep as the bus allows: 64 levels, which include those of the dictionary and its variant.
            var deep = Variant.uint32(1)
            for _ in 0..<Int.random(in: 1...50, using: &random) { deep = .variant(deep) }
            if arguments.isEmpty {
                arguments = [deep]
            } else {
                arguments[arguments.count - 1] = .dictionary(["metadata": deep, "app": deep])
            }
        case 6:
            let huge = Variant.string(String(repeating: Self.texts.randomElement(using: &random)! + "x", count: 1 << 17))
            if arguments.isEmpty { arguments = [huge] } else { arguments[0] = huge }
        case 7: path = Self.oddPaths.randomElement(using: &random)!
        case 8: member = Member(interface: "", name: member.name, signature: member.signature)
        case 9: member = Member(interface: Self.oddInterfaces.randomElement(using: &random)!, name: member.name, signature: "")
        case 10: member = Member(interface: member.interface, name: "Nothing_\(random.next() % 10)", signature: "")
        default: break
        }
        return (path, member, arguments)
    }

    private mutating func tape() -> TapeHolder { TapeHolder((0..<256).map { _ in UInt8.random(in: 0...255, using: &random) }) }

    private mutating func value(of type: String) -> Variant {
        switch type {
        case "s": return .string(Self.texts.randomElement(using: &random)!)
        case "o": return .objectPath(ObjectPath(Self.oddPaths.randomElement(using: &random)!))
        case "a{sv}":
            var dictionary: [String: Variant] = [:]
            for _ in 0..<Int.random(in: 0...3, using: &random) {
                let row = OptionRow.all.randomElement(using: &random)!
                let isRight = Int.random(in: 0..<3, using: &random) != 0
                let name = Int.random(in: 0..<12, using: &random) == 0 ? Self.texts.randomElement(using: &random)! : row.key
                dictionary[name] = isRight ? (row.signature == "s" ? value(of: "s") : tape().value(of: row.signature)) : tape().variant()
            }
            return .dictionary(dictionary)
        default: return tape().value(of: type)
        }
    }

    /// The complete types in a signature.
    private static func types(of signature: String) -> [String] {
        var rest = Substring(signature)
        var types: [String] = []
        while !rest.isEmpty {
            let type = Tape.first(of: rest)
            rest = rest.dropFirst(type.count)
            types.append(String(type))
        }
        return types
    }

    private static let oddPaths = [
        "/", "/org", "/org/todoku/Downloader1/download", "/org/todoku/Downloader1/download/99999", "/org/todoku/Downloader1/download/01",
        "/org/todoku/Downloader1/download/18446744073709551616", "/org/todoku/Downloader1/download/_", "/org/todoku/Downloader1/batch/1",
        "/org/todoku/Downloader1/download/by_token/a/b", "/org/todoku/Downloader1/download/by_token/_/_",
        "/" + String(repeating: "a/", count: 2000) + "a",
    ]
    private static let oddInterfaces = [
        "a.b", "org.freedesktop.DBus", "org.freedesktop.DBus.ObjectManager", "org.todoku.Downloader2", "org.freedesktop.Nothing",
    ]
    private static let texts =
        [
            "", " ", ".", "..", "/", "/tmp", "/dev/null", "a", "\u{FEFF}", "\u{202E}abc", "e\u{301}\u{302}\u{303}", "😀👨‍👩‍👧", "\u{FFFF}",
            "\u{10FFFF}",
            "\u{1}\u{7F}\n\r", "%s%n%x", "' OR 1=1 --", "$(id)", "<b>&amp;</b>", "http://127.0.0.1:1/x", "http://[::1]:1/",
            "file:///etc/passwd",
            "sha256:", "org.freedesktop.DBus.Properties", "queued", "paused", "rename", "never",
        ] + [Manager.interface, Download.interface] + ["State", "MaxActive", "SpeedLimit", "Priority", "DefaultDirectory", "Path", "Error"]
}

/// Holds a tape without being a variable.
private struct TapeHolder {
    private let bytes: [UInt8]
    init(_ bytes: [UInt8]) { self.bytes = bytes }

    func variant() -> Variant {
        var tape = Tape(bytes)
        return tape.variant()
    }

    func value(of type: String) -> Variant {
        var tape = Tape(bytes)
        return tape.value(of: type)
    }
}
