internal import CCurl
internal import Glibc

/// Whether `text`, a numeric address, is one of this machine's own addresses now, public or not. Packets to it stay on this machine.
package func isOwnAddress(_ text: String) -> Bool {
    // An IPv4 address may be written as an IPv4-mapped IPv6 address.
    let text = text.hasPrefix("::ffff:") && text.contains(".") ? String(text.dropFirst(7)) : text
    var list: UnsafeMutablePointer<ifaddrs>?
    guard getifaddrs(&list) == 0 else { return false }
    defer { freeifaddrs(list) }
    var next = list
    while let entry = next {
        next = entry.pointee.ifa_next
        guard let address = entry.pointee.ifa_addr else { continue }
        // The kernel returns a whole address structure of the family.
        let length = Int32(address.pointee.sa_family) == AF_INET6 ? MemoryLayout<sockaddr_in6>.size : MemoryLayout<sockaddr_in>.size
        if addressText(UnsafeRawPointer(address), UInt32(length)) == text { return true }
    }
    return false
}
