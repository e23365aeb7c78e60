extension DownloadOptions {
    /// Whether the options hold secrets for the server: credentials, or header fields, which may be tokens or cookies.
    public var holdsSecrets: Bool { !headers.isEmpty || username != nil || password != nil }

    public mutating func forgetSecrets() { (headers, username, password) = ([], nil, nil) }
}
