internal import DownloadModel

extension HostRules {
    /// A line for each host: its name, connections, and request interval in microseconds; "-" for an unset value.
    fileprivate var text: String {
        given.sorted { $0.key < $1.key }.map { host, rule in
            "\(host) \(rule.connections.map { String($0) } ?? "-") \(rule.requestInterval.map { String($0.microseconds) } ?? "-")\n"
        }.joined()
    }

    /// Unreadable lines are left out.
    fileprivate init(text: String) {
        self.init()
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 3 else { continue }
            try? set(
                String(words[0]),
                HostRule(connections: UInt32(words[1]), requestInterval: Int64(words[2]).map { .microseconds($0) }))
        }
    }
}

extension Settings {
    /// A row for each setting; numbers are in decimal digits.
    var rows: [(String, String)] {
        [
            ("max-active", maxActive == Settings.automatic ? Self.automaticText : String(maxActive)),
            ("max-per-host", String(maxPerHost)), ("speed-limit", String(speedLimit)),
            ("default-directory", defaultDirectory), ("paused", String(paused)), ("host-rules", hostRules.text),
            ("language", language.rawValue), ("badge", badge.rawValue), ("sandbox-private", String(allowsPrivateFromSandbox)),
            ("disk-reserve", String(diskReserve.wire)),
            (Self.cancelsThroughKey, cancelsThrough.map { ([$0] + spared.sorted()).map { "\($0)" }.joined(separator: " ") } ?? ""),
        ]
    }

    private static let automaticText = "auto"
    static let cancelsThroughKey = "cancels-through"

    /// What is missing or unreadable has its default.
    init(_ values: [String: String]) {
        self.init()
        func read<V: LosslessStringConvertible>(_ key: String, _ value: inout V) { value = values[key].flatMap(V.init) ?? value }
        // Before the automatic limit, the largest number meant no limit in practice.
        if let text = values["max-active"], text != Self.automaticText, let number = UInt32(text) {
            maxActive = number == Settings.automatic ? 0 : number
        }
        read("max-per-host", &maxPerHost)
        read("speed-limit", &speedLimit)
        read("default-directory", &defaultDirectory)
        read("paused", &paused)
        read("sandbox-private", &allowsPrivateFromSandbox)
        language = values["language"].flatMap(Language.init) ?? language
        badge = values["badge"].flatMap(BadgeContent.init) ?? badge
        diskReserve = values["disk-reserve"].flatMap { Int64($0) }.flatMap(DiskReserve.init(wire:)) ?? diskReserve
        hostRules = HostRules(text: values["host-rules"] ?? "")
        let cancelled = (values[Self.cancelsThroughKey] ?? "").split(separator: " ").compactMap { UInt64($0) }.map(DownloadNumber.init)
        (cancelsThrough, spared) = (cancelled.first, Set(cancelled.dropFirst()))
    }
}
