internal import DownloadModel
internal import EventLoop
internal import Glibc
internal import TodokuClient

/// The terminal at standard output, if there is one.
struct Terminal {
    let columns: Int
    let rows: Int

    /// nil if standard output is no terminal, or one that cannot move its cursor.
    static var current: Terminal? {
        guard isatty(STDOUT_FILENO) != 0, !isDumb else { return nil }
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return Terminal(columns: 80, rows: 24) }
        return Terminal(columns: Int(size.ws_col), rows: max(2, Int(size.ws_row)))
    }

    /// The text that erases the lines above the cursor, which have these widths. If the terminal became narrower, it has wrapped them into
    /// more lines.
    func erasing(_ widths: [Int]) -> String {
        let lines = widths.reduce(0) { $0 +| max(1, ($1 +| columns -| 1) / columns) }
        return lines > 0 ? "\u{1b}[\(lines)A\r\u{1b}[J" : ""
    }

    /// The columns for a text that is wrapped, found as ArgumentParser does: COLUMNS in the environment, else the width of the terminal at
    /// standard output, else 80. At least 20, at most 1000.
    static var textColumns: Int {
        var columns = getenv("COLUMNS").flatMap { Int(String(cString: $0)) }
        if columns == nil {
            var size = winsize()
            if ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 { columns = Int(size.ws_col) }
        }
        return min(max(columns ?? 80, 20), 1000)
    }

    /// Ctrl-C as a character.
    private static let interrupt: UInt8 = 3

    /// Whether a terminal at standard output may be coloured.
    static var hasColour: Bool { current != nil && allowsColour }

    /// Whether a terminal at standard error may be coloured.
    static var errorsHaveColour: Bool { errorsAreSeen && !isDumb && allowsColour }

    /// NO_COLOR, if it is not empty, forbids colours (no-color.org).
    private static var allowsColour: Bool { getenv("NO_COLOR").map { $0[0] == 0 } ?? true }

    private static var isDumb: Bool { getenv("TERM").map({ String(cString: $0) }) ?? "dumb" == "dumb" }

    /// Whether standard output is a terminal, even one that cannot move its cursor.
    static var outputIsSeen: Bool { isatty(STDOUT_FILENO) != 0 }

    static var errorsAreSeen: Bool { isatty(STDERR_FILENO) != 0 }

    /// Whether somebody can answer a question.
    static var canAsk: Bool { isatty(STDIN_FILENO) != 0 && errorsAreSeen }

    /// Whether the locale uses UTF-8 (LC_ALL before LC_CTYPE before LANG, as in locale(7)).
    static var isUTF8: Bool {
        for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
            guard let value = getenv(name), value[0] != 0 else { continue }
            let text = String(cString: value).lowercased()
            return text.contains("utf-8") || text.contains("utf8")
        }
        return false
    }

    /// Asks for a password on the terminal without echo, as `line` does.
    static func password(prompt: String) -> String? { line(prompt: prompt, isSecret: true) }

    /// Asks for a line on the terminal. Ctrl-C restores the terminal and ends the program, also while SIGINT is blocked. nil: there is no
    /// terminal, the terminal is gone, or the line is not UTF-8.
    static func line(prompt: String, isSecret: Bool = false) -> String? {
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC)
        guard terminal >= 0 else { return nil }
        defer { close(terminal) }
        var before = termios()
        guard tcgetattr(terminal, &before) == 0 else { return nil }
        var changed = before
        changed.c_lflag &= ~tcflag_t(isSecret ? ECHO | ISIG : ISIG)
        withUnsafeMutableBytes(of: &changed.c_cc) { $0[Int(VEOL)] = interrupt }  // Ctrl-C ends the line, and is its last byte
        tcsetattr(terminal, TCSAFLUSH, &changed)
        defer { tcsetattr(terminal, TCSAFLUSH, &before) }
        let prompt = Array(prompt.utf8)
        _ = write(terminal, prompt, prompt.count)
        let line = try? InputLine.read(from: terminal)
        let isInterrupted = line?.utf8.last == interrupt
        if isSecret || isInterrupted { _ = write(terminal, "\n", 1) }
        if isInterrupted {
            tcsetattr(terminal, TCSAFLUSH, &before)
            Program.finish(.interrupted)
        }
        return line
    }
}

/// What stands out on a terminal: a download that failed, or that waits.
enum Colour: Int {
    case red = 31, yellow = 33

    init?(_ state: DownloadDescription.State) {
        switch state {
        case .failed: self = .red
        case .waiting: self = .yellow
        default: return nil
        }
    }

    /// `text` in this colour (ECMA-48, SGR), with no change of its width.
    func paint(_ text: String) -> String { "\u{1b}[\(rawValue)m\(text)\u{1b}[39m" }
}

/// The first line of a file or of standard input.
enum InputLine {
    /// Most bytes of a line; the service's limit for a password is 1024.
    private static let longest = 4096

    /// Reads a line without its line end, and nothing after it. A Ctrl-C ends the line and is kept.
    ///
    /// - Returns: nil if the line is not UTF-8.
    static func read(from descriptor: Int32) throws(SystemCallError) -> String? {
        var bytes: [UInt8] = []
        var byte: UInt8 = 0
        while bytes.count < longest {
            let count = uninterrupted { Glibc.read(descriptor, &byte, 1) }
            guard count >= 0 else { throw SystemCallError(code: errno) }
            guard count == 1, byte != UInt8(ascii: "\n") else { break }
            bytes.append(byte)
            if byte == 3 { break }
        }
        if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        return String(validating: bytes, as: UTF8.self)
    }
}
