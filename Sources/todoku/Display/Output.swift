internal import EventLoop
internal import Glibc
internal import Localization

/// Standard output and standard error, unbuffered.
enum Output {
    /// Called on the bus loop before a failed write ends the program: removes what must not stay. Block SIGPIPE, too, which would end the
    /// program first.
    nonisolated(unsafe) static var willEnd: (@BusActor () -> Void)?  // set and read on the thread of the bus loop only

    static func write(_ text: String) { write(text, to: STDOUT_FILENO) }
    static func writeError(_ text: String) { write(text, to: STDERR_FILENO) }

    /// Writes to an open file.
    static func write(_ text: String, toFile descriptor: Int32) { write(text, to: descriptor) }

    /// Writes one sentence to standard error, as `todoku: …`.
    ///
    /// - Parameter colour: that of the sentence on a terminal; nil: none.
    static func complain(_ sentence: String, colour: Colour? = nil) {
        let text = TerminalText.plain(sentence)
        writeError("todoku: \((Terminal.errorsHaveColour ? colour?.paint(text) : nil) ?? text)\n")
    }

    /// Writes the whole text. If the reader is gone, SIGPIPE ends the program, as usual for commands. Any other error ends it, too.
    private static func write(_ text: String, to descriptor: Int32) {
        var text = text
        text.withUTF8 { bytes in
            var rest = bytes[...]
            while !rest.isEmpty {
                let count = Glibc.write(
                    descriptor, UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(bytes)[rest.indices]).baseAddress, rest.count)
                if count >= 0 {
                    rest = rest.dropFirst(count)
                } else if errno == EAGAIN {
                    var slot = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                    _ = poll(&slot, 1, -1)
                } else if errno != EINTR {
                    end(by: errno, of: descriptor)
                }
            }
        }
    }

    /// Ends the program after a write has failed.
    private static func end(by code: Int32, of descriptor: Int32) -> Never {
        if let willEnd { BusActor.assumeIsolated { willEnd() } }
        willEnd = nil
        if code == EPIPE { SignalSource.unblock([SIGPIPE]) }  // if it was blocked, it is pending, and ends the program now
        if descriptor != STDERR_FILENO {
            complain(catalog.text("cannot write the output: %1$s", String(cString: strerror(code))))
        }
        exit(ExitStatus.refused.rawValue)
    }
}
