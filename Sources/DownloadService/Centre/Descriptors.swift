internal import DBus
internal import DownloadModel
internal import EventLoop
internal import PartFiles
internal import Scheduling
internal import TransferEngine

/// Descriptors of callers that downloads write into: which download has which, and how many a caller makes us hold. Closed when nothing
/// reads or writes them any more.
@BusActor final class Descriptors {
    private struct Held {
        let descriptor: HeldDescriptor
        let holder: String
    }

    private var held: [DownloadNumber: Held] = [:]
    /// Counted from a call's arrival on.
    private var counts: [String: Int] = [:]
    private var total = 0 { didSet { hold.isHeld = isHolding } }
    private let hold: Residence.Hold

    /// - Parameter hold: held while a descriptor is.
    init(hold: Residence.Hold) { self.hold = hold }

    /// Whether any is held: what is to be written into it ends with this process.
    var isHolding: Bool { total > 0 }

    subscript(_ number: DownloadNumber) -> HeldDescriptor? { held[number]?.descriptor }

    /// Who is answerable for a call's descriptor: the connection; an app in a sandbox may have many, and is one.
    static func holder(of call: PendingCall) -> String { call.caller.app.map { "app \($0)" } ?? call.sender }

    /// Counts one more for `holder`.
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

    /// Gives back what `reserve` counted.
    func release(for holder: String) {
        total -= 1
        if let count = counts[holder] { counts[holder] = count > 1 ? count - 1 : nil }
    }

    /// - Throws: `LimitExceeded` where `descriptor` is of a file in memory, and `holder` or all callers have as many of those as they may.
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

    /// Holds the descriptor of a new download, which is counted already.
    func hold(_ descriptor: HeldDescriptor, for number: DownloadNumber, holder: String) {
        held[number] = Held(descriptor: descriptor, holder: holder)
    }

    /// Lets those go that nobody needs any more.
    func letGo(where isDone: (DownloadNumber) -> Bool) {
        for (number, entry) in held where isDone(number) {
            held[number] = nil
            release(for: entry.holder)
        }
    }
}

extension Downloader {
    /// Verifies what was written into the descriptor of `entry`.
    func verifyDescriptor(_ entry: LedgerEntry) {
        let record = entry.record
        guard let held = descriptors[entry.number] else { return decide(.descriptorLost(entry)) }
        DiskPool.shared.perform(at: .descriptor(held.number), takesLong: true) {
            CrashMarks.working(on: record.number.value) {
                Commit.verify(held, size: record.received, checksum: record.options.checksum, expectedSize: record.options.size)
            }
        } then: { [self] in
            verified(entry, $0)
        }
    }

    /// Makes the file empty that a download has not come to an end with.
    func emptyDescriptor(_ number: DownloadNumber) {
        let held = descriptors[number]
        DiskPool.shared.perform(at: .descriptor(held?.number ?? -1)) {
            held?.empty()
        } then: { [self] in
            decide(.swept(number, isGone: true))
            glance(number)?.rewind()
        }
    }
}
