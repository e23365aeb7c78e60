internal import EventLoop
internal import Glibc

/// Writes a line to standard output at once.
func say(_ line: String) { write(line + "\n", to: 1) }

/// Writes a line to standard error.
func complain(_ line: String) { write(line + "\n", to: 2) }

/// Whether standard output is a terminal, on which a line can be overwritten.
func outputIsTerminal() -> Bool { isatty(1) == 1 }

/// Writes `text` unchanged; text that cannot be written is dropped.
func write(_ text: String, to descriptor: Int32) {
    _ = Array(text.utf8).withUnsafeBytes { writeAll($0, to: descriptor) }
}

/// `text` with control characters replaced by spaces, so that it cannot control the terminal.
func printable(_ text: String) -> String {
    String(String.UnicodeScalarView(text.unicodeScalars.map { $0.value < 0x20 || (0x7F...0x9F).contains($0.value) ? " " : $0 }))
}

/// Terminal columns of `text`: two for characters that Unicode's East Asian Width calls wide.
func columns(_ text: String) -> Int {
    text.unicodeScalars.reduce(0) { sum, scalar in
        if scalar.properties.generalCategory == .nonspacingMark { return sum }
        switch scalar.value {
        case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0xA4CF, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF00...0xFF60,
            0xFFE0...0xFFE6, 0x1F300...0x1FAFF, 0x20000...0x3FFFD:
            return sum + 2
        default: return sum + 1
        }
    }
}

/// `lines` in a frame, with `title` in its top edge.
func framed(_ title: String, _ lines: [String]) -> String {
    let width = max(columns(title) + 2, lines.map(columns).max() ?? 0, 40)
    func pad(_ text: String, _ filler: String) -> String { text + String(repeating: filler, count: max(0, width - columns(text))) }
    return (["┌─\(pad(" \(title) ", "─"))─┐"] + lines.map { "│ \(pad($0, " ")) │" } + ["└─\(pad("", "─"))─┘"]).joined(separator: "\n")
}
