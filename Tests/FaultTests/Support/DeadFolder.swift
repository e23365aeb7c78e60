internal import DBus
internal import EventLoop
internal import Glibc
internal import TestSupport

/// Queues a download into `folder`, with more options.
@BusActor func ask(
    _ url: String, in folder: String, _ lane: Lane, _ more: [String: Variant] = [:]
) async -> Result<ObjectPath, DBusError> {
    do throws(DBusError) {
        let options: [String: Variant] = ["directory": .string(folder), "notify": .string("never")]
        return .success(try await lane.download(url, options.merging(more) { $1 }))
    } catch { return .failure(error) }
}

/// A download on a healthy disk, a call by a new caller, and two more calls for the dead folder.
@BusActor func liveOn(
    _ dead: String, _ server: ScriptedServer, _ body: [UInt8], _ place: Place, _ lane: Lane, _ verdict: inout Verdict
) async {
    let begun = ContinuousClock.now
    switch await ask(server.url("/healthy.bin"), in: place.files, lane) {
    case .success(let path): await finish(path, "healthy.bin", body, place, lane, &verdict)
    case .failure(let error): verdict.wrong.append("the healthy folder was refused: \(error.message)")
    }
    verdict.expect("the healthy disk's file", took: ContinuousClock.now - begun, lessThan: .seconds(40))
    verdict.expect(await lane.answersNewcomer(), "a new caller was not answered")
    for number in 0..<2 {
        let asked = ContinuousClock.now
        switch await ask(server.url("/more-\(number).bin"), in: dead, lane) {
        case .success: verdict.wrong.append("a call for the dead folder was accepted")
        case .failure(let error):
            verdict.tell(error.message, "the caller")
            verdict.expect(error.message.contains("did not answer"), "the caller was told “\(error.message)”")
        }
        verdict.expect("a call for the dead folder", took: ContinuousClock.now - asked, lessThan: .seconds(15))
    }
}

/// Whether a file that only the daemon can see holds `body`.
@BusActor func holds(_ path: String?, _ body: [UInt8], _ lane: Lane) -> Bool {
    guard let path, let pid = lane.pid else { return false }
    return fileHolds("/proc/\(pid)/root\(path)", body)
}
