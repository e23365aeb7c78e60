public import DBus
public import DownloadModel

// Converts the options of a call between the bus's dictionary `a{sv}` and `DownloadOptions`.

extension DownloadOptions {
    /// Decodes and checks the dictionary of a call. Does not access the disk.
    ///
    /// - Parameter defaults: values for the keys that are missing; for an item of a batch, the batch's options.
    /// - Throws: `InvalidOption` naming the key that is unknown, has the wrong type or an impossible value; `LimitExceeded`.
    public init(decoding dictionary: [String: Variant], over defaults: DownloadOptions = DownloadOptions()) throws(Refusal) {
        self = defaults
        for (name, value) in dictionary.sorted(by: { $0.key < $1.key }) {
            guard let row = OptionRow.byKey[name] else {
                throw Refusal(.invalidOption, "There is no option “\(shown(name))”; the property SupportedOptions lists them.")
            }
            let fitting = row.takes(value.type) ? value : value.converted(to: row.signature)
            guard let taken = fitting.flatMap({ OptionValue($0) }) else {
                throw Refusal(.invalidOption, "Option \(name) \(value.mismatch(with: row.types)).")
            }
            try row.take(taken, into: &self)
        }
        if token != nil, app.isEmpty { throw Refusal(.invalidOption, "Option token needs the option app.") }
        if let pieceHashes { try check(pieceHashes) }
        try settleExtraction(isDirectoryGiven: dictionary["directory"] != nil)
        if let size, let maxSize, size > maxSize { throw Refusal(.invalidOption, "Option size is larger than option max-size.") }
    }
}

extension DownloadOptions {
    private func check(_ hashes: PieceHashes) throws(Refusal) {
        guard let size else { throw Refusal(.invalidOption, "Option piece-hashes needs the option size.") }
        guard hashes.fits(size) else {
            throw Refusal(
                .invalidOption,
                "Option piece-hashes has \(hashes.count) digests of pieces of \(hashes.length) bytes, which do not make \(size) bytes.")
        }
    }

    /// Divides an absolute path in `extract` into `directory` and a bare name, and checks the options that contradict `extract`.
    ///
    /// - Parameter isDirectoryGiven: the call names a directory, too.
    private mutating func settleExtraction(isDirectoryGiven: Bool) throws(Refusal) {
        guard let extract else { return }
        if ifExists == .replace {
            throw Refusal(.invalidOption, "Option if-exists cannot be replace together with extract: no folder is replaced.")
        }
        if onlyIfChanged {
            throw Refusal(
                .invalidOption, "Option only-if-changed does not go with extract, because the archive is not kept to compare with.")
        }
        guard let path = extract.name?.tidyPath, extract.name?.isAbsolutePath == true else { return }
        let name = path.lastPathComponent
        let folder = String(path[..<name.startIndex]).tidyPath
        if isDirectoryGiven, let directory, !directory.tidyPath.isSameBytes(as: folder) {
            throw Refusal(.invalidOption, "Option extract names a folder in \(shown(folder)), and option directory is \(shown(directory)).")
        }
        (directory, self.extract) = (folder, .named(String(name)))
    }
}

extension OptionValue {
    /// nil for a type that no option has.
    public init?(_ variant: Variant) {
        switch variant {
        case .string(let text): self = .text(text)
        case .bool(let flag): self = .flag(flag)
        case .int32(let number): self = .int32(number)
        case .uint32(let number): self = .uint32(number)
        case .uint64(let number): self = .uint64(number)
        case .array("s", _): self = .texts(variant.strings ?? [])
        default:
            if let pairs = variant.stringPairs {
                self = .fields(pairs.map { HeaderField(name: $0, value: $1) })
            } else if let dictionary = variant.vardict {
                self = .dictionary(Message.bytes(of: dictionary))
            } else {
                return nil
            }
        }
    }
}

extension Variant {
    public init(_ value: OptionValue) {
        switch value {
        case .text(let text): self = .string(text)
        case .flag(let flag): self = .bool(flag)
        case .int32(let number): self = .int32(number)
        case .uint32(let number): self = .uint32(number)
        case .uint64(let number): self = .uint64(number)
        case .texts(let texts): self = .strings(texts)
        case .fields(let fields): self = .dictionary(fields.map { ($0.name, $0.value) })
        case .dictionary(let bytes): self = .dictionary(Message.value([String: Variant].self, from: bytes) ?? [:])
        }
    }
}

extension FreshLink {
    /// Decodes the arguments of `ReplaceUrl`.
    ///
    /// - Throws: the error of an invalid URL; `InvalidOption`, naming the key, for an option that is malformed or not one of this call.
    public init(_ url: String, decoding dictionary: [String: Variant]) throws(Refusal) {
        self.init(try DownloadURL(url))
        for name in dictionary.keys.sorted() where !OptionRow.ofURL.contains(name) {
            let known = OptionRow.ofURL.sorted().joined(separator: ", ")
            throw Refusal(.invalidOption, "ReplaceUrl has no option “\(shown(name))”; it takes \(known).")
        }
        let options = try DownloadOptions(decoding: dictionary)
        if dictionary["headers"] != nil { headers = options.headers }
        (referrer, username, password) = (options.referrer, options.username, options.password)
    }
}
