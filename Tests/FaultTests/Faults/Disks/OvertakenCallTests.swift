internal import DBus
internal import DownloaderInterface
internal import EventLoop
internal import Glibc
internal import TestSupport
internal import Testing

/// What a call sets once the disk of a folder has answered. `noDefaultDirectory`: the later call restores the usual folder.
/// `registrationElsewhere`: the two calls name different folders for the asset.
enum DiskSetting: CaseIterable, Sendable { case defaultDirectory, noDefaultDirectory, directory, registration, registrationElsewhere }

/// The manifest of an asset that is registered with `folder`.
private func manifest(_ folder: String) -> String { "https://example.org\(folder).json" }

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
            let (earlier, later) = (place.folder.makeFolder("files/earlier"), place.folder.makeFolder("files/later"))
            place.reach(fault)
            async let first = lane.set(setting, to: earlier, of: held, place)
            #expect(await eventually { place.hits > 0 })
            let second = await lane.set(setting, to: setting == .noDefaultDirectory ? "" : later, of: held, place)
            place.stopFaults()
            let errors = [await first, second]
            if errors.contains(where: { $0?.message.contains("did not answer") ?? false }) {
                await lane.end(SIGKILL)
                return false
            }
            // A registered asset keeps its folder.
            let refusal = setting == .registrationElsewhere ? "org.todoku.Error.AlreadyExists" : nil
            #expect(errors.map { $0?.name } == [refusal, nil], "\(errors)")
            let expected: Variant =
                switch setting {
                case .noDefaultDirectory: usual
                case .defaultDirectory, .directory: .string(later)
                case .registration, .registrationElsewhere: .string(manifest(later))
                }
            #expect(try await lane.value(of: setting, held) == expected)
            #expect(await lane.end(SIGTERM).status == 0)
            return true
        }
    }
}

extension Lane {
    /// Sets the folder of `download` or the default folder to `value`, or registers an asset whose manifest belongs to `value`.
    ///
    /// - Returns: the error; nil: the call succeeded.
    fileprivate func set(_ setting: DiskSetting, to value: String, of download: ObjectPath, _ place: Place) async -> DBusError? {
        do throws(DBusError) {
            switch setting {
            case .defaultDirectory, .noDefaultDirectory: try await set(Manager.defaultDirectory.name, .string(value))
            case .directory:
                let arguments = (Download.interface, Download.directory.name, Variant.string(value))
                try await connection.call(Standard.set, on: BusName.service, at: download, arguments, timeout: .seconds(60))
            case .registration, .registrationElsewhere:
                let folder = setting == .registration ? place.files : value
                _ = try await registerAsset(
                    "org.example.App", "maps", manifest(value), ["directory": .string(folder), "notify": .string("never")])
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
        case .registration, .registrationElsewhere:
            let all = try await assets()
            let (asset, name) = (try #require(all.first), (Asset.interface, Asset.manifestUrl.name))
            return try await connection.call(Standard.get, on: BusName.service, at: asset, name, timeout: .seconds(60))
        }
    }
}
