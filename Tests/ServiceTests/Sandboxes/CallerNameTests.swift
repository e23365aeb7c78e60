internal import DBus
internal import DownloaderInterface
internal import TestSupport
internal import Testing

@Suite(.timeLimit(.minutes(10))) struct `A caller whose program has a name in another script` {
    /// The kernel keeps 15 bytes of the name of a process: here, the last letter has two of its three bytes.
    @Test func `is recognised although the kernel cuts a letter of the name`() async throws {
        let running = try await Running.start()
        let program = running.world.bus.folder("get-ダウンロード")
        #expect(await Child.run(["sh", "-c", #"cp "$(command -v gdbus)" "$0""#, program]).status == 0)
        let call = gdbusCall(BusName.managerPath.value, "\(Manager.interface).List", [noOptions])
        let exit = await Child.run([program] + call.dropFirst(), environment: running.world.environment)
        #expect(exit.status == 0 && exit.output == "(@ao [],)\n", "\(exit)")
    }
}
