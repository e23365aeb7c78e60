internal import Glibc

/// A library that Todoku loads on first use, or is linked with.
struct Library: Sendable {
    /// The name that is loaded, such as "libcurl.so.4".
    let file: String
    /// The name outside of Debian.
    var otherFile: String? = nil
    let name: String
    /// How the library tells its version; nil: it does not.
    let version: Version?
    /// What does not work without the library, as the end of "without …, ".
    let loss: Phrase
    /// Whether hardly anything works without the library.
    var isNeeded = false
    /// The Debian package that has it.
    let package: String

    enum Version: Sendable {
        /// A function without parameters, which returns a text.
        case text(String)
        /// A function whose parameter 0 asks for the version's text.
        case textOfZero(String)
        /// A function that returns major, minor and patch in 8, 12 and 12 bits.
        case packed(String)
    }

    /// The handle of a library (dlopen(3)); nil: it cannot be loaded. The library stays loaded. Blocks.
    static func load(_ file: String) -> UnsafeMutableRawPointer? { dlopen(file, RTLD_NOW | RTLD_LOCAL) }

    /// "zlib 1.2.13", or the name alone; nil: the library cannot be loaded. Blocks.
    func describe() -> String? {
        guard let handle = Self.load(file) ?? otherFile.flatMap({ Self.load($0) }) else { return nil }
        guard let whole = versionText(handle) else { return name }
        let text = String(whole.prefix { $0 != "," })  // bzip2 tells a date, too
        // Some libraries begin with their name: "libcurl/7.88.1 …", "libarchive 3.6.2", "expat_2.5.0".
        return text.lowercased().hasPrefix(name.lowercased()) ? text : "\(name) \(text)"
    }

    private func versionText(_ handle: UnsafeMutableRawPointer) -> String? {
        switch version {
        case .text(let function)?:
            guard let symbol = dlsym(handle, function) else { return nil }
            let call = unsafeBitCast(symbol, to: (@convention(c) () -> UnsafePointer<CChar>?).self)
            return call().map { String(cString: $0) }
        case .textOfZero(let function)?:
            guard let symbol = dlsym(handle, function) else { return nil }
            let call = unsafeBitCast(symbol, to: (@convention(c) (Int32) -> UnsafePointer<CChar>?).self)
            return call(0).map { String(cString: $0) }
        case .packed(let function)?:
            guard let symbol = dlsym(handle, function) else { return nil }
            let number = unsafeBitCast(symbol, to: (@convention(c) () -> UInt32).self)()
            return "\(number >> 24).\(number >> 12 & 0xFFF).\(number & 0xFFF)"
        case nil: return nil
        }
    }
}

extension Library {
    /// libcurl is examined by itself (`LibraryExamination`).
    static let curl = Library(
        file: "libcurl.so.4", name: "libcurl", version: .text("curl_version"), loss: Phrase("nothing is downloaded"), isNeeded: true,
        package: "libcurl4")

    static let others = [
        Library(
            file: "libsqlite3.so.0", name: "SQLite", version: .text("sqlite3_libversion"), loss: Phrase("the service does not start"),
            isNeeded: true, package: "libsqlite3-0"),
        Library(
            file: "libcrypto.so.3", name: "OpenSSL", version: .textOfZero("OpenSSL_version"), loss: Phrase("no checksum is verified"),
            isNeeded: true, package: "libssl3"),
        Library(file: "libnotify.so.4", name: "libnotify", version: nil, loss: Phrase("no toast is shown"), package: "libnotify4"),
        Library(
            file: "libarchive.so.13", name: "libarchive", version: .text("archive_version_string"), loss: Phrase("no archive is unpacked"),
            package: "libarchive13"),
        Library(
            file: "libjansson.so.4", name: "jansson", version: .text("jansson_version_str"), loss: Phrase("no asset is kept current"),
            package: "libjansson4"),
        Library(
            file: "libexpat.so.1", name: "expat", version: .text("XML_ExpatVersion"), loss: Phrase("no Metalink file is read"),
            package: "libexpat1"),
        Library(
            file: "libz.so.1", name: "zlib", version: .text("zlibVersion"), loss: Phrase("no gzip or zip file is decoded"),
            package: "zlib1g"),
        Library(
            file: "libbrotlidec.so.1", name: "brotli", version: .packed("BrotliDecoderVersion"), loss: Phrase("brotli is not decoded"),
            package: "libbrotli1"),
        Library(
            file: "libzstd.so.1", name: "zstd", version: .text("ZSTD_versionString"), loss: Phrase("zstd is not decoded"),
            package: "libzstd1"),
        Library(
            file: "liblzma.so.5", name: "xz", version: .text("lzma_version_string"), loss: Phrase("xz is not decoded"), package: "liblzma5"),
        Library(
            file: "libbz2.so.1.0", otherFile: "libbz2.so.1", name: "bzip2", version: .text("BZ2_bzlibVersion"),
            loss: Phrase("bzip2 is not decoded"), package: "libbz2-1.0"),
    ]
}
