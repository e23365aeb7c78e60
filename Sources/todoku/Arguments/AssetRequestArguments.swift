internal import ArgumentParser
internal import DownloadModel
internal import Localization
internal import TodokuClient

/// How the service asks for the manifest and the archives of an asset.
struct AssetRequestArguments: ParsableArguments {
    // Read by `validate`, and not by a transform: ArgumentParser would repeat a wrong value, which may be a secret.
    @Option(name: [.customShort("H"), .long], help: .option(\.headers, "name: value"))
    var header: [String] = []

    @Option(help: .option(\.cookies, "file"), completion: .file())
    var loadCookies: String?

    @Option(help: .option(\.userAgent))
    var userAgent: String?

    @OptionGroup var login: CredentialArguments

    @Option(help: .option(\.proxy, "url"))
    var proxy: String?

    func validate() throws {
        try RequestArguments.check(header)
        try login.checkInput(beside: loadCookies)
        if let proxy { try RequestArguments.check(proxy: proxy) }
    }

    /// - Parameter url: where the manifest is. If a file has more cookies than a download may have, those of its site are sent.
    /// - Throws: if a file cannot be read, or if the password can neither be read nor be asked for.
    func request(for url: String) throws(CommandFailure) -> DownloadRequest {
        var request = DownloadRequest()
        let (username, password) = try login.read()
        request.set(\.username, to: username)
        request.set(\.password, to: password)
        if !header.isEmpty { request.headers = header.compactMap { RequestArguments.header($0) } }
        if let loadCookies { request.cookies = try RequestArguments.cookies(in: loadCookies, for: [url]) }
        request.set(\.userAgent, to: userAgent)
        if let proxy, let address = try? ProxyAddress(proxy) { request.proxy = address }
        return request
    }
}

extension CredentialArguments {
    /// Refuses to read the password and another file from standard input. The password would be the first line of the other file.
    ///
    /// - Parameter cookies: the argument of `--load-cookies`.
    func checkInput(beside cookies: String?) throws {
        guard cookies == "-", passwordFile == "-" else { return }
        throw ValidationError(catalog.text("Standard input gives one file only; --load-cookies and --password-file share it."))
    }
}

extension RequestArguments {
    /// Refuses what is no proxy, without its credentials in the message.
    static func check(proxy: String) throws {
        do throws(Refusal) { _ = try ProxyAddress(proxy) } catch { throw ValidationError(catalog.explanation(error)) }
    }
}
