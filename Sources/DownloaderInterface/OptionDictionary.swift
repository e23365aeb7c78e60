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
            let list = headers
            try row.take(taken, into: &self)
            // The list, whose key comes before, goes behind the dictionary.
            if name == "headers", dictionary[OptionRow.headerListKey] != nil {
                headers.append(contentsOf: list)
                try RequestHeaders.check(headers, name)
            }
        }
        if token != nil, app.isEmpty { throw Refusal(.invalidOption, "Option token needs the option app.") }
        if let pieceHashes { try check(pieceHashes) }
        try checkPost()
        if isPrivate, activate != nil || onlyIfChanged {
            let key = activate != nil ? "activate" : "only-if-changed"
            throw Refusal(.invalidOption, "Option private does not go with the option \(key), which needs the outcome to be kept.")
        }
        try settleExtraction(isDirectoryGiven: dictionary["directory"] != nil)
        if let size, let maxSize, size > maxSize { throw Refusal(.invalidOption, "Option size is larger than option max-size.") }
    }
}

extension DownloadOptions {
    /// A request with a body is sent once, so nothing goes with it that needs another request.
    private func checkPost() throws(Refusal) {
        guard postData != nil else {
            if postType == Self.formType { return }
            throw Refusal(.invalidOption, "Option post-type needs the option post-data.")
        }
        let others = [
            ("mirrors", !mirrors.isEmpty), ("find-mirrors", findsMirrors), ("piece-hashes", pieceHashes != nil),
            ("only-if-changed", onlyIfChanged), ("renewable", renewable),
        ]
        if let (key, _) = others.first(where: { $0.1 }) {
            throw Refusal(
                .invalidOption, "Option post-data does not go with the option \(key), because a request with a body is sent once only.")
        }
    }

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
            throw Refusal(.invalidOption, "Option if-exists cannot be replace together with the option extract: no folder is replaced.")
        }
        if onlyIfChanged {
            throw Refusal(
                .invalidOption,
                "Option only-if-changed does not go with the option extract, because the archive is not kept to compare with.")
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
        case .array("y", let values):
            self = .bytes(values.compactMap { value -> UInt8? in if case .byte(let byte) = value { byte } else { nil } })
        case .array("(ss)", let pairs): self = .fieldList(pairs.compactMap { HeaderField($0) })
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
        case .bytes(let bytes): self = .array(of: "y", bytes.map { .byte($0) })
        case .fields(let fields): self = .dictionary(fields.map { ($0.name, $0.value) })
        case .fieldList(let fields):
            self = .array(of: "(ss)", fields.map { .structure([.string($0.name), .string($0.value)]) })
        case .dictionary(let bytes): self = .dictionary(Message.value([String: Variant].self, from: bytes) ?? [:])
        }
    }
}

extension HeaderField {
    /// A pair of texts; nil for anything else.
    fileprivate init?(_ pair: Variant) {
        guard case .structure(let fields) = pair, fields.count == 2, case .string(let name) = fields[0], case .string(let value) = fields[1]
        else { return nil }
        self.init(name: name, value: value)
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
        if OptionRow.ofHeaders.contains(where: { dictionary[$0] != nil }) { headers = options.headers }
        if dictionary["cookies"] != nil { cookies = options.cookies }
        (referrer, username, password) = (options.referrer, options.username, options.password)
    }
}
