internal import DBus
internal import Desktop
internal import DownloadModel
internal import DownloadStore
internal import DownloaderInterface
internal import EventLoop

/// Examines the folders of downloads and of the state, and the database. All of it blocks on disks, so it runs on threads for them.
@BusActor struct FolderExamination {
    /// A large database takes some seconds to check.
    private static let databasePatience: Duration = .seconds(20)

    private let environment: [String: String]
    private let running: RunningService
    private let state: String
    private let assetFolders: AssetFolders
    /// The download folder of an environment. Blocks.
    private let downloads: @Sendable ([String: String]) -> String

    /// - Parameters:
    ///   - environment: of this session; the service's own counts if it is known.
    ///   - downloads: tests replace it, to simulate a hanging disk.
    init(
        _ environment: [String: String], _ running: RunningService,
        downloads: @escaping @Sendable ([String: String]) -> String = { Folders.downloads(environment: $0) }
    ) {
        let own = running.environment ?? environment
        (self.environment, self.running, state) = (own, running, "\(Folders.state(environment: own))/todoku")
        self.downloads = downloads
        assetFolders = AssetFolders(dataHome: Folders.data(environment: own), state: state)
    }

    func findings() async -> [Finding] {
        let state = state
        let store = await Pool.programs.value(within: Self.databasePatience) { Store.examine(folder: state) }
        var findings = [await downloadFolder(store), await stateFolder(state)]
        findings.append(contentsOf: await disks(store))
        findings.append(contentsOf: database(store))
        return findings
    }

    /// - Parameter allowsHidden: whether a download may go through a hidden folder.
    private func report(_ folder: String, allowsHidden: Bool) async -> FolderReport? {
        await DiskPool.shared.value(at: .path(folder), within: BusProbe.patience) {
            FolderReport(folder, allowsHidden: allowsHidden)
        }
    }

    // MARK: The download folder

    private func downloadFolder(_ store: StoreExamination?) async -> Finding {
        var folder = running.properties[Manager.defaultDirectory.name]?.string ?? store?.defaultDirectory ?? ""
        if folder.isEmpty {
            let (environment, downloads, place) = (environment, downloads, Folders.configuration(environment))
            let found = await DiskPool.shared.value(at: .path(place), within: BusProbe.patience) { downloads(environment) }
            guard let found else { return silent(.downloadFolder, place) }
            folder = found
        }
        guard let report = await report(folder, allowsHidden: running.allowsHiddenFolders) else { return silent(.downloadFolder, folder) }
        switch report.refusal {
        case nil: break
        case .some where report.isAbsent && report.canBeMade:
            return Finding(.downloadFolder, .found, Phrase("\(folder) does not exist yet; the first download makes it"))
        case .some(let reason):
            let advice = Phrase("Mend that, or set another folder: todoku settings default-directory FOLDER.")
            return Finding(.downloadFolder, .wrong, Phrase(foreign: reason), advice: advice)
        }
        let reserve = running.properties[Manager.diskReserve.name]?.int64.flatMap(DiskReserve.init(wire:)) ?? store?.diskReserve
        let kept = (reserve ?? .automatic).bytes(ofDisk: report.total)
        let room = Phrase("\(HumanText.size(report.free)) free of \(HumanText.size(report.total)) (\(report.fileSystem))")
        guard report.free > kept else {
            return Finding(
                .downloadFolder, .wrong, Phrase("\(folder) has \(room), and \(HumanText.size(kept)) are to stay free, so downloads wait"),
                advice: Phrase("Make room on this disk, or lower the reserve: todoku settings disk-reserve SIZE."))
        }
        return Finding(
            .downloadFolder, .found, report.note.map { Phrase("\(folder) has \(room); \($0)") } ?? Phrase("\(folder) has \(room)"))
    }

    private func silent(_ subject: Finding.Subject, _ folder: String) -> Finding {
        Finding(
            subject, .wrong, Phrase("the disk of \(folder) has not answered for \(BusProbe.patience.components.seconds) seconds"),
            advice: Phrase("Check this disk, or the server that shares it."))
    }

    // MARK: The state

    private func stateFolder(_ folder: String) async -> Finding {
        let found = await DiskPool.shared.value(at: .path(folder), within: BusProbe.patience) { StateReport(folder) }
        guard let report = found else { return silent(.stateFolder, folder) }
        if let fault = report.fault {
            return Finding(
                .stateFolder, .wrong, Phrase("the queue cannot be kept in \(folder): \(fault)"),
                advice: Phrase("Give yourself the folder: mode 0700, and you as its owner."))
        }
        return Finding(
            .stateFolder, .found,
            report.isAbsent ? Phrase("\(folder) does not exist yet; the first start makes it") : Phrase("\(folder) can be written"))
    }

    // MARK: The disks of unfinished downloads

    private func disks(_ store: StoreExamination?) async -> [Finding] {
        var findings: [Finding] = []
        for (folder, count) in (store?.folders ?? [:]).sorted(by: { $0.key < $1.key }) {
            let need = count == 1 ? Phrase("one unfinished download needs it") : Phrase("\(count) unfinished downloads need it")
            // The downloads of assets go to folders that the service has chosen, and that are hidden as a rule.
            let allowsHidden = running.allowsHiddenFolders || assetFolders.contains(folder)
            guard let report = await report(folder, allowsHidden: allowsHidden) else {
                findings.append(silent(.disk, folder))
                continue
            }
            guard let reason = report.refusal else {
                let room = Phrase("\(HumanText.size(report.free)) free (\(report.fileSystem))")
                findings.append(Finding(.disk, .found, Phrase("\(folder) has \(room); \(need)")))
                continue
            }
            let advice =
                report.isAbsent
                ? Phrase("Plug the disk in, or make the folder again; the downloads resume by themselves.")
                : Phrase("Make the folder writable again.")
            findings.append(
                Finding(.disk, report.isAbsent ? .missing : .wrong, Phrase("\(Phrase(foreign: reason)); \(need)"), advice: advice))
        }
        return findings
    }

    // MARK: The database

    private func database(_ store: StoreExamination?) -> [Finding] {
        guard let store else {
            let text = Phrase("the database has not answered for \(Self.databasePatience.components.seconds) seconds")
            return [Finding(.database, .wrong, text, advice: Phrase("Check the disk of your home folder."))]
        }
        var findings = [finding(of: store)]
        for path in store.setAside {
            let text = Phrase("a damaged database was set aside as \(path), so downloads may be missing")
            let advice = Phrase("Copy the file if you want to examine it: it is deleted after a day.")
            findings.append(Finding(.database, .missing, text, advice: advice))
        }
        return findings
    }

    private func finding(of store: StoreExamination) -> Finding {
        switch store.condition {
        case .absent: return Finding(.database, .found, Phrase("there is no database yet; the first download makes \(store.path)"))
        case .good:
            let size = Phrase("\(HumanText.size(store.size)) and a log of \(HumanText.size(store.logSize))")
            let counts = Phrase("\(store.downloads) downloads, \(store.unfinished) of them unfinished")
            let found = Phrase("\(store.path), version \(store.version), has \(size), and \(counts)")
            guard store.version < store.ownVersion else { return Finding(.database, .found, found) }
            return Finding(.database, .found, Phrase("\(found); the next start brings it to version \(store.ownVersion)"))
        case .damaged(let reason):
            let advice = Phrase("Start Todoku: it sets the file aside, and saves all downloads that can be read.")
            return Finding(.database, .wrong, Phrase("\(store.path) is damaged: \(Phrase(foreign: reason))"), advice: advice)
        case .newer:
            return Finding(
                .database, .wrong,
                Phrase("\(store.path) is of a newer Todoku: version \(store.version), and this one reads \(store.ownVersion)"),
                advice: Phrase("Update Todoku, or start with an empty queue: todoku reset."))
        case .unreadable(let reason):
            let advice = Phrase("Check who owns the file, and whether its disk is in order.")
            return Finding(.database, .wrong, Phrase("\(store.path) cannot be read: \(Phrase(foreign: reason))"), advice: advice)
        }
    }
}
