public import DownloadModel

/// The contract's errors in the user's language. The messages on the bus are English and have the details.
extension Catalog {
    /// One short sentence, with the server's status if there was one.
    public func reason(_ name: ErrorName, httpStatus: UInt32? = nil) -> String {
        switch name {
        case .invalidUrl: text("The URL is not valid.")
        case .unsupportedScheme: text("URLs of this kind are not supported.")
        case .invalidOption: text("An option is not valid.")
        case .noSuchObject: text("There is no such download.")
        case .invalidState: text("That cannot be done in the present state.")
        case .alreadyExists: text("That name is taken already.")
        case .limitExceeded: text("A limit has been exceeded.")
        case .notAllowed: text("That is not allowed.")
        case .storage: text("The record of the download could not be saved.")
        case .network: text("The server could not be reached.")
        case .timeout: text("The server did not answer.")
        case .tls: text("A secure connection could not be made.")
        case .httpStatus:
            httpStatus.map { text("The server answered with an error (HTTP %1$s).", String($0)) }
                ?? text("The server answered with an error.")
        case .tooManyRedirects: text("There were too many redirects.")
        case .unsafeRedirect: text("It was stopped because the server redirected to an unsafe place.")
        case .checksumMismatch: text("The contents of the file do not match the checksum.")
        case .sizeMismatch: text("The size of the file is not the expected one.")
        case .typeMismatch: text("The type of the file is not the expected one.")
        case .tooLarge: text("The file is too large.")
        case .truncated: text("The file is cut off.")
        case .diskFull: text("There is not enough free space on the disk.")
        case .writeFailed: text("The file could not be written.")
        case .permissionDenied: text("The folder may not be written to.")
        case .expired: text("It did not finish in time.")
        case .interrupted: text("It was interrupted because the service ended.")
        case .extraction: text("The archive could not be unpacked.")
        case .manifest: text("The description of the latest version cannot be used.")
        case .signature: text("The signature is not that of the publisher.")
        case .cancelled: text("The download was cancelled.")
        }
    }
}
