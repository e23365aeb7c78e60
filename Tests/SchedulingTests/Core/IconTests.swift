internal import DownloadModel
internal import Scheduling
internal import Testing

/// A desk at which all downloads start at once.
private func makeDesk() -> Desk { Desk { ($0.maxActive, $0.maxPerHost) = (0, 0) } }

extension Desk {
    @discardableResult
    fileprivate func add(size: ByteCount? = nil, id: String? = nil, showsProgress: Bool = true) -> ScheduledDownload {
        add(UInt64(scheduler.entries.count + 1)) {
            $0.options.size = size
            $0.options.desktopID = id.flatMap { DesktopID($0) }
            $0.options.showProgress = showsProgress
        }
    }

    fileprivate func receive(_ entry: ScheduledDownload, _ bytes: ByteCount, of total: ByteCount?) {
        began(entry, total: total)
        let identity = FileIdentity(device: 1, inode: entry.number.value, mount: 1, boot: "b")
        checkpoint(entry, ResumeData(written: bytes, total: total, validator: nil, identity: identity))
    }

    fileprivate func fail(_ entry: ScheduledDownload) {
        fails(entry, DownloadFailure(.httpStatus, "404", httpStatus: 404), entry.record.resume)
    }

    fileprivate func icon(_ id: String? = nil) -> ProgressTally? { scheduler.icons[id.flatMap { DesktopID($0) }] }
}

@Suite struct `An icon's downloads` {
    @Test func `are grouped by desktop entry, without hidden ones, and forgotten with the last`() throws {
        let desk = makeDesk()
        #expect(desk.scheduler.icons.isEmpty)
        let ours = desk.add()
        let other = desk.add(id: "org.example.App")
        desk.add(id: "org.example.App")
        let hidden = desk.add(showsProgress: false)
        #expect(desk.icon()?.remaining == 1)
        #expect(desk.icon("org.example.App")?.remaining == 2)
        #expect(desk.scheduler.icons.count == 2)
        try desk.steer(ours, .pause)
        #expect(desk.icon()?.remaining == 1, "a paused one remains")
        try desk.steer(ours, .cancel)
        #expect(desk.icon() == nil)
        desk.fail(other)
        #expect(desk.icon("org.example.App")?.remaining == 1)
        desk.fail(hidden)
        #expect(desk.scheduler.icons.count == 1)
    }

    @Test func `say which app in a sandbox has named the icon, until the last one has ended`() throws {
        let desk = makeDesk()
        let icon = try #require(DesktopID("org.example.App.Tool"))
        let first = desk.add(id: icon.name)
        #expect(desk.scheduler.sandboxedApp(naming: icon) == nil)
        let sandboxed = desk.add(2) {
            ($0.options.app, $0.options.isSandboxed) = ("org.example.App", true)
            $0.options.desktopID = icon
        }
        #expect(desk.scheduler.sandboxedApp(naming: icon) == "org.example.App")
        try desk.steer(sandboxed, .cancel)
        try desk.steer(first, .cancel)
        #expect(desk.scheduler.sandboxedApp(naming: icon) == nil)
        desk.add(id: icon.name)
        #expect(desk.scheduler.sandboxedApp(naming: icon) == nil)
    }

    @Test func `are measured by bytes if all sizes are known, and progress stays when one ends`() throws {
        let desk = makeDesk()
        let (a, b) = (desk.add(size: 300), desk.add(size: 100))
        #expect(desk.icon()?.fractionOfBytes == 0)
        desk.receive(a, 150, of: 300)
        desk.receive(b, 50, of: 100)
        #expect(desk.icon()?.fractionOfBytes == 0.5)
        #expect(desk.icon()?.bytes.received == 200 && desk.icon()?.bytes.total == 400)
        // The progress of a failed download stays as it is.
        desk.fail(a)
        #expect(desk.icon()?.bytes.received == 200 && desk.icon()?.bytes.total == 250)
        #expect(desk.icon()?.remaining == 1 && desk.icon()?.ended == 1)
        try desk.steer(a, .retry)
        #expect(desk.icon()?.remaining == 2 && desk.icon()?.ended == 0)
        #expect(desk.icon()?.fractionOfBytes == Double(a.record.received + 50) / 400)
        try desk.steer(a, .cancel)
        #expect(desk.icon()?.fractionOfBytes == 0.5, "what was cancelled is as if it had never been asked for")
    }

    @Test func `are measured by downloads if a size is unknown, but a single such download has no progress`() {
        let desk = makeDesk()
        let a = desk.add()
        #expect(desk.icon()?.fractionOfBytes == nil && desk.icon()?.fractionOfDownloads == nil)
        desk.receive(a, 25, of: 100)
        #expect(desk.icon()?.fractionOfBytes == 0.25 && desk.icon()?.fractionOfDownloads == 0.25)
        let b = desk.add()
        #expect(desk.icon()?.fractionOfBytes == nil && desk.icon()?.fractionOfDownloads == 0.125)
        desk.receive(b, 7, of: nil)
        #expect(desk.icon()?.fractionOfDownloads == 0.125)
        desk.fail(b)
        #expect(desk.icon()?.fractionOfDownloads == 0.625)
    }

    @Test func `include live progress, and any sizes that a server announces`() {
        let desk = makeDesk()
        let (a, b) = (desk.add(), desk.add())
        desk.receive(a, 10, of: 100)
        desk.receive(b, 0, of: .max)
        var tally = desk.icon() ?? ProgressTally()
        tally.take(received: 50, of: a.record)
        #expect(tally.bytes.received == 50 && tally.bytes.total == nil && tally.fractionOfDownloads == 0.25)
        #expect(desk.icon()?.bytes.received == 10)
        tally.take(received: .max, of: b.record)
        #expect((tally.fractionOfBytes ?? 2) <= 1)
        let twice = tally + tally
        #expect(twice.remaining == 4 && twice.fractionOfDownloads == tally.fractionOfDownloads)
    }

    @Test func `of a batch are its members, and a batch rests when all of them do`() throws {
        let desk = makeDesk()
        let (batch, entries) = desk.addUnsavedBatch(1, 3)
        desk.saved(batch, entries)
        #expect(batch.progress.remaining == 3 && batch.progress == desk.icon())
        desk.receive(entries[0], 50, of: 100)
        #expect(batch.progress.fractionOfDownloads == 0.5 / 3)
        try desk.steer(entries[0], .cancel)
        #expect(batch.progress.remaining == 2 && batch.counts.resting == 0)
        desk.steer(batch, .pause)
        #expect(batch.counts.resting == 2)
        desk.steer(batch, .resume)
        #expect(batch.counts.resting == 0)
        desk.steer(batch, .cancel)
        #expect(batch.progress == ProgressTally() && batch.counts.resting == 0 && desk.scheduler.icons.isEmpty)
    }
}
