internal import DBus
internal import DownloadModel
internal import DownloaderInterface
internal import EventLoop
internal import Metalink
internal import PartFiles

/// Admits the files of Metalink documents as batches.
extension Admission {
    /// Admits one call of `DownloadMetalink`. The document is read and parsed on a thread of its disk. Later calls of the caller wait
    /// behind this one.
    ///
    /// - Throws: the fault of the options, or the limit that is reached. Faults of the document are answered later.
    func admit(
        metalink descriptor: HeldDescriptor, options dictionary: [String: Variant], _ reply: Reply<(ObjectPath, [ObjectPath])>
    ) throws(Refusal) {
        for key in OptionRow.ofDocument where dictionary[key] != nil {
            throw Refusal(.invalidOption, "Option \(key) is not for DownloadMetalink, whose document gives it for each file.")
        }
        let (call, holder) = (reply.call, reply.call.holder)
        let defaults = try batchDefaults(dictionary, from: call.caller)
        try checkRoom(for: Load(1, bytes: 0, from: call.caller))
        let held = documents[holder, default: 0]
        guard held < Limits.documentsPerCaller, documents.values.reduce(0, +) < Limits.documents else {
            throw Refusal(
                .limitExceeded,
                "At most \(Limits.documentsPerCaller) documents of one caller, and \(Limits.documents) in all, may be read at a time.")
        }
        documents[holder] = held + 1
        let request = begin(Load(0, bytes: 0, from: call.caller), for: call.sender)
        DiskPool.shared.perform(at: .descriptor(descriptor.number), takesLong: true, within: DiskPatience.file) { goesOn in
            Self.files(of: descriptor, goesOn: goesOn)
        } then: { [self] result in
            // After a refusal the work ends soon, unless the disk hangs. Work that hangs must not count, because four documents on a dead
            // mount would keep their caller from all further documents.
            documents[holder] = documents[holder].flatMap { $0 > 1 ? $0 - 1 : nil }
            do throws(Refusal) {
                let files = try (result ?? .failure(.silentDisk(of: "the document"))).get()
                let load = Load(files.count, bytes: 0, from: call.caller)
                try checkRoom(for: load)
                setLoad(load, of: request)
                var next = files.makeIterator()
                read(files.count, { next.next()?.item }, defaults, request, reply)
            } catch {
                reply.fail(error)
                giveUp(request)
            }
        }
    }

    /// Reads the document in a descriptor. May block. Ends soon after `goesOn` returns false.
    private static nonisolated func files(
        of descriptor: HeldDescriptor, goesOn: @escaping @Sendable () -> Bool
    ) -> Result<[MetalinkFile], Refusal> {
        descriptor.contents(most: Limits.documentBytes, for: Manager.downloadMetalink.name, goesOn: goesOn).flatMap { bytes in
            do throws(MetalinkError) { return .success(try Metalink.parse(bytes, goesOn: goesOn)) } catch {
                return .failure(Refusal(error.isLimit ? .limitExceeded : .invalidOption, "The Metalink document: \(error)."))
            }
        }
    }
}

extension MetalinkFile {
    /// The item of a batch for this file.
    fileprivate var item: (String, [String: Variant]) {
        var options: [String: Variant] = ["filename": .string(name)]
        if let size { options["size"] = .uint64(size) }
        if let checksum { options["checksum"] = .string(checksum.description) }
        if let pieces { options["piece-hashes"] = .string(pieces.description) }
        if sources.count > 1 { options["mirrors"] = .strings(Array(sources.dropFirst())) }
        return (sources.first ?? "", options)
    }
}
