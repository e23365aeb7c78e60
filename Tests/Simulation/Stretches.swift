// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// A part of a file, behind missing bytes.
struct Stretch {
    var range: Range<ByteCount>
    var version: Int
}

/// A part file that several connections write. `content` are its bytes up to the first missing one.
extension File {
    /// The bytes that were written.
    var ranges: ByteRanges {
        var ranges = ByteRanges(prefix: content.length)
        for island in islands { ranges.insert(island.range) }
        return ranges
    }

    private var size: ByteCount { islands.last?.range.upperBound ?? content.length }

    /// All written bytes, in ascending order.
    private var stretches: [Stretch] {
        var (all, start): ([Stretch], ByteCount) = ([], 0)
        for (version, end) in content.stretches {
            all.append(Stretch(range: start..<end, version: version))
            start = end
        }
        return all + islands
    }

    /// The first missing bytes are written, and those behind the islands that they meet, until `bytes` more are there without a gap.
    mutating func grow(by bytes: ByteCount, upTo total: ByteCount, _ version: Int, from source: Int) {
        let end = min(total, content.length + bytes)
        while content.length < end {
            makers.insert(source)
            content.append(version, upTo: min(end, islands.first?.range.lowerBound ?? end))
            join()
        }
    }

    /// A further request writes its bytes. Those that are there already stay.
    mutating func write(_ range: Range<ByteCount>, _ version: Int, from source: Int) {
        let missing = ranges.gaps(in: range)
        if !missing.isEmpty { makers.insert(source) }
        set(stretches + missing.map { Stretch(range: $0, version: version) })
    }

    mutating func flush() { (durable, safe) = (content.length, ranges) }

    /// What a transfer does not resume from is written again. What it resumes from and is not there reads as zeros.
    ///
    /// - Returns: whether all of `claims` is there.
    mutating func believe(_ claims: ByteRanges) -> Bool {
        let holes = claims.ranges.flatMap { ranges.gaps(in: $0) }
        let believed = stretches.flatMap { stretch in
            claims.intersection(ByteRanges([stretch.range])).ranges.map { Stretch(range: $0, version: stretch.version) }
        }
        set(believed + holes.map { Stretch(range: $0, version: 0) })
        safe = safe.intersection(claims)
        return holes.isEmpty
    }

    /// Of each unflushed part, a power cut leaves the bytes, zeros, or nothing.
    mutating func losePower(_ random: inout Random) {
        var left: [Stretch] = []
        for stretch in stretches {
            let durable = safe.intersection(ByteRanges([stretch.range]))
            left += durable.ranges.map { Stretch(range: $0, version: stretch.version) }
            for loose in durable.gaps(in: stretch.range) {
                switch random.below(3) {
                case 0: left.append(Stretch(range: loose, version: stretch.version))
                case 1: left.append(Stretch(range: loose, version: 0))
                default: break
                }
            }
        }
        set(left)
    }

    /// `claims` as far as the file is long: what lies behind its end does not count.
    func clipped(_ claims: ByteRanges) -> ByteRanges { claims.clipped(to: size) }

    private mutating func set(_ stretches: [Stretch]) {
        content = Content()
        islands = stretches.sorted { $0.range.lowerBound < $1.range.lowerBound }
        join()
    }

    /// Islands that no missing bytes precede any more belong to the content.
    private mutating func join() {
        while let first = islands.first, first.range.lowerBound <= content.length {
            content.append(first.version, upTo: first.range.upperBound)
            islands.removeFirst()
        }
    }
}

/// Transfers whose further requests bring stretches of the file, by the engine's contract (docs/mechanisms/part-files.md).
extension World {
    /// The bytes to resume from: those of the written map in the same boot, else those of the checkpoint.
    ///
    /// - Parameter mirror: the source that the transfer asks, as in `ResumeData`.
    func claims(_ entry: ScheduledDownload, at mirror: UInt32? = nil) -> ByteRanges? {
        let transfer = transfers[entry.number]
        guard let resume = transfer?.holds == true ? transfer?.begun : entry.record.resume, let file = disk.parts[entry.number],
            file.inode == resume.identity.inode,
            resume.validator != nil || entry.record.options.checksum != nil || plant == .trusting,
            resume.mirror == mirror || entry.record.mixesSources || plant == .blending
        else { return nil }
        return resume.identity.boot == "\(boot)" ? file.ranges : file.clipped(resume.ranges)
    }

    /// A transfer resumes from these bytes.
    ///
    /// - Returns: how many they are.
    func believe(_ claims: ByteRanges, of number: DownloadNumber) -> ByteCount {
        if disk.parts[number]?.believe(claims) == false { fail("\(number) resumes from \(claims), and not all of that is on disk") }
        return claims.byteCount
    }

    /// The step of a transfer's further requests by chance: more of them are answered than in other worlds.
    static let stretchSteps = [0, 1, 2, 3, 4, 4, 4, 5, 6, 7, 8]

    /// The source of one more request, and its origin: if nothing proves that bytes of several sources belong together, the source that the
    /// transfer asks.
    func furtherSource(_ entry: ScheduledDownload, _ transfer: Transfer, _ b: Int) -> (origin: String, source: Int) {
        let record = entry.record
        guard hasStretches, !record.mirrors.isEmpty else { return (origin(of: record), 0) }
        let known = record.knownSources
        let open = known.indices.filter { transfer.failures[$0] == nil && known[$0].left != .wrongBytes }
        let source = record.mixesSources && !open.isEmpty ? open[b % open.count] : transfer.source
        checkSource(entry, source)
        return ((try? DownloadURL(record.sourceURLs[source]).origin) ?? "", source)
    }

    /// The version of the file that the source of `request` sends.
    func sentVersion(by request: FurtherRequest, _ entry: ScheduledDownload) -> Int {
        version(resources[resource(of: entry.record)], at: request.source, for: entry.record)
    }

    /// A further request is answered: by a part of the file that the transfer fetches, or by something else.
    ///
    /// - Returns: false if the step is another one.
    func joins(_ entry: ScheduledDownload, _ transfer: Transfer, _ b: Int) -> Bool {
        let (number, record) = (entry.number, entry.record)
        guard let place = transfer.further.firstIndex(where: { $0.mayGo && $0.hasSent && $0.stretch == nil }),
            let stretch = freeStretch(number, transfer, b)
        else { return false }
        var request = transfer.further[place]
        let resource = resources[resource(of: record)]
        request.version = sentVersion(by: request, entry)
        // The validator is of the source that began the file. Bytes of another source join without it, under a checksum.
        let isOfHolder = (request.source == 0 ? nil : UInt32(request.source - 1)) == transfer.mirror
        let validator = resource.hasValidator ? Validator.entityTag("\"\(resource.version)\"") : nil
        let isProved = transfer.validator == nil ? record.options.checksum != nil : !isOfHolder || validator == transfer.validator
        guard [0, 1, 7].contains(mood(resource, at: request.source)), isProved else {
            leave(request, of: number, nil)
            return true
        }
        request.stretch = stretch
        transfers[number]?.further[place] = request
        tell("\(request.id) brings \(stretch) of \(number), version \(request.version)")
        if plant == .taciturn { return true }
        answers(request)
        decide(.joined(request.id))
        return true
    }

    /// The back half of missing bytes that no request brings; nil: there are none worth a request.
    private func freeStretch(_ number: DownloadNumber, _ transfer: Transfer, _ b: Int) -> Range<ByteCount>? {
        guard var claimed = disk.parts[number]?.ranges else { return nil }
        for request in transfer.further { if let stretch = request.stretch { claimed.insert(stretch) } }
        let gaps = claimed.gaps(in: 0..<transfer.total).filter { $0.byteCount > 1 }
        guard !gaps.isEmpty else { return nil }
        let gap = gaps[b % gaps.count]
        return gap.upperBound - gap.byteCount / 2..<gap.upperBound
    }

    /// A further request brings bytes of its stretch. With the last ones it is over.
    ///
    /// - Returns: false if no request has a stretch.
    func bringStretch(_ entry: ScheduledDownload, _ transfer: Transfer, _ b: Int) -> Bool {
        let number = entry.number
        let places = transfer.further.indices.filter { transfer.further[$0].stretch != nil && !transfer.further[$0].isStalled }
        guard !isEnding, !places.isEmpty else { return false }
        let request = transfer.further[places[b % places.count]]
        guard let stretch = request.stretch else { return false }
        if disk.isFull {
            lose(number, DownloadFailure(.diskFull, "full", wait: .diskSpace))
            return true
        }
        let end = min(stretch.upperBound, stretch.lowerBound + (1 + random.next() % 700) * max(1, transfer.total / 1000))
        disk.parts[number]?.write(stretch.lowerBound..<end, request.version, from: request.source)
        tell("\(request.id) has brought \(stretch.lowerBound)..<\(end) of \(number)")
        if end == stretch.upperBound {
            leave(request, of: number, nil)
        } else {
            transfers[number]?.further[places[b % places.count]].stretch = end..<stretch.upperBound
        }
        return true
    }
}
