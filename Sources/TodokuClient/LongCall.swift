internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop

/// A call that may take as long as a download, and the tasks that wait for its answer.
///
/// A task that is cancelled leaves at once. D-Bus cannot take a call back, so the service still answers it later. The call waits for this
/// answer only while another task waits for it, or may still join.
@BusActor final class LongCall<Answer: Sendable>: JoinableCall {
    private typealias Waiter = CheckedContinuation<Result<Answer, any Error>, Never>

    /// The wait for the answer of the service.
    let answerWait = AnswerWait()
    private var answer: Result<Answer, any Error>?
    private var isJoinable: Bool
    /// The tasks that wait, by their places; nil: the task has entered, and its wait has not begun.
    private var waiting: [UInt64: Waiter?] = [:]
    private var nextPlace: UInt64 = 0

    /// - Parameter isJoinable: whether another task may join the call, until `endJoining`.
    init(isJoinable: Bool) { self.isJoinable = isJoinable }

    /// Whether a task still waits. If none does, the call is not repeated.
    var isAwaited: Bool { !waiting.isEmpty }

    /// Announces a task that is going to wait. From now on, the call is not given up, because this task needs its answer.
    ///
    /// - Returns: the place of the task, for `wait`.
    func enter() -> UInt64 {
        let place = nextPlace
        nextPlace &+= 1
        waiting.updateValue(nil, forKey: place)
        return place
    }

    /// Waits for `end(_:)`, at the place from `enter`.
    ///
    /// - Throws: the error that the call ended with; `CancellationError` at once when the task is cancelled.
    func wait(_ place: UInt64) async throws -> Answer {
        try await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: Waiter) in
                // Other work of the loop may have run since `enter`, and may have given up the call of a cancelled task.
                if Task.isCancelled {
                    continuation.resume(returning: .failure(CancellationError()))
                } else if let answer {
                    continuation.resume(returning: answer)
                } else {
                    waiting.updateValue(continuation, forKey: place)
                }
            }
        } onCancel: {
            BusActor.spawn { self.leave(place) }
        }.get()
    }

    private func leave(_ place: UInt64) {
        if case let task?? = waiting.removeValue(forKey: place) { task.resume(returning: .failure(CancellationError())) }
        giveUpIfUseless()
    }

    func endJoining() {
        isJoinable = false
        giveUpIfUseless()
    }

    /// While a call waits for its answer, its connection stays open.
    private func giveUpIfUseless() { if waiting.isEmpty, !isJoinable { answerWait.giveUp() } }

    func end(_ answer: Result<Answer, any Error>) {
        self.answer = answer
        let tasks = waiting.values
        waiting = [:]
        for task in tasks { task?.resume(returning: answer) }
    }
}

/// A call that further tasks may join.
@BusActor protocol JoinableCall: AnyObject {
    /// No further task will join.
    func endJoining()
}

extension ClientCore {
    /// Waits for a call that may take long and has no arguments but `options`. The call is repeated if the service goes away.
    func wait<Out>(
        _ method: MethodOf<[String: Variant], Out>, at path: ObjectPath, _ options: [String: Variant] = [:]
    ) async throws -> Out {
        let key = Self.key(method.name, at: path, options)
        return try await untilAnswered(method, at: path, options, sharedBy: key).answer
    }

    /// Calls without a time limit, and repeats the call if the service goes away.
    ///
    /// A cancelled task leaves its call with the service, which allows 256 at a time. So the next call with the same key joins that call.
    ///
    /// - Parameter key: the same for calls to which the service gives one answer while they wait; nil: there are none.
    /// - Throws: `ClientError`; `CancellationError` at once when the task is cancelled.
    func untilAnswered<In, Out>(
        _ method: MethodOf<In, Out>, at path: ObjectPath, _ arguments: In, sharedBy key: [UInt8]? = nil
    ) async throws -> (answer: Out, wasLost: Bool) {
        // The call of a cancelled task would change the service's queue.
        try Task.checkCancellation()
        if let key, let call = longCalls[key] as? LongCall<(answer: Out, wasLost: Bool)> {
            return try await call.wait(call.enter())
        }
        let call = LongCall<(answer: Out, wasLost: Bool)>(isJoinable: key != nil)
        if let key { longCalls[key] = call }
        let place = call.enter()
        BusActor.spawn { [self] in
            let answer = await repeatUntilAnswered(method, at: path, arguments, for: call)
            if let key { longCalls[key] = nil }
            call.end(answer)
        }
        return try await call.wait(place)
    }

    /// The method, object and arguments of a call, in bytes: Swift takes canonically equivalent strings for the same.
    static func key(_ method: String, at path: ObjectPath, url: String = "", _ options: [String: Variant]) -> [UInt8]? {
        let pairs = options.sorted { $0.key < $1.key }.map { Variant.structure([.string($0.key), .variant($0.value)]) }
        // As a text, because the path may be invalid: the call says so.
        let bytes = Message.bytes(of: Variant.structure([.string(method), .string(path.value), .string(url), .array(of: "(sv)", pairs)]))
        return bytes.isEmpty ? nil : bytes
    }

    private func repeatUntilAnswered<In, Out>(
        _ method: MethodOf<In, Out>, at path: ObjectPath, _ arguments: In, for call: LongCall<(answer: Out, wasLost: Bool)>
    ) async -> Result<(answer: Out, wasLost: Bool), any Error> {
        var losses = 0
        var wasLost = false
        while true {
            let begun = ContinuousClock.now
            do throws(DBusError) {
                let answer = try await connection.call(
                    method, on: BusName.service, at: path, arguments, timeout: nil, wait: call.answerWait)
                return .success((answer, wasLost))
            } catch {
                guard error.isNoReply else { return .failure(ClientError(error)) }
                wasLost = true
                losses = .now - begun > Self.steadyTime ? 1 : losses +| 1
                guard losses <= Self.mostLosses else { return .failure(ClientError(error)) }
            }
            await sleep(for: Self.pause(after: losses))
            // The repeated call would start the service.
            guard call.isAwaited else { return .failure(CancellationError()) }
        }
    }
}
