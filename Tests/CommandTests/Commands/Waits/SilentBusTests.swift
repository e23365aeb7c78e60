import Glibc
import TestSupport
import Testing

@Suite struct `A session bus that does not answer` {
    /// After 25 s a command would say that it cannot reach the bus, and would exit with 3.
    @Test(arguments: [
        ["get", "http://127.0.0.1:1/a"], ["watch"], ["batch", "--wait", "list"], ["metalink", "http://127.0.0.1:1/a.meta4"],
        ["asset", "update", "org.example.App/maps"], ["fetch", "http://127.0.0.1:1/a"],
    ])
    func `does not hold up Ctrl-C`(arguments: [String]) async {
        let desk = await Desk(hasService: false)
        writeFile(desk.bus.folder("list"), "http://127.0.0.1:1/a\n".utf8)
        desk.bus.signal(SIGSTOP)
        let command = desk.start(arguments)
        // The kernel accepts the connection. Then the command waits for the first words of the bus.
        #expect(await eventually { openFiles(of: command.pid, below: "socket:") > 0 }, "\(command.errors)")
        command.signal(SIGINT)
        let exit = await command.wait()
        #expect(exit.status == 130 && exit.output == "" && exit.errors == "", "\(exit)")
        desk.bus.signal(SIGCONT)
        await desk.close()
    }
}
