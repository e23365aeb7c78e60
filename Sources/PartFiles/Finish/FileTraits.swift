internal import CSystem
internal import Glibc

/// What a finished file has beside its bytes and its name: its origin and its permissions.
public struct FileTraits: Sendable {
    private static let originAttribute = "user.xdg.origin.url"

    let origin: String?
    let replaced: String?

    /// - Parameters:
    ///   - origin: the URL without credentials and query, for the extended attribute `user.xdg.origin.url`.
    ///   - replaced: the name of the file that the new file may replace.
    public init(origin: String?, replaced: String?) { (self.origin, self.replaced) = (origin, replaced) }

    /// Gives the traits to the part file `part`.
    ///
    /// - Returns: whether the file was changed, so that it must be flushed. False if it had the traits.
    func give(to part: Int32, in folder: OpenFolder) throws(DiskError) -> Bool {
        var isChanged = false
        if let origin, !has(origin, part) {
            isChanged = fsetxattr(part, Self.originAttribute, origin, origin.utf8.count, 0) == 0
        }
        return try FileMode.set(part, in: folder, replacing: replaced) || isChanged
    }

    private func has(_ origin: String, _ part: Int32) -> Bool {
        var bytes = [UInt8](repeating: 0, count: max(1, origin.utf8.count))
        let count = fgetxattr(part, Self.originAttribute, &bytes, bytes.count)
        return count >= 0 && bytes[..<count].elementsEqual(origin.utf8)
    }
}
