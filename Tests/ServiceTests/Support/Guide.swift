internal import TestSupport
internal import Testing

/// docs/guides/how-do-i.md. Its blocks are run as they are on the page. Only URLs and numbers are replaced, and types are added that gdbus
/// may not learn in time (`noOptions`).
struct Guide {
    /// What is before the first recipe, and then each recipe.
    private let sections: [Substring]

    init() throws {
        let page = String(decoding: try #require(readFile("\(repository)/docs/guides/how-do-i.md")), as: UTF8.self)
        sections = page.split(separator: "\n## ")
    }

    /// The first block of a language in a recipe; in recipe 0, what all recipes begin with.
    ///
    /// - Parameter changes: texts that the block must have, and what is run in their place.
    func block(_ language: String, in recipe: Int, _ changes: [String: String] = [:]) throws -> String {
        let section = sections[recipe]
        #expect(recipe == 0 || section.hasPrefix("\(recipe) · "))
        let start = try #require(section.firstRange(of: "\n```\(language)\n")).upperBound
        let end = try #require(section[start...].firstRange(of: "\n```\n")).lowerBound
        var text = "\(section[start..<end])\n"
        for (old, new) in changes {
            #expect(text.contains(old))
            text = text.replacing(old, with: new)
        }
        return text
    }

    /// A program in Python: what all recipes begin with, the recipe, and code of the app, which comes before and after the recipe.
    func program(_ recipe: Int, before: String = "", own: String, _ changes: [String: String] = [:]) throws -> String {
        try block("python", in: 0) + before + block("python", in: recipe, changes) + own
    }

    /// The commands of a recipe for a shell, each with the answer below it.
    func commands(_ recipe: Int, _ changes: [String: String] = [:]) throws -> [(command: String, answer: String)] {
        var commands: [(command: String, answer: String)] = []
        var isOpen = false
        for line in try block("sh", in: recipe, changes).split(separator: "\n") {
            if isOpen, let last = commands.popLast() {
                commands.append((command: "\(last.command)\n\(line)", answer: ""))
            } else if line.hasPrefix("("), let last = commands.popLast() {
                commands.append((command: last.command, answer: String(line)))
                continue
            } else {
                commands.append((command: String(line), answer: ""))
            }
            let command = commands.last?.command ?? ""
            isOpen = command.hasSuffix("\\") || command.count { $0 == "\"" } % 2 == 1
        }
        return commands
    }

    /// Commands for one shell, which ends at the first that fails.
    func script(_ commands: some Sequence<String>) throws -> String {
        "set -e\n" + (try block("sh", in: 0)) + commands.joined(separator: "\n")
    }

    /// Runs commands for a shell, which finds `todoku`.
    func run(_ commands: some Sequence<String>, _ environment: [String: String], folder: String? = nil) async throws -> Child.Exit {
        let programs = builtProgram("todoku", variable: "TODOKU").split(separator: "/").dropLast().reduce("") { "\($0)/\($1)" }
        let path = "\(programs):\(environment["PATH"] ?? "/usr/bin:/bin")"
        return await Child.run(
            ["sh", "-c", try script(commands)], environment: environment.merging(["PATH": path]) { $1 }, folder: folder)
    }
}
