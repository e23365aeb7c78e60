// SPDX-License-Identifier: Apache-2.0
import Assets
import DownloadModel
import Scheduling

/// The events of a step, in histories with assets.
extension AssetHost {
    /// A call of an application.
    func call(_ a: Int, _ b: Int) {
        if a / 4 % 6 == 0 { callersLeave(a / 24) }
        let key = AssetMachine.keys[a % AssetMachine.keys.count]
        let name = [
            "register", "register", "unregister", "check", "update", "update", "update", "update", "update", "updateAll", "rollback",
            "rollback", "cancel",
        ][b % 13]
        tell("call \(machine.lastCall + 1): \(name) \(key)")
        switch b % 13 {
        case 0, 1: register(key, b / 13)
        case 2: call { .unregister(key, deletesData: b / 13 % 2 == 0, $0) }
        case 3: call { .check(key, $0) }
        case 4...8:
            // An application registers its asset at each start.
            if updater[key] == nil { return register(key, b / 13) }
            call { .update(key, forces: b / 13 % 4 == 0, $0) }
        case 9: call { .updateAll(app: key.app, forces: b / 13 % 8 == 0, $0) }
        case 10, 11: call { .rollback(key, $0) }
        default: call { .cancel(key, $0) }
        }
    }

    private func register(_ key: AssetKey, _ b: Int) {
        var options = DownloadOptions()
        (options.app, options.allowsMetered) = (key.app, b % 3 != 0)
        options.priority = Int32(b / 2 % 2)
        options.retries = 1
        if b / 3 % 4 == 0 { options.activate = "org.example.App" }
        // Two assets may want one directory, and a later one may find the link of an earlier one.
        let directory = key == AssetMachine.keys[3] && b % 3 == 0 ? "/a/A/x" : "/a/\(key)"
        var record = AssetRecord(
            key: key, manifestURL: AssetMachine.manifestURL(key, isOther: b % 7 == 0), options: options, directory: directory)
        record.update = AssetUpdatePolicy.allCases[b / 5 % 3]
        if AssetMachine.index(key) == 1 || b % 11 == 0 { record.publicKey = [UInt8](repeating: 1, count: 32) }
        machine.lastCall += 1
        let call = AssetUpdater.CallNumber(machine.lastCall)
        machine.unanswered.insert(call)
        add(.prepare(record, call))
    }

    /// A publisher publishes, or a server has another mood.
    func publish(_ a: Int, _ b: Int) {
        let key = AssetMachine.keys[a % AssetMachine.keys.count]
        guard var publication = machine.publications[key] else { return }
        let manifest = AssetMachine.manifestResource(key)
        switch b % 8 {
        case 0...2:
            publication.highest += 1
            publication.version = publication.highest
        // An earlier version once more.
        case 3: publication.version = max(1, publication.version - 1)
        case 4: world.resources[manifest].mood = [0, 5, 9, 3, 2][b / 8 % 5]
        case 5: world.resources[manifest + 1 + b / 8 % 2].mood = [0, 5, 2, 8, 0][b / 16 % 5]
        default:
            publication.isWrong = b / 8 % 4 == 0
            publication.isBad = b / 8 % 4 == 1
            publication.isUnsigned = b / 8 % 4 == 2
        }
        machine.publications[key] = publication
        world.resources[manifest].version = publication.version
        let moods = world.resources[manifest...(manifest + 2)].map(\.mood)
        tell("\(key) is published as \(publication), moods \(moods)")
    }

    /// Somebody deletes a link, a version, an archive or a manifest; or writes into an archive or a manifest.
    func spoil(_ a: Int, _ b: Int) {
        let paths = machine.directories.keys.sorted()
        guard !paths.isEmpty else { return }
        let path = paths[a % paths.count]
        guard let directory = machine.directories[path] else { return }
        switch b % 5 {
        case 0:
            guard let link = directory.link else { return }
            tell("somebody deletes the link of \(path)")
            machine.directories[path]?.deleted.insert(link)
            machine.directories[path]?.isBroken = true
            machine.directories[path]?.link = nil
        case 1:
            let folders = directory.versions.keys.sorted()
            guard !folders.isEmpty else { return }
            let folder = folders[b / 5 % folders.count]
            tell("somebody deletes \(path)/\(folder)")
            machine.directories[path]?.versions[folder] = nil
            machine.directories[path]?.deleted.insert(folder)
            if directory.link == folder { machine.directories[path]?.isBroken = true }
        default:
            let files = world.disk.finals.keys.filter { $0.hasPrefix("/a/") || $0.hasPrefix(AssetMachine.manifests) }.sorted()
            guard !files.isEmpty else { return }
            world.spoil(files[a % files.count], deletes: b % 2 == 0)
        }
    }

    /// From now on, publishers and servers make no mistakes.
    func settle() {
        for key in AssetMachine.keys {
            machine.publications[key]?.isWrong = false
            machine.publications[key]?.isBad = false
            machine.publications[key]?.isUnsigned = false
        }
    }

    /// Every application updates its assets, maybe to new versions.
    func updateAll(publishing: Bool) {
        for key in AssetMachine.keys {
            if publishing {
                let version = 1 + (machine.publications[key]?.highest ?? 0)
                machine.publications[key] = Publication(version: version, highest: version)
            }
            if updater[key] != nil { call { .update(key, forces: false, $0) } }
        }
    }

    /// Every application unregisters its assets, some with their data.
    func unregisterAll(_ seed: Int) {
        for (index, key) in AssetMachine.keys.enumerated() where updater[key] != nil {
            call { .unregister(key, deletesData: (seed >> index) & 1 == 0, $0) }
        }
    }

    /// Whether nothing is under way and nobody waits.
    var isAtRest: Bool {
        machine.unanswered.isEmpty && !updater.hasWork && updater.assets.values.allSatisfy { $0.activity == .none }
    }
}
