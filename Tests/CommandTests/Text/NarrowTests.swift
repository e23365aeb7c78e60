import DBus
import DownloadModel
import Localization
import Testing

@testable import TodokuClient
@testable import Upkeep
@testable import todoku

@Suite struct `On a narrow terminal` {
    private func lines(_ text: String) -> [String] { text.split(separator: "\n").map(String.init) }

    @Test func `the hosts fit, and no name is cut`() {
        let rules = ["musicbrainz.org": HostRule(requestInterval: .seconds(1)), "*": HostRule(connections: 2)]
        let narrow = lines(HostCommand.table(rules).text(width: 40))
        #expect(narrow.allSatisfy { TerminalText.width($0) <= 40 } && narrow.contains { $0.contains("musicbrainz.org") }, "\(narrow)")
        let long = ["https://downloads.example.org:443", "https://a.example:443"]
        let refusals = SlowedHost(
            interval: .seconds(1), since: WallTime(microseconds: 0), pausedUntil: WallTime(microseconds: 1 << 50), status: 503)
        let table = HostCommand.table(Dictionary(uniqueKeysWithValues: long.map { ($0, refusals) }))
        for width in [40, 50, 60, 80] {
            let slowed = lines(table.text(width: width))
            #expect(slowed.allSatisfy { TerminalText.width($0) <= width && !$0.contains("…") }, "\(slowed)")
            #expect(long.allSatisfy { host in slowed.contains { $0.contains(host) } }, "\(slowed)")
        }
        #expect(lines(table.text(width: 140)).count == 3, "where there is room, a host has one line")
        #expect(lines(table.text(width: nil)).count == 3)
    }

    private func asset(_ name: String, _ status: String) -> AssetDescription {
        guard let reference = AssetReference("org.example.Game/\(name)") else { preconditionFailure("it is a name") }
        return AssetDescription(
            reference,
            [
                "App": .string("org.example.Game"), "Name": .string(name), "InstalledVersion": .string("2026.11"),
                "Stage": .string("ready"), "Status": .string(status),
            ])
    }

    @Test func `the assets fit, and no name is cut`() {
        let assets = [asset("levels", "up-to-date"), asset("voices-of-all-characters", "update-available")]
        for width in [41, 50, 60] {
            let narrow = lines(Table.of(assets).text(width: width))
            #expect(narrow.allSatisfy { TerminalText.width($0) <= width && !$0.contains("…") }, "\(narrow)")
            for asset in assets { #expect(narrow.contains { $0.hasPrefix("\(asset.app)/\(asset.name)") }, "\(narrow)") }
        }
        #expect(lines(Table.of(assets).text(width: 100)).count == 3)
        let japanese = Table.of(assets, Catalog(.japanese)).text(width: nil)
        #expect(!japanese.contains("up-to-date") && !japanese.contains("update-available") && !japanese.contains("STATE"), "\(japanese)")
    }

    @Test(arguments: [20, 40, 59, 60, 80, 120])
    func `the findings of the doctor fit, and no path is cut`(width: Int) {
        let path = "/home/somebody/.local/state/todoku/a-folder-with-a-rather-long-name/todoku.db"
        let finding = Finding(
            .downloadFolder, .wrong, Phrase("\(path) is damaged: it is no database"), advice: Phrase("Move \(path) away."))
        let lines = lines(DoctorCommand.text(finding, plainCatalog, width: width, hasColour: false, isUTF8: true))
        #expect(lines.allSatisfy { TerminalText.width($0) <= max(width, 26) }, "\(lines)")
        #expect(lines.first?.hasPrefix("wrong    download-folder") == true, "\(lines)")
        let text = lines.map { $0.drop { $0 == " " } }.joined()
        #expect(text.contains(path) && text.contains("→ Move"), "\(lines)")
    }

    @Test func `the progress of packing fits`() {
        #expect(PackMeter.text(1 << 30, of: 2 << 30, columns: 80, plainCatalog) == "packing  50 %  1.0 GiB of 2.0 GiB")
        for columns in 0..<40 {
            #expect(TerminalText.width(PackMeter.text(1 << 30, of: 2 << 30, columns: columns, plainCatalog)) <= columns)
        }
    }
}

@Suite struct `The rule of a host` {
    private let rules = ["example.org": HostRule(connections: 1), "*": HostRule(connections: 2)]
    private let slowed = [
        "https://www.example.org:443": SlowedHost(interval: .seconds(1), since: nil, pausedUntil: nil, status: 503),
        "https://other.example:443": SlowedHost(interval: .seconds(1), since: nil, pausedUntil: nil, status: 429),
    ]

    @Test(
        arguments: [
            ("sub.example.org", "example.org", "https://www.example.org:443"),
            ("Example.ORG.", "example.org", "https://www.example.org:443"),
            ("other.example", "*", "https://other.example:443"), ("notexample.org", "*", nil), ("*", "*", nil),
        ] as [(String, String, String?)])
    func `is that of the nearest domain, and is shown with the servers that share it`(host: String, name: String, origin: String?) {
        let found = HostCommand.concerning(host, rules, slowed)
        #expect(found.rules.keys.sorted() == [name] && found.slowed.keys.sorted() == [origin].compactMap(\.self))
    }

    @Test func `is none where none applies, and each without a host`() {
        #expect(HostCommand.concerning("a.example", ["example.org": HostRule(connections: 1)], [:]).rules.isEmpty)
        let all = HostCommand.concerning(nil, rules, slowed)
        #expect(all.rules == rules && all.slowed == slowed)
    }
}
