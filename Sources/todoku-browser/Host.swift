internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import JSON

/// Answers the browser's messages one by one, until the browser closes the input.
@BusActor final class Host {
    /// How long the program waits for an answer. The bus may have to start the service, which may have to read a long list first.
    private static let callTimeout: Duration = .seconds(60)
    /// How the tokens of our downloads begin.
    private static let tokenStart = "browser_"
    private static let noReply = "org.freedesktop.DBus.Error.NoReply"
    private static let unknownObject = "org.freedesktop.DBus.Error.UnknownObject"

    private let caller: Caller
    private let input: Int32
    private let output: Int32
    private var reader = MessageReader()
    private var watch: Poller.Token?
    /// nil: no message has needed the bus yet.
    private var connection: Connection?
    private var isBusGone = false

    init(_ caller: Caller, input: Int32 = STDIN_FILENO, output: Int32 = STDOUT_FILENO) {
        (self.caller, self.input, self.output) = (caller, input, output)
    }

    /// - Returns: the exit status: 0 at the end of the input, 1 if the browser no longer reads, 65 (EX_DATAERR of sysexits.h) if the input
    ///   ends within a message.
    func run() async -> Int32 {
        while let item = await next() {
            guard send(await answer(item)) else { return 1 }
        }
        guard reader.isBetweenMessages else {
            Main.complain("the input ended within a message")
            return 65
        }
        return 0
    }

    // MARK: Messages

    private func answer(_ item: MessageReader.Item) async -> Answer {
        switch item {
        case .tooLong(let length):
            return .failed(
                name: Answer.messageTooLong, message: "The message has \(length) bytes; at most \(MessageReader.mostBytes) are read.")
        case .message(let bytes):
            let message: BrowserMessage
            do throws(JSONError) { message = try BrowserMessage(bytes) } catch { return Answer(error) }
            do throws(DBusError) { return try await answer(message) } catch { return Answer(error) }
        }
    }

    private func answer(_ message: BrowserMessage) async throws(DBusError) -> Answer {
        switch message {
        case .download(let download):
            var options = download.options
            options["app"] = .string(caller.app)
            options["token"] = .string(Self.newToken())
            return .accepted(try await call(Manager.download, at: BusName.managerPath, (download.url, options)))
        case .status:
            let properties = try await call(Standard.getAll, at: BusName.managerPath, Manager.interface)
            return .status(
                version: properties[Manager.version.name]?.string ?? "", remaining: properties[Manager.remaining.name]?.uint32 ?? 0,
                active: properties[Manager.active.name]?.uint32 ?? 0, isPaused: properties[Manager.paused.name]?.bool ?? false)
        case .remove(let path):
            guard path.value.hasPrefix(BusName.path(app: caller.app, token: Self.tokenStart).value) else {
                return .failed(name: Answer.invalidMessage, message: "The download was not queued by this browser.")
            }
            do throws(DBusError) {
                try await call(Download.remove, at: path, true)
            } catch {
                guard error.name == Self.unknownObject else { throw error }
            }
            return .removed
        }
    }

    /// A new token. With a token, a call whose answer was lost can be repeated: the service then answers with the same download.
    private static func newToken() -> String {
        var generator = SystemRandomNumberGenerator()
        let number: UInt64 = generator.next()
        return "\(tokenStart)\(String(number, radix: 16))"
    }

    // MARK: The service

    /// Calls the service, and once more if it exits before it answers.
    private func call<In, Out>(_ method: MethodOf<In, Out>, at path: ObjectPath, _ arguments: In) async throws(DBusError) -> Out {
        let begun = SuspendingClock.now  // the clock of the timeout
        do throws(DBusError) {
            return try await bus().call(method, on: BusName.service, at: path, arguments, timeout: Self.callTimeout)
        } catch {
            guard error.name == Self.noReply, begun.duration(to: .now) < Self.callTimeout else { throw error }
        }
        return try await bus().call(method, on: BusName.service, at: path, arguments, timeout: Self.callTimeout)
    }

    /// The connection to the session bus. The first call makes the connection, and so does the first call after the bus has gone.
    private func bus() throws(DBusError) -> Connection {
        if let connection, !isBusGone { return connection }
        let made = try Connection.session()
        isBusGone = false
        made.onDisconnect = { [weak self] in self?.isBusGone = true }
        connection = made
        return made
    }

    // MARK: The browser

    /// The next message; nil at the end of the input.
    private func next() async -> MessageReader.Item? {
        while true {
            if let item = reader.next() { return item }
            await becomeReadable()
            guard readPortion() else { return nil }
        }
    }

    private func becomeReadable() async {
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            watch = Poller.shared.watch(input, for: .readable) { [self] _ in
                // A watch that stays would call this closure again in the next turn.
                if let watch { Poller.shared.cancel(watch) }
                watch = nil
                continuation.resume()
            }
        }
    }

    /// Reads the bytes that have arrived, at most 64 KiB.
    ///
    /// - Returns: false at the end of the input.
    private func readPortion() -> Bool {
        var portion = [UInt8](repeating: 0, count: 65_536)
        let count = uninterrupted { read(input, &portion, portion.count) }
        guard count > 0 else { return count < 0 && errno == EAGAIN }
        reader.append(portion[..<count])
        return true
    }

    /// - Returns: false if the browser no longer reads.
    private func send(_ answer: Answer) -> Bool {
        var rest = MessageReader.framed(answer.json.text)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { write(output, $0.baseAddress, $0.count) }
            if count > 0 {
                rest = rest.dropFirst(count)
            } else if errno == EAGAIN {
                var slot = pollfd(fd: output, events: Int16(POLLOUT), revents: 0)
                _ = poll(&slot, 1, -1)
            } else if errno != EINTR {
                return false
            }
        }
        return true
    }
}
