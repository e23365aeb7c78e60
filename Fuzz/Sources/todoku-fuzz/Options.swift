internal import DBus
internal import DownloadModel
internal import DownloaderInterface

/// The dictionary of a call of `Download`, and its filter.
func fuzzOptions(_ bytes: [UInt8]) {
    var tape = Tape(bytes)
    var dictionary: [String: Variant] = [:]
    while !tape.isAtEnd, dictionary.count < 40 {
        let choice = tape.choice(OptionRow.all.count + 4)
        let row = choice < OptionRow.all.count ? OptionRow.all[choice] : nil
        let name = row?.key ?? tape.text()
        let isRight = row != nil && tape.choice(8) != 0
        dictionary[name] = isRight ? tape.value(of: row?.signature ?? "s") : tape.variant()
    }
    // As a call brings it: what the wire changes, it has changed.
    guard let arrived = Message.value([String: Variant].self, from: Message.bytes(of: dictionary)) else {
        return check(false, "\(dictionary) cannot be sent")
    }
    do throws(Refusal) { checkOptions(try DownloadOptions(decoding: arrived), arrived) } catch { checkRefusal(error, arrived) }
    do throws(Refusal) {
        let filter = try DownloadFilter(decoding: arrived)
        // Metadata with a NaN differ from their copy. Dictionaries with one memory count as equal.
        let isComparable = filter.metadata == Dictionary(uniqueKeysWithValues: filter.metadata.map { ($0, $1) })
        check(!isComparable || (try? DownloadFilter(decoding: filter.dictionary)) == filter, "\(filter) does not come back")
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
        guard let row = OptionRow.byKey[name] else { return check(false, "the unknown key \(name) is taken") }
        again[name] = row.value(in: options).map { Variant($0) }
        // What the database keeps, it gives back.
        var kept = DownloadOptions()
        if let text = row.text(in: options), !OptionRow.ofHeaders.contains(row.key) {
            check(row.take(text: text, into: &kept) && row.value(in: kept) == row.value(in: options), "\(row.key) is kept as \(text)")
        }
    }
    // Both keys give all fields.
    if again[OptionRow.headerListKey] != nil { again["headers"] = nil }
    // An absolute path in `extract` has been divided.
    if options.extract != nil, let folder = options.directory { again["directory"] = .string(folder) }
    check((try? DownloadOptions(decoding: again)) == options, "\(options) does not come back from \(again)")

    for field in options.headers {
        check(!field.name.isEmpty && field.name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x3A }, field.name.debugDescription)
        check(!field.value.utf8.contains { $0 == 10 || $0 == 13 || $0 == 0 }, field.value.debugDescription)
    }
    check(options.headers.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count } <= Limits.headerBytes, "headers")
    check(Cookie.fit(options.cookies), "cookies")
    for cookie in options.cookies { check((try? Cookie(line: cookie.line)) == cookie, cookie.name.debugDescription) }
    check(options.metadata.count <= Limits.metadataBytes, "metadata")
    for text in [options.userAgent, options.referrer, options.username, options.password, options.title, options.fileName] {
        check(text?.utf8.contains { $0 < 0x20 || $0 == 0x7F } != true, text.debugDescription)
    }
    if let name = options.fileName { check(FileName.isBare(name), name.debugDescription) }
    if let folder = options.directory { check(folder.hasPrefix("/"), folder.debugDescription) }
    if let name = options.extract?.name { check(FileName.isBare(name), name.debugDescription) }
    if options.token != nil { check(!options.app.isEmpty, "a token without app") }
    check(options.stallTimeout > .zero, "\(options.stallTimeout)")
}
