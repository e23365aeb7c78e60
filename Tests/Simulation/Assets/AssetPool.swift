// SPDX-License-Identifier: Apache-2.0
import Assets
import DownloadModel
import Scheduling

/// What the pool does for assets, by the contracts of `AssetFiles` and of the room `Extraction`.
extension AssetHost {
    private static let (damaged, full) = (
        DownloadFailure(.extraction, "The archive is damaged."), DownloadFailure(.diskFull, "full", wait: .diskSpace)
    )
    private static let unpacked = FolderSize(entries: 1, bytes: 1000)
    private static let gone = DownloadFailure(.permissionDenied, "gone", wait: .destination)

    private var isThere: Bool { world.disk.isFolderThere }

    func change(_ site: AssetSite, _ body: (inout AssetDirectory) -> Void) {
        body(&machine.directories[site.directory, default: AssetDirectory()])
    }

    func directory(_ site: AssetSite) -> AssetDirectory { machine.directories[site.directory] ?? AssetDirectory() }

    func perform(_ work: AssetWork, _ b: Int) {
        tell("the pool: \(work.word)")
        switch work {
        case .prepare(let record, let call): prepare(record, call)
        case .look(let site, let ticket, let isBackground): look(site, ticket, isBackground: isBackground)
        case .read(let site, let ticket, let manifest, let signature): read(site, ticket, manifest, signature)
        case .space(let site, let ticket):
            if b % 23 == 7 { return decide(.spaceRefused(site.key, ticket, DownloadFailure(.alreadyExists, "another’s folder"))) }
            decide(.spaceChecked(site.key, ticket, missing: world.disk.isFull || b % 19 == 3 ? 10 : 0))
        case .extract(let site, let folder, let manifest): extract(site, folder, manifest, b)
        case .named(let site, let folder): decide(.extracted(site.key, folder: folder, .whole(Self.unpacked)))
        case .switchLink(let site, let folder): switchLink(site, folder, b)
        case .linked(let site, _, _, _, _): decide(.switched(site.key, nil))
        case .remove(let site, let removal, let phase, _): remove(site, removal, phase, b)
        case .deleteData(let site, let folders, let phase, _): deleteData(site, folders, phase, b)
        case .callOwner(let key): decide(.ownerCalled(key, b % 3 != 0))
        case .deleteManifests(let names):
            for name in names { world.disk.finals["\(AssetMachine.manifests)/\(name)"] = nil }
        }
    }

    private func prepare(_ record: AssetRecord, _ call: AssetUpdater.CallNumber) {
        guard isThere else { return answered(call, .refused(Refusal(.permissionDenied, "gone"))) }
        let found = machine.directories[record.directory]?.link
        ask(call) { .register(record, found: found, call) }
    }

    // MARK: The manifest

    private func look(_ site: AssetSite, _ ticket: AssetUpdater.Ticket, isBackground: Bool) {
        if isThere, plant != .blind, let folder = updater[site.key]?.record.installed?.folder {
            let directory = directory(site)
            let isWhole = directory.versions[folder] != nil
            if !isWhole || directory.link != folder { decide(.versionLost(site.key, folder: folder, isFolderThere: isWhole)) }
        }
        fetch(site.key, ticket, isBackground: isBackground)
    }

    private func read(_ site: AssetSite, _ ticket: AssetUpdater.Ticket, _ manifest: String, _ signature: String?) {
        let version = world.disk.finals[manifest]?.content.version
        guard let version, version > 0, machine.publications[site.key]?.isWrong == false else {
            return decide(.manifestFailed(site.key, ticket, DownloadFailure(.manifest, "The manifest cannot be used.")))
        }
        if let signature, world.disk.finals[signature]?.content.version != version {
            return decide(.manifestFailed(site.key, ticket, DownloadFailure(.signature, "The signature is another’s.")))
        }
        let isNews = updater[site.key]?.activity == .checking(ticket)
        decide(.manifestFetched(site.key, ticket, AssetMachine.manifest(site.key, version)))
        if isNews { succeeded(site.key) }
    }

    // MARK: Extraction

    private func extract(_ site: AssetSite, _ folder: String, _ manifest: AssetManifest, _ b: Int) {
        let path = site.archive(of: folder)
        func end(_ end: AssetUpdater.ExtractionEnd) { decide(.extracted(site.key, folder: folder, end)) }
        if stopping.remove("\(site.directory)/\(folder)") != nil { return end(.cancelled) }
        guard isThere else { return end(.failed(Self.gone)) }
        guard let archive = world.disk.finals[path] else { return end(.archiveLost) }
        if directory(site).versions[folder] != nil, directory(site).journals.contains(folder) { return end(.whole(Self.unpacked)) }
        guard archive.content.version == Int(manifest.version) else {
            if machine.touched.remove(path) == nil {
                fail("version \(archive.content.version as Any) is unpacked as version \(manifest.version) of \(site.key)")
            }
            // Its digest tells that somebody has written into it.
            world.disk.finals[path] = nil
            change(site) { $0.unfinished[folder] = nil }
            return end(.archiveLost)
        }
        if archive.durable < archive.content.length { fail("\(path) is unpacked, and is not on disk") }
        if world.disk.isFull { return end(.failed(Self.full)) }
        // The process that unpacks was killed; the archive has what is refused.
        if b % 13 == 5 { return end(.failed(DownloadFailure(.extraction, "stopped"))) }
        if b % 17 == 3 {
            change(site) { $0.unfinished[folder] = nil }
            return end(.unusable(Self.damaged))
        }
        var unfinished = AssetDirectory.Unfinished(archive: archive.inode)
        if let old = directory(site).unfinished[folder], old.archive == archive.inode { unfinished = old }
        unfinished.halves += 1
        if b % 2 == 0 { unfinished.durable = unfinished.halves }
        guard unfinished.halves >= 2 else {
            change(site) { $0.unfinished[folder] = unfinished }
            return add(.extract(site, folder: folder, manifest))
        }
        if directory(site).versions[folder] != nil { fail("\(folder) is unpacked over a folder of this name") }
        change(site) { directory in
            directory.unfinished[folder] = nil
            directory.versions[folder] = Int(manifest.version)
            directory.journals.insert(folder)
            if plant == .loose { directory.loose.insert(folder) }
        }
        add(.named(site, folder: folder))
    }

    // MARK: The switch

    private func switchLink(_ site: AssetSite, _ folder: String, _ b: Int) {
        let key = site.key
        guard isThere else { return decide(.switched(key, Self.gone)) }
        guard directory(site).versions[folder] != nil else {
            if !directory(site).deleted.contains(folder) { fail("the link is to lead to \(folder), which is not there") }
            return decide(.versionLost(key, folder: folder, isFolderThere: false))
        }
        let failure = DownloadFailure(.writeFailed, "EIO")
        // The disk fails before the rename, or after it: then the link leads back to the installed version, if there is one.
        if b % 11 == 5 {
            // An earlier process may have made the link, and lost the power before that was saved.
            let isInstalled = updater[key]?.record.installed?.folder == folder
            change(site) { directory in if directory.link == folder, !isInstalled { directory.isUntold = true } }
            return decide(.switched(key, failure))
        }
        let former = directory(site)
        change(site) { directory in
            if directory.link != folder { directory.held = directory.isUntold ? nil : directory.link }
            (directory.link, directory.isBroken, directory.isUntold) = (folder, false, false)
        }
        if b % 29 == 7 {
            if let installed = updater[key]?.record.installed?.folder, former.versions[installed] != nil {
                change(site) { ($0.link, $0.held, $0.isBroken) = (installed, former.held, false) }
            } else {
                change(site) { $0.isUntold = true }
            }
            return decide(.switched(key, failure))
        }
        add(.linked(site, folder: folder, was: former.link, held: former.held, wasBroken: former.isBroken))
    }

    // MARK: Deletions

    /// Deletes the archive, what an extraction has left, and the folder: one after the other.
    private func remove(_ site: AssetSite, _ removal: AssetRemoval, _ phase: Int, _ b: Int) {
        let (key, folder, record) = (site.key, removal.folder, updater[site.key]?.record)
        func end(_ isGone: Bool) { decide(.removed(key, removal, isGone: isGone)) }
        guard isThere else {
            let isLeftAlone = record.map { $0.isLeaving && !$0.deletesData } ?? true
            if isLeftAlone { change(site) { $0.isLeftAlone = true } }
            return end(isLeftAlone)
        }
        if b % 17 == 9 { return end(false) }
        func next(_ undo: AssetWork.Undo?) { add(.remove(site, removal, phase: phase + 1, undo)) }
        switch phase {
        case 0: next(world.disk.finals.removeValue(forKey: site.archive(of: folder)).map { .archive(site.archive(of: folder), $0) })
        case 1:
            let unfinished = directory(site).unfinished[folder]
            change(site) { directory in
                directory.unfinished[folder] = nil
                directory.journals.remove(folder)
            }
            next(unfinished.map { .unfinished(folder, $0) })
        case 2 where removal.keepsFolder: end(true)
        case 2:
            // Never the folder that the link leads to.
            if directory(site).link == folder, plant != .ruthless { return end(false) }
            let version = directory(site).versions[folder]
            change(site) { $0.versions[folder] = nil }
            next(version.map { .version(folder, $0) })
        default: end(true)
        }
    }

    /// Deletes the link, and then the folders one after the other.
    private func deleteData(_ site: AssetSite, _ folders: [String], _ phase: Int, _ b: Int) {
        let failure = DownloadFailure(.writeFailed, "cannot be deleted")
        guard isThere else {
            if phase == 0, folders.isEmpty { return decide(.dataDeleted(site.key, nil)) }
            return decide(.dataDeleted(site.key, failure, isUntouched: phase == 0))
        }
        if b % 13 == 9 { return decide(.dataDeleted(site.key, failure, isUntouched: phase == 0)) }
        func next(_ undo: AssetWork.Undo?) { add(.deleteData(site, folders, phase: phase + 1, undo)) }
        guard phase > 0 else {
            guard let link = directory(site).link, folders.contains(link) else { return next(nil) }
            change(site) { ($0.link, $0.held) = (nil, nil) }
            return next(.link(link))
        }
        guard phase <= folders.count else { return decide(.dataDeleted(site.key, nil)) }
        let folder = folders[phase - 1]
        world.disk.finals[site.archive(of: folder)] = nil
        change(site) { directory in
            directory.unfinished[folder] = nil
            directory.journals.remove(folder)
        }
        // A link that somebody has made since.
        guard directory(site).link != folder else { return decide(.dataDeleted(site.key, failure)) }
        let version = directory(site).versions[folder]
        change(site) { $0.versions[folder] = nil }
        next(version.map { .version(folder, $0) })
    }
}

extension AssetWork {
    fileprivate var word: String {
        switch self {
        case .prepare(let record, _): "looks at the directory of \(record.key)"
        case .look(let site, _, _): "looks for the installed version of \(site.key)"
        case .read(let site, _, _, _): "reads the manifest of \(site.key)"
        case .space(let site, _): "looks for room for \(site.key)"
        case .extract(let site, let folder, _): "unpacks \(folder) of \(site.key)"
        case .named(let site, let folder): "has unpacked \(folder) of \(site.key)"
        case .switchLink(let site, let folder): "switches \(site.key) to \(folder)"
        case .linked(let site, let folder, _, _, _): "has switched \(site.key) to \(folder)"
        case .remove(let site, let removal, let phase, _):
            "deletes \(removal.folder) of \(site.key)\(removal.keepsFolder ? " but its folder" : ""), step \(phase)"
        case .deleteData(let site, let folders, let phase, _): "deletes \(folders) of \(site.key), step \(phase)"
        case .callOwner(let key): "calls the owner of \(key)"
        case .deleteManifests(let names): "deletes the manifests \(names)"
        }
    }
}
