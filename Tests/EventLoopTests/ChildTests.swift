internal import TestSupport
internal import Testing

@Suite struct `A child process` {
    @Test func `its output and exit status are reported`() async {
        let exit = await Child.run(["sh", "-c", "echo a; echo b >&2; exit 3"])
        #expect(exit.status == 3)
        #expect(exit.output == "a\n")
        #expect(exit.errors == "b\n")
    }
    @Test func `eventually looks again`() async {
        let start = ContinuousClock.now
        #expect(await eventually { ContinuousClock.now - start > .milliseconds(50) })
    }
}
