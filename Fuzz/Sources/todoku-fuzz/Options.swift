internal import DBus
internal import DownloadModel
internal import DownloaderInterface

/// The dictionary of a call of `Download`, and its filter.
func fuzzOptions(_ bytes: [UInt8]) {
    var tape = Tape(bytes)
    var dictionary: [String: Variant] = [:]
    while !tape.isAtEnd, dictionary.count < 40 {
        let choice = tape.choice(OptionKey.allCases.count + 4)
        let key = choice < OptionKey.allCases.count ? OptionKey.allCases[choice] : nil
        let name = key?.rawValue ?? tape.text()
        let isRight = key != nil && tape.choice(8) != 0
        dictionary[name] = isRight ? tape.value(of: key?.signature ?? "s") : tape.variant()
    }
    // As a call brings it: what the wire changes, it has changed.
    guard let arrived = Message.value([String: Variant].self, from: Message.bytes(of: dictionary)) else {
        return check(false, "\(dictionary) cannot be sent")
    }
    do throws(Refusal) { checkOptions(try DownloadOptions(decoding: arrived), arrived) } catch { checkRefusal(error, arrived) }
    do throws(Refusal) {
        let filter = try DownloadFilter(decoding: arrived)
        check((try? DownloadFilter(decoding: filter.dictionary)) == filter, "\(filter) does not come back")
    } catch { checkRefusal(error, arrived) }
}

private func checkRefusal(_ refusal: Refusal, _ dictionary: [String: Variant]) {
    check([.invalidOption, .limitExceeded].contains(refusal.name), "\(refusal)")
    check(refusal.message.utf8.count < 10_000, "a message of \(refusal.message.utf8.count) bytes")
    check(!refusal.message.unicodeScalars.contains { $0.properties.generalCategory == .control }, refusal.message.debugDescription)
    check(dictionary.keys.contains { refusal.message.names($0) }, "no key is named: \(refusal.message)")
}

extension String {
    /// Scalars: a key that begins with a combining mark is one character with the quotation mark before it.
    fileprivate func names(_ key: String) -> Bool {
        let key = Array(shown(key).unicodeScalars)
        return key.isEmpty || unicodeScalars.indices.contains { unicodeScalars[$0...].starts(with: key) }
    }
}

private func checkOptions(_ options: DownloadOptions, _ dictionary: [String: Variant]) {
    var again: [String: Variant] = [:]
    for name in dictionary.keys {
        guard let key = OptionKey(rawValue: name) else { return check(false, "the unknown key \(name) is taken") }
        again[name] = value(of: key, in: options)
    }
    // Keys that have no way back here keep their value.
    again.merge(dictionary) { mine, _ in mine }
    check((try? DownloadOptions(decoding: again)) == options, "\(options) does not come back from \(again)")

    for field in options.headers {
        check(!field.name.isEmpty && field.name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x3A }, field.name.debugDescription)
        check(!field.value.utf8.contains { $0 == 10 || $0 == 13 || $0 == 0 }, field.value.debugDescription)
    }
    check(options.headers.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count } <= Limits.headerBytes, "headers")
    check(options.metadata.count <= Limits.metadataBytes, "metadata")
    for text in [options.userAgent, options.referrer, options.username, options.password, options.title, options.fileName] {
        check(text?.utf8.contains { $0 < 0x20 || $0 == 0x7F } != true, text.debugDescription)
    }
    if let name = options.fileName { check(FileName.isBare(name), name.debugDescription) }
    if let folder = options.directory { check(folder.hasPrefix("/"), folder.debugDescription) }
    if options.token != nil { check(!options.app.isEmpty, "a token without app") }
    check(options.stallTimeout > .zero, "\(options.stallTimeout)")
}

/// The value that was read into `options`; nil for a key that is not looked at here.
private func value(of key: OptionKey, in options: DownloadOptions) -> Variant? {
    switch key {
    case .app: .string(options.app)
    case .token: options.token.map { .string($0) }
    case .directory: options.directory.map { .string($0) }
    case .filename: options.fileName.map { .string($0) }
    case .ifExists: .string(options.ifExists.rawValue)
    case .headers: .dictionary(options.headers.map { ($0.name, $0.value) })
    case .userAgent: options.userAgent.map { .string($0) }
    case .referrer: options.referrer.map { .string($0) }
    case .username: options.username.map { .string($0) }
    case .password: options.password.map { .string($0) }
    case .checksum: options.checksum.map { .string($0.description) }
    case .size: options.size.map { .uint64($0) }
    case .maxSize: options.maxSize.map { .uint64($0) }
    case .expectType: options.expectType.map { .string($0) }
    case .notBefore: options.notBefore.map { .uint64($0.microseconds) }
    case .deadline: options.deadline.map { .uint64(UInt64($0.wholeMilliseconds)) }
    case .renewable: .bool(options.renewable)
    case .allowMetered: .bool(options.allowsMetered)
    case .allowPrivate: .bool(options.allowsPrivate)
    case .allowDowngrade: .bool(options.allowsDowngrade)
    case .requestInterval: .uint32(UInt32(options.requestInterval?.wholeMilliseconds ?? 0))
    case .onlyIfChanged: .bool(options.onlyIfChanged)
    case .activate: options.activate.map { .string($0) }
    case .start: .bool(options.start)
    case .priority: .int32(options.priority)
    case .speedLimit: .uint64(options.speedLimit ?? 0)
    case .retries: .uint32(options.retries)
    case .tag: .string(options.tag)
    case .notify: .string(options.notify.rawValue)
    case .notifyDelay: .uint32(UInt32(options.notifyDelay.wholeMilliseconds))
    case .title: options.title.map { .string($0) }
    case .body: options.body.map { .string($0) }
    case .icon: options.icon.map { .string($0) }
    case .sound: .string(options.sound)
    case .showProgress: .bool(options.showProgress)
    case .desktopID: options.desktopID.map { .string($0.name) }
    case .metadata: Message.value([String: Variant].self, from: options.metadata).map { .dictionary($0) }
    default: nil
    }
}
