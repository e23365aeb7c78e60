internal import CSystem
internal import Glibc

/// The value of an extended attribute of a file; nil if it has none.
///
/// - Throws: if the file system has no such attributes.
public func extendedAttribute(_ name: String, of path: String) throws(NoExtendedAttributes) -> String? {
    var value = [CChar](repeating: 0, count: 4096)
    let count = getxattr(path, name, &value, value.count)
    if count < 0, errno == ENOTSUP { throw NoExtendedAttributes() }
    return count < 0 ? nil : String(decoding: value.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// The file system has no extended attributes.
public struct NoExtendedAttributes: Error {}
