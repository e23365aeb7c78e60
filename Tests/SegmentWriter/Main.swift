// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Glibc
import PartFiles

// Writes a part file as several connections would, with the code of todokud, so that a test can kill it or cut the power at any moment
// (Tests/FaultTests/Faults/Crashes/SegmentTests.swift). It first checks every byte that counts of an earlier run, and then continues that
// run.
//
//     todoku-segments FILES STATE PROGRESS CONNECTIONS SEED
//
// FILES is the folder of the part file, STATE that of its map and of its row: the last checkpoint, as the database would have it. After
// each write, the number of bytes that count is in the file PROGRESS.

/// A line on standard output.
func say(_ text: String) {
    let line = Array("\(text)\n".utf8)
    _ = write(1, line, line.count)
}

/// Ends the process: something is wrong.
func fail(_ text: String) -> Never {
    say("wrong: \(text)")
    exit(1)
}

/// SplitMix64.
struct Randomness: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = (state ^ state >> 30) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
        return mixed ^ mixed >> 31
    }
}

/// The server's bytes: none is 0, as in a hole, and no two stretches are equal.
let size: ByteCount = 600_000
let body: [UInt8] = {
    var bytes = [UInt8](repeating: 0, count: Int(size))
    bytes.withUnsafeMutableBytes { raw in
        var random = Randomness(state: 42)
        for place in stride(from: 0, to: raw.count - 7, by: 8) {
            raw.storeBytes(of: random.next() | 0x0101_0101_0101_0101, toByteOffset: place, as: UInt64.self)
        }
        for place in (raw.count & ~7)..<raw.count { raw[place] = 1 }
    }
    return bytes
}()

struct SegmentWriter {
    static let name = ".todoku-1.part"
    let (files, state, progress): (String, String, Int32)
    let connections: Int
    let boot = bootIdentity()
    let part: PartFile
    var random: Randomness

    init(_ words: [String]) throws {
        guard words.count == 5, let connections = Int(words[3]), let seed = UInt64(words[4]) else { fail("the arguments are \(words)") }
        (files, state, self.connections, random) = (words[0], words[1], connections, Randomness(state: seed))
        progress = open(words[2], O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        let row = Self.readRow("\(state)/row")
        let folder = try OpenFolder.open(files, allowHidden: true)
        let map = "\(state)/map"
        let held = try PartFile.reopen(in: folder, name: Self.name, resume: row, hasChecksum: false, mapPath: map, boot: boot)
        part = if let held { held } else { try PartFile.create(in: folder, name: Self.name, mapPath: map, boot: boot) }
        (part.validator, part.total, part.isResumable) = (.entityTag("\"v1\""), size, true)
        Self.check(part.ranges.ranges, "\(files)/\(Self.name)")
        say("claims \(part.written) row \(row?.written ?? 0)")
        // File systems with a journal make a name durable with the first fsync of the file. POSIX promises this only for fsync of the
        // folder.
        guard fsync(folder.descriptor) == 0 else { fail("the folder cannot be flushed: errno \(errno)") }
        try part.trim()
        if Bool.random(using: &random) { try part.reserve() }
    }

    /// Ends the process unless the file has the right bytes in `ranges`.
    static func check(_ ranges: [Range<ByteCount>], _ path: String) {
        let file = open(path, O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        for range in ranges {
            var bytes = [UInt8](repeating: 0, count: Int(range.byteCount))
            let count = pread(file, &bytes, bytes.count, off_t(range.lowerBound))
            guard count == bytes.count, bytes[...] == body[Int(range.lowerBound)..<Int(range.upperBound)] else {
                fail("the bytes \(range) count, and are not there")
            }
        }
    }

    // MARK: The row

    /// Saves the row as the database would: it is on disk on return.
    func saveRow(_ data: ResumeData) throws {
        let identity = data.identity
        let text = "row|\(data.ranges)|\(identity.device)|\(identity.inode)|\(identity.mount)|\(identity.boot)|\(identity.born ?? 0)"
        let (draft, row) = ("\(state)/row.new", "\(state)/row")
        let file = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        let bytes = Array(text.utf8)
        guard pwrite(file, bytes, bytes.count, 0) == bytes.count, fsync(file) == 0, close(file) == 0, rename(draft, row) == 0 else {
            fail("the row cannot be saved: errno \(errno)")
        }
        let folder = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard fsync(folder) == 0, close(folder) == 0 else { fail("the row’s folder cannot be flushed: errno \(errno)") }
    }

    static func readRow(_ path: String) -> ResumeData? {
        let file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 8192)
        let count = pread(file, &bytes, bytes.count, 0)
        let text = String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
        let words = text.split(separator: "|", omittingEmptySubsequences: false).map(String.init)
        guard words.count == 7, let ranges = ByteRanges(words[1]), let device = UInt64(words[2]), let inode = UInt64(words[3]),
            let mount = UInt64(words[4]), let born = Int64(words[6])
        else { fail("the row is “\(text)”") }
        return ResumeData(
            ranges: ranges, total: size, validator: .entityTag("\"v1\""),
            identity: FileIdentity(device: device, inode: inode, mount: mount, boot: words[5], born: born == 0 ? nil : born))
    }

    mutating func checkpoint() throws {
        guard let data = part.resumeData(part.ranges) else { return }
        guard fdatasync(part.descriptor) == 0 else { fail("the part file cannot be flushed: errno \(errno)") }
        try saveRow(data)
    }

    // MARK: Connections

    /// Writes until no byte is missing.
    mutating func run() throws {
        while true {
            let gaps = part.ranges.gaps(in: 0..<size)
            if gaps.isEmpty { break }
            try fetch(gaps)
        }
        Self.check([0..<size], "\(files)/\(Self.name)")
        try checkpoint()
        say("whole")
    }

    /// One round of all connections over the missing bytes. A set of many ranges may omit some, so further rounds may follow.
    private mutating func fetch(_ gaps: [Range<ByteCount>]) throws {
        var (waiting, active) = (gaps, [Range<ByteCount>]())
        while !waiting.isEmpty || !active.isEmpty {
            while active.count < connections, let next = next(&waiting, &active) { active.append(next) }
            let index = Int.random(in: active.indices, using: &random)
            let stretch = active[index]
            let most = min(stretch.byteCount, [500, 5_000, 40_000, 150_000].randomElement(using: &random) ?? 1)
            let end = stretch.lowerBound + .random(in: 1...most, using: &random)
            try body.withUnsafeBytes {
                try part.write(UnsafeRawBufferPointer(rebasing: $0[Int(stretch.lowerBound)..<Int(end)]), at: stretch.lowerBound)
            }
            note(part.written)
            active[index] = end..<stretch.upperBound
            if active[index].isEmpty {
                active.remove(at: index)
            } else if Int.random(in: 0..<12, using: &random) == 0 {
                waiting.append(active.remove(at: index))  // the connection broke
            }
            if Int.random(in: 0..<15, using: &random) == 0 { try checkpoint() }
        }
    }

    /// The next stretch for an idle connection: one that no connection fetches, else the back half of the largest remainder.
    private mutating func next(_ waiting: inout [Range<ByteCount>], _ active: inout [Range<ByteCount>]) -> Range<ByteCount>? {
        if !waiting.isEmpty { return waiting.remove(at: .random(in: waiting.indices, using: &random)) }
        guard let largest = active.indices.max(by: { active[$0].byteCount < active[$1].byteCount }), active[largest].byteCount > 2_000
        else {
            return nil
        }
        let (start, end) = (active[largest].lowerBound, active[largest].upperBound)
        let middle = start + (end - start) / 2
        active[largest] = start..<middle
        return middle..<end
    }

    private func note(_ count: ByteCount) {
        var bytes = Array("\(count)".utf8)
        bytes += [UInt8](repeating: UInt8(ascii: " "), count: 20 - bytes.count)
        guard pwrite(progress, bytes, bytes.count, 0) == bytes.count else { fail("progress cannot be noted") }
    }
}

@main enum Program {
    static func main() {
        do {
            var writer = try SegmentWriter(Array(CommandLine.arguments.dropFirst()))
            try writer.run()
        } catch {
            fail("\(error)")
        }
    }
}
