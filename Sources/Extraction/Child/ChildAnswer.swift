internal import DownloadModel
internal import Glibc
internal import PartFiles

/// A message of the child. A hostile archive may control the child, so `init` trusts nothing: it bounds texts, removes control characters
/// from texts for people, and refuses a message that our code never writes.
enum ChildAnswer: Equatable {
    case confined(Confinement)
    case progress(read: ByteCount, written: ByteCount, entries: UInt64)
    case whole(UnpackedEntries)
    case failed(ExtractionFailure)

    /// Most bytes of a message, without its size.
    static let mostBytes = 4096
    /// The bytes of the size in front of a message.
    static let headSize = 2

    /// The message with its size in front.
    var framed: [UInt8] {
        var out = WordWriter()
        switch self {
        case .confined(let confinement):
            out.put(1)
            out.put(UInt64(clamping: confinement.rawValue))
        case .progress(let read, let written, let entries): for number in [2, read, written, entries] { out.put(number) }
        case .whole(let entries): for number in [3, entries.entries, entries.bytes, entries.kept] { out.put(number) }
        case .failed(let failure):
            out.put(4)
            failure.put(to: &out)
        }
        let count = out.bytes.count
        return Array([[UInt8(truncatingIfNeeded: count & 0xFF), UInt8(truncatingIfNeeded: count >> 8)], out.bytes].joined())
    }

    /// nil: no child of ours writes this.
    init?(_ message: ArraySlice<UInt8>) {
        var words = WordReader(message)
        switch words.number() {
        case 1: self = .confined(Confinement(rawValue: UInt32(truncatingIfNeeded: words.number(atMost: 0xFF))))
        case 2: self = .progress(read: words.number(), written: words.number(), entries: words.number())
        case 3: self = .whole(UnpackedEntries(entries: words.number(), bytes: words.number(), kept: words.number()))
        case 4:
            guard let failure = ExtractionFailure(&words) else { return nil }
            self = .failed(failure)
        default: return nil
        }
        guard words.isWhole else { return nil }
    }

    /// Whether an archive of `size` bytes can have this answer.
    func isPossible(_ limits: ExtractionLimits, size: ByteCount) -> Bool {
        let (entries, bytes) = (UInt64(clamping: limits.entries), limits.mostUnpacked(of: size))
        switch self {
        case .confined, .failed: return true
        case .progress(let read, let written, let count): return read <= size && written <= bytes && count <= entries
        case .whole(let all): return all.entries <= entries && all.bytes <= bytes && all.kept <= all.entries
        }
    }
}

/// The messages of a child, as they arrive on a pipe.
struct AnswerReader {
    private var bytes: [UInt8] = []

    /// Adds what was read: at most a pipe's room, so the buffer is bounded.
    mutating func add(_ more: some Collection<UInt8>) { bytes.append(contentsOf: more) }

    /// The next whole message; nil: it has not arrived yet.
    mutating func next() throws(ExtractionFailure) -> ChildAnswer? {
        guard bytes.count >= ChildAnswer.headSize else { return nil }
        let count = Int(clamping: bytes[0]) | Int(clamping: bytes[1]) << 8
        guard count <= ChildAnswer.mostBytes else { throw .nonsense }
        let end = ChildAnswer.headSize +| count
        guard bytes.count >= end else { return nil }
        guard let answer = ChildAnswer(bytes.prefix(end).dropFirst(ChildAnswer.headSize)) else { throw .nonsense }
        bytes.removeFirst(end)
        return answer
    }
}

extension ExtractionFailure {
    static let nonsense = ExtractionFailure.stopped("the process that unpacks gave an answer that no such process gives")

    fileprivate func put(to out: inout WordWriter) {
        switch self {
        case .unsupported(let found):
            out.put(1)
            out.put(found)
        case .damaged(let entry, let reason):
            out.put(2)
            out.put(entry != nil)
            out.put(entry ?? "")
            out.put(reason)
        case .refused(let entry, let defect):
            out.put(3)
            out.put(entry)
            defect.put(to: &out)
        case .excessive(let text):
            out.put(4)
            out.put(text)
        case .noSpace(let shortage):
            out.put(5)
            out.put(shortage?.missing)
            out.put(shortage?.room)
        case .disk(let error):
            out.put(6)
            out.put(error.action)
            out.put(UInt64(clamping: error.code))
        case .unavailable(let reason):
            out.put(7)
            out.put(reason)
        case .stopped(let reason):
            out.put(8)
            out.put(reason)
        case .cancelled, .taken:
            out.put(8)
            out.put("it ended too early")
        }
    }

    fileprivate init?(_ words: inout WordReader) {
        switch words.number() {
        case 1: self = .unsupported(found: clean(words.text()))
        case 2:
            let (hasEntry, entry) = (words.flag(), words.text())
            self = .damaged(entry: hasEntry ? entry : nil, reason: clean(words.text()))
        case 3:
            let entry = words.text()
            guard let defect = EntryDefect(&words) else { return nil }
            self = .refused(entry: entry, defect)
        case 4: self = .excessive(clean(words.text()))
        case 5:
            let (missing, room) = (words.optional(), words.optional())
            self = .noSpace(missing.flatMap { missing in room.map { DiskError.Shortage(missing: missing, room: $0) } })
        case 6:
            let (action, code) = (clean(words.text()), words.number(atMost: 4095))
            self = .disk(DiskError(action, Int32(truncatingIfNeeded: code)))
        case 7: self = .unavailable(reason: clean(words.text()))
        case 8: self = .stopped(clean(words.text()))
        default: return nil
        }
    }
}

/// A text for people: without control characters, and in one line.
private func clean(_ text: String) -> String {
    String(
        String.UnicodeScalarView(
            text.unicodeScalars.prefix(300).map {
                $0.properties.generalCategory == .control || $0.properties.isBidiControl ? "\u{FFFD}" : $0
            }))
}

extension EntryDefect {
    /// The defects without further facts. Their places are their numbers.
    private static let plain: [EntryDefect] = [
        .noName, .absolutePath, .parentReference, .controlCharacter, .longName, .duplicate, .caseClash, .insideOfNoFolder, .unusableLink,
        .device, .fifo, .socket, .unknownKind, .setUserID, .encrypted, .existsOnDisk,
    ]

    fileprivate func put(to out: inout WordWriter) {
        switch self {
        case .longPath(let limit):
            out.put(100)
            out.put(UInt64(clamping: limit))
        case .tooDeep(let limit):
            out.put(101)
            out.put(UInt64(clamping: limit))
        case .absoluteLink(let target):
            out.put(102)
            out.put(target)
        case .linkOutside(let target):
            out.put(103)
            out.put(target)
        case .indirectLink(let target):
            out.put(104)
            out.put(target)
        case .hardLinkToNothing(let target):
            out.put(105)
            out.put(target)
        case .method(let method):
            out.put(106)
            out.put(method)
        default: out.put(UInt64(clamping: Self.plain.firstIndex(of: self) ?? 0))
        }
    }

    fileprivate init?(_ words: inout WordReader) {
        switch words.number() {
        case 100: self = .longPath(limit: words.integer())
        case 101: self = .tooDeep(limit: words.integer())
        case 102: self = .absoluteLink(target: words.text())
        case 103: self = .linkOutside(target: words.text())
        case 104: self = .indirectLink(target: words.text())
        case 105: self = .hardLinkToNothing(target: words.text())
        case 106: self = .method(words.text())
        case let number:
            guard number < UInt64(clamping: Self.plain.count) else { return nil }
            self = Self.plain[Int(truncatingIfNeeded: number)]
        }
    }
}
