internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import Testing

@Suite struct `A refusal` {
    @Test(arguments: ["headers", "unknown", "filter"]) func `of a huge name repeats a few characters of it`(place: String) throws {
        let huge = String(repeating: "x", count: 1 << 20)
        let refusal = #expect(throws: Refusal.self) {
            switch place {
            case "headers": _ = try DownloadOptions(decoding: ["headers": .dictionary([(huge, "a\nb")])])
            case "unknown": _ = try DownloadOptions(decoding: [huge: .bool(true)])
            default: _ = try DownloadFilter(decoding: [huge: .bool(true)])
            }
        }
        #expect((refusal?.message.utf8.count ?? .max) < 1000)
    }

    /// A call of `WaitAll`, or of `List` behind other long answers, keeps its filter. There may be 256 of them.
    @Test(arguments: ["app", "tag"])
    func `meets a text in a filter that is longer than the option of the same name may be`(key: String) throws {
        func text(_ count: Int) -> Variant { .string(String(repeating: "x", count: count)) }
        #expect(try DownloadFilter(decoding: [key: text(255)]) != DownloadFilter())
        let refusal = #expect(throws: Refusal.self) { try DownloadFilter(decoding: [key: text(256)]) }
        #expect(refusal?.name == .invalidOption && refusal?.message == "Filter key \(key) is longer than 255 bytes.")
        let batches = #expect(throws: Refusal.self) { try BatchFilter(decoding: ["app": text(256)]) }
        #expect(batches?.message == "Filter key app is longer than 255 bytes.")
    }

    @Test(arguments: ["headers", "directory", "unknown"]) func `holds no control character of what it repeats`(place: String) {
        let odd = "/a\u{85}\u{9B}31m"
        let refusal = #expect(throws: Refusal.self) {
            switch place {
            case "headers": _ = try DownloadOptions(decoding: ["headers": .dictionary([(odd, "a")])])
            case "directory": _ = try DownloadOptions(decoding: ["directory": .string("relative" + odd)])
            default: _ = try DownloadOptions(decoding: [odd: .bool(true)])
            }
        }
        #expect(refusal.map { !$0.message.unicodeScalars.contains { $0.properties.generalCategory == .control } } == true)
    }
}
