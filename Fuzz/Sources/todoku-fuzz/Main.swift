internal import CFuzzer
internal import Glibc

/// `todoku-fuzz TARGET [LIBFUZZER'S OPTIONS] [FOLDER OR FILE…]`: one of the targets under libFuzzer.
@main enum Main {
    static func main() {
        guard CommandLine.arguments.count > 1, let target = Target(rawValue: CommandLine.arguments[1]) else {
            print(Target.allCases.map(\.rawValue).joined(separator: "\n"))
            return
        }
        // libFuzzer wants its own name first, and starts itself again by it, through a shell, for some options: the target belongs to it.
        let words = ["\(CommandLine.arguments[0]) \(target.rawValue)"] + CommandLine.arguments.dropFirst(2)
        let copies: [UnsafeMutablePointer<CChar>?] = words.map { $0.withCString(duplicate) } + [nil]
        var count = Int32(words.count)
        var arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>? = .allocate(capacity: copies.count)
        arguments?.update(from: copies, count: copies.count)
        exit(LLVMFuzzerRunDriver(&count, &arguments, target.oneInput))
    }

    private static func duplicate(_ text: UnsafePointer<CChar>) -> UnsafeMutablePointer<CChar>? { strdup(text) }
}

/// What is fuzzed; the raw value is the word on the command line and the folder in `corpus`.
enum Target: String, CaseIterable {
    case fileNames = "file-names"
    case urls
    case contentRanges = "content-ranges"
    case times
    case digests
    case responseHeads = "response-heads"
    case codings
    case archives
    case options
    case rows
    case messages
    case pushes
    case manifests
    case metalinks
    case links
    case exchanges

    var oneInput: @convention(c) (UnsafePointer<UInt8>?, Int) -> Int32 {
        switch self {
        case .fileNames: { run(fuzzFileNames, $0, $1) }
        case .urls: { run(fuzzURL, $0, $1) }
        case .contentRanges: { run(fuzzContentRange, $0, $1) }
        case .times: { run(fuzzTimes, $0, $1) }
        case .digests: { run(fuzzDigests, $0, $1) }
        case .responseHeads: { run(fuzzResponseHead, $0, $1) }
        case .codings: { run(fuzzCoding, $0, $1) }
        case .archives: { run(fuzzArchive, $0, $1) }
        case .options: { run(fuzzOptions, $0, $1) }
        case .rows: { run(fuzzRows, $0, $1) }
        case .messages: { run(fuzzMessage, $0, $1) }
        case .pushes: { run(fuzzPush, $0, $1) }
        case .manifests: { run(fuzzManifest, $0, $1) }
        case .metalinks: { run(fuzzMetalink, $0, $1) }
        case .links: { run(fuzzLinks, $0, $1) }
        case .exchanges: { run(fuzzExchanges, $0, $1) }
        }
    }
}

/// libFuzzer keeps an input for its corpus where the answer is 0.
private func run(_ body: ([UInt8]) -> Void, _ start: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    body(Array(UnsafeBufferPointer(start: start, count: count)))
    return 0
}

/// Ends the process, so that libFuzzer keeps the input, unless `condition` holds.
func check(_ condition: Bool, _ message: @autoclosure () -> String, line: Int = #line, file: StaticString = #fileID) {
    if condition { return }
    let text = "\(file):\(line): \(message())\n"
    write(2, text, text.utf8.count)
    abort()
}
