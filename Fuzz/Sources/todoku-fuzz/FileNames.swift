internal import DownloadModel
internal import TransferEngine

@testable internal import Transport

/// The header's field, then in a second line what follows the host in the URL.
func fuzzFileNames(_ bytes: [UInt8]) {
    let lines = bytes.split(separator: 10, maxSplits: 1, omittingEmptySubsequences: false)
    let field = Array(lines[0])
    let tail = String(decoding: lines.count > 1 ? lines[1] : lines[0], as: UTF8.self)
    let url = (try? DownloadURL("http://h/" + tail)) ?? plainURL
    checkName(FileName.chosen(contentDisposition: field, url: url, decode: iconvDecoder), of: bytes)
    checkName(FileName.chosen(contentDisposition: nil, url: url, decode: iconvDecoder), of: bytes)
    if let name = FileName.safe(String(decoding: bytes, as: UTF8.self)) { checkName(name, of: bytes) }
}

private let plainURL: DownloadURL = {
    guard let url = try? DownloadURL("http://h/") else { preconditionFailure("the simplest URL is refused") }
    return url
}()

private func checkName(_ name: String, of input: [UInt8]) {
    checkIsHarmless(name, most: FileName.longest)
    check(!name.utf8.contains(UInt8(ascii: "\\")), "a backslash in \(name.debugDescription)")
    check(FileName.isBare(name), "not bare: \(name.debugDescription)")
    check(FileName.safe(name).map { Array($0.utf8) } == Array(name.utf8), "not safe as it stands: \(name.debugDescription)")
    // The stem as others read it, written apart from the model's own way.
    var stem = name.utf8.prefix { $0 != UInt8(ascii: ".") }.map { $0 & 0xDF == $0 || !(97...122).contains($0) ? $0 : $0 - 32 }
    while stem.last == 0x20 { stem.removeLast() }
    check(!reserved.contains(String(decoding: stem, as: UTF8.self)), "reserved: \(name.debugDescription)")
    for number in [1, 99, Int(input.count) << 40] {
        let numbered = FileName.numbered(name, number)
        checkIsHarmless(numbered, most: 255)
        check(numbered != name, "numbered to itself: \(name.debugDescription)")
    }
}

private func checkIsHarmless(_ name: String, most: Int) {
    let bytes = Array(name.utf8)
    check(!bytes.isEmpty, "empty")
    check(bytes.count <= most, "\(bytes.count) bytes: \(name.debugDescription)")
    check(bytes.first != UInt8(ascii: "."), "hidden: \(name.debugDescription)")
    check(!bytes.contains(UInt8(ascii: "/")) && !bytes.contains(0), "a slash or NUL in \(name.debugDescription)")
    for scalar in name.unicodeScalars {
        check(scalar.properties.generalCategory != .control, "a control character in \(name.debugDescription)")
        check(!scalar.properties.isBidiControl, "a bidi control in \(name.debugDescription)")
    }
}

private let reserved: Set<String> = Set(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"] + (0...9).flatMap { ["COM\($0)", "LPT\($0)"] })
