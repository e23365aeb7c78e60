internal import CCurl
internal import Glibc

/// Whether `text`, an address in figures, is one of this machine's own at present, public or not: what is sent there stays here.
package func isOwnAddress(_ text: String) -> Bool {
    // An IPv4 address may come as one of the sixth version.
    let text = text.hasPrefix("::ffff:") && text.contains(".") ? String(text.dropFirst(7)) : text
    var list: UnsafeMutablePointer<ifaddrs>?
    guard getifaddrs(&list) == 0 else { return false }
    defer { freeifaddrs(list) }
    var next = list
    while let entry = next {
        next = entry.pointee.ifa_next
        guard let address = entry.pointee.ifa_addr else { continue }
        // The kernel gives the whole of an address of its family.
        let length = Int32(address.pointee.sa_family) == AF_INET6 ? MemoryLayout<sockaddr_in6>.size : MemoryLayout<sockaddr_in>.size
        if addressText(UnsafeRawPointer(address), UInt32(length)) == text { return true }
    }
    return false
}
