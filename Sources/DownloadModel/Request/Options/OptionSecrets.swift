extension DownloadOptions {
    /// Whether the options hold secrets for the server or its proxy: credentials, cookies, a body, or header fields, which may be tokens.
    public var holdsSecrets: Bool {
        !headers.isEmpty || !cookies.isEmpty || postData != nil || username != nil || password != nil || proxy?.hasCredentials == true
    }

    public mutating func forgetSecrets() {
        if holdsSecrets { hasForgottenSecrets = true }
        (headers, cookies, username, password) = ([], [], nil, nil)
        proxy = proxy?.withoutCredentials
        // Without its body, the request must not go out as another one.
        if postData != nil { (postData, isPostSent) = (nil, true) }
    }
}
