internal import DBus
internal import DownloadModel
internal import EventLoop
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// The callers' descriptors that downloads write into, by download, and their number for each caller. A descriptor is closed when it is no
/// longer in use.
@BusActor final class Descriptors {
    private struct Held {
        let descriptor: HeldDescriptor
        let holder: String
    }

    private var held: [DownloadNumber: Held] = [:]
    /// The descriptors of each holder, counted from the arrival of the call.
    private var counts: [String: Int] = [:]
    private var total = 0 { didSet { hold.isHeld = isHolding } }
    private let hold: IdleExit.Hold

    /// - Parameter hold: held while any descriptor is counted.
    init(hold: IdleExit.Hold) { self.hold = hold }

    /// Whether any descriptor is counted. A download into a descriptor cannot outlive this process.
    var isHolding: Bool { total > 0 }

    subscript(_ number: DownloadNumber) -> HeldDescriptor? { held[number]?.descriptor }

    /// Counts one more descriptor of `holder`.
    ///
    /// - Throws: `LimitExceeded` if `holder`, or all holders together, have as many as they may.
    func reserve(for holder: String) throws(Refusal) {
        guard counts[holder, default: 0] < Limits.descriptorsPerCaller else {
            throw Refusal(.limitExceeded, "At most \(Limits.descriptorsPerCaller) descriptors of one caller may be written at a time.")
        }
        guard total < Limits.descriptors else {
            throw Refusal(.limitExceeded, "At most \(Limits.descriptors) descriptors may be written at a time.")
        }
        counts[holder, default: 0] += 1
        total += 1
    }

    /// Undoes one `reserve`.
    func release(for holder: String) {
        total -= 1
        if let count = counts[holder] { counts[holder] = count > 1 ? count - 1 : nil }
    }

    /// - Throws: `LimitExceeded` if `descriptor` is of a memory file, and `holder`, or all holders together, have as many memory files as
    ///   they may.
    func checkMemory(_ descriptor: HeldDescriptor, for holder: String) throws(Refusal) {
        guard descriptor.isInMemory else { return }
        let inMemory = held.values.filter(\.descriptor.isInMemory)
        guard inMemory.count(where: { $0.holder == holder }) < Limits.memoryDescriptorsPerCaller, inMemory.count < Limits.memoryDescriptors
        else {
            throw Refusal(
                .limitExceeded,
                """
                At most \(Limits.memoryDescriptorsPerCaller) files in memory of one caller, and \(Limits.memoryDescriptors) in all, may be written \
                at a time; wait for one to end, or give a file on a disk.
                """)
        }
    }

    /// Holds the descriptor of a new download. `reserve` has counted the descriptor already.
    func hold(_ descriptor: HeldDescriptor, for number: DownloadNumber, holder: String) {
        held[number] = Held(descriptor: descriptor, holder: holder)
    }

    /// Releases the descriptors of the downloads that are done.
    func release(where isDone: (DownloadNumber) -> Bool) {
        for (number, entry) in held where isDone(number) {
            held[number] = nil
            release(for: entry.holder)
        }
    }
}

extension Downloader {
    /// Verifies the bytes written into the descriptor of `entry`.
    func verifyDescriptor(_ entry: ScheduledDownload) {
        let record = entry.record
        guard let held = descriptors[entry.number] else { return decide(.descriptorLost(entry)) }
        DiskPool.shared.perform(at: .descriptor(held.number), takesLong: true) {
            CrashMarks.working(on: record.number.value) {
                Commit.verify(
                    held, size: record.received, checksum: record.options.checksum, digest: record.statedDigest,
                    expectedSize: record.options.size)
            }
        } then: { [self] in
            verified(entry, $0)
        }
    }

    /// Truncates the caller's file after an unfinished download.
    func emptyDescriptor(_ number: DownloadNumber) {
        let held = descriptors[number]
        DiskPool.shared.perform(at: .descriptor(held?.number ?? -1)) {
            held?.empty()
        } then: { [self] in
            decide(.swept(number, directory: "", isGone: true))
            list.peek(number)?.rewind()
        }
    }
}
