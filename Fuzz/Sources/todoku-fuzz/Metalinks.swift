internal import DownloadModel
internal import Metalink

/// A Metalink document, as anybody may pass it.
func fuzzMetalink(_ bytes: [UInt8]) {
    do throws(MetalinkError) {
        let files = try Metalink.parse(bytes)
        check(!files.isEmpty && files.count <= Limits.batchItems, "\(files.count) files")
        for file in files { checkFile(file) }
        check(Set(files.map(\.name)).count == files.count, "a name is there twice")
    } catch {
        let text = error.description
        check(!text.isEmpty && text.utf8.count < 8192 && !text.hasSuffix("."), text)
        check(!text.unicodeScalars.contains { $0.properties.generalCategory == .control }, text.debugDescription)
        check(error.line ?? 1 > 0, text)
    }
}

private func checkFile(_ file: MetalinkFile) {
    // The call gives it as the option `filename`.
    check(FileName.isBare(file.name), file.name.debugDescription)
    check((1...Metalink.mostSources).contains(file.sources.count), "\(file.sources.count) sources")
    check(Set(file.sources.map { Array($0.utf8) }).count == file.sources.count, "a URL is there twice: \(file.sources)")
    for source in file.sources {
        guard let url = try? DownloadURL(source) else { return check(false, "\(source) is refused when it is read again") }
        check(url.text.isSameBytes(as: source) && url.username == nil && url.password == nil, source)
    }
    guard let pieces = file.pieces else { return }
    guard let size = file.size else { return check(false, "pieces without a size") }
    check(pieces.fits(size) && pieces.digests.count <= Limits.pieceHashBytes, "\(pieces.count) pieces of \(pieces.length) for \(size)")
    let (first, last) = (pieces.range(of: 0, size: size), pieces.range(of: pieces.count - 1, size: size))
    check(first.lowerBound == 0 && !first.isEmpty && last.upperBound == size && !last.isEmpty, "\(first) \(last)")
}
