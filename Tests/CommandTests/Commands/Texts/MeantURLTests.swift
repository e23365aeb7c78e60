import TestSupport
import Testing

private let noList = "There is no such file. A list is a file with URLs; “todoku get URL” downloads one URL."
private let path = "A path beside the manifest begins with “./”."

@Suite struct `A URL in the place of a file, or without its scheme` {
    @Test(arguments: [
        (["metalink", "example.org/x.meta4?key=secret"], "There is no such file. Did you mean https://example.org/x.meta4?"),
        (["batch", "http://127.0.0.1/list?key=secret"], noList), (["batch", "example.org/list"], noList),
        (["asset", "pack", "levels", "--url", "example.org/x"], "--url has no scheme. Did you mean https://example.org/x? \(path)"),
        (
            ["asset", "pack", "levels", "--mirror", "https://a.example/", "--mirror", "example.org/x/"],
            "--mirror has no scheme. Did you mean https://example.org/x/? \(path)"
        ),
    ])
    func `is told with what to do`(command: [String], sentence: String) async {
        let exit = await Desk.runAlone(command)
        #expect(exit.status == 2 && exit.output == "" && exit.errors.hasPrefix("todoku: \(sentence)\n"), "\(exit)")
        #expect(!exit.errors.contains("secret"))
    }

    @Test(arguments: [
        ["metalink", "list.meta4"], ["batch", "list.txt"], ["batch", "./example.org/list"], ["batch", "/example.org/list"],
    ])
    func `is not seen in a path`(command: [String]) async {
        let exit = await Desk.runAlone(command)
        #expect(exit.status == 2 && exit.errors.contains("cannot read “\(command[1])”: No such file"), "\(exit)")
    }
}
