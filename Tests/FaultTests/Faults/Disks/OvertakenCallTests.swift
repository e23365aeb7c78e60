internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// What a call sets once the disk of a folder has answered. `noDefaultDirectory`: the later call restores the usual folder.
enum DiskSetting: CaseIterable, Sendable { case defaultDirectory, noDefaultDirectory, directory, registration }

extension `The fault campaign` {
    @Suite struct `A call that sets what a later call has set` {
        @Test(arguments: DiskSetting.allCases)
        func `changes nothing when its disk answers at last`(setting: DiskSetting) async throws {
            #expect(try await inTime { try await isLate(setting) }, "each time, a call was refused before its disk answered")
        }

        /// - Returns: false: the service gave up a call before its disk answered. The service waits at most 5 s.
        private func isLate(_ setting: DiskSetting) async throws -> Bool {
            let place = Place()
            let lane = try await Lane(try await Shim.compiled())
            // One call on the disk hangs, and all others return.
            let fault = Fault(kind: .hang, at: 1_000_000, disk: .downloads)
            let ending = await lane.start(place, fault)
            try #require(ending == nil, "\(ending?.errors ?? "")")
            let options: [String: Variant] = ["directory": .string(place.files), "notify": .string("never"), "start": .bool(false)]
            let held = try await lane.download("http://127.0.0.1:1/a", options)
            let usual = try await lane.property(Manager.defaultDirectory.name)
            let folders = (place.folder.makeFolder("files/earlier"), place.folder.makeFolder("files/later"))
            let manifests = ("https://example.org/earlier.json", "https://example.org/later.json")
            let (earlier, later) = setting == .registration ? manifests : folders
            place.reach(fault)
            async let first = lane.set(setting, to: earlier, of: held, place)
            #expect(await eventually { place.hits > 0 })
            let second = await lane.set(setting, to: setting == .noDefaultDirectory ? "" : later, of: held, place)
            place.stopFaults()
            let errors = [await first, second].compactMap { $0 }
            if errors.contains(where: { $0.message.contains("did not answer") }) {
                await lane.end(SIGKILL)
                return false
            }
            #expect(errors.isEmpty, "\(errors)")
            let value = try await lane.value(of: setting, held)
            #expect(value == (setting == .noDefaultDirectory ? usual : .string(later)))
            #expect(await lane.end(SIGTERM).status == 0)
            return true
        }
    }
}

extension Lane {
    /// Sets the folder of `download` or the default folder, or registers an asset of the manifest `value`.
    ///
    /// - Returns: the error; nil: the call succeeded.
    fileprivate func set(_ setting: DiskSetting, to value: String, of download: ObjectPath, _ place: Place) async -> DBusError? {
        do throws(DBusError) {
            switch setting {
            case .defaultDirectory, .noDefaultDirectory: try await set(Manager.defaultDirectory.name, .string(value))
            case .directory:
                let arguments = (Download.interface, Download.directory.name, Variant.string(value))
                try await connection.call(Standard.set, on: BusName.service, at: download, arguments, timeout: .seconds(60))
            case .registration:
                _ = try await registerAsset(
                    "org.example.App", "maps", value, ["directory": .string(place.files), "notify": .string("never")])
            }
            return nil
        } catch { return error }
    }

    fileprivate func value(of setting: DiskSetting, _ download: ObjectPath) async throws -> Variant {
        switch setting {
        case .defaultDirectory, .noDefaultDirectory: return try await property(Manager.defaultDirectory.name)
        case .directory:
            let name = (Download.interface, Download.directory.name)
            return try await connection.call(Standard.get, on: BusName.service, at: download, name, timeout: .seconds(60))
        case .registration:
            let all = try await assets()
            let (asset, name) = (try #require(all.first), (Asset.interface, Asset.manifestUrl.name))
            return try await connection.call(Standard.get, on: BusName.service, at: asset, name, timeout: .seconds(60))
        }
    }
}
