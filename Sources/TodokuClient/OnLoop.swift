internal import EventLoop

/// Runs `work` in a task of the client's loop, so that it continues with an answer before the loop takes the next message.
///
/// The loop stops after an answer until the caller's next job. A task that `BusActor` did not start may need several jobs, one for each
/// function of the actor that returns. A signal that followed the answer would be taken in between: before a watch knows the download.
/// The answer, which is older, would be the last that the watch reports.
func onLoop<Value: Sendable>(
    _ work: @escaping @BusActor @Sendable () async throws(ClientError) -> Value
) async throws(ClientError) -> Value {
    let answer: Result<Value, ClientError> = await withCheckedContinuation { continuation in
        BusActor.spawn {
            do throws(ClientError) { continuation.resume(returning: .success(try await work())) } catch {
                continuation.resume(returning: .failure(error))
            }
        }
    }
    return try answer.get()
}
