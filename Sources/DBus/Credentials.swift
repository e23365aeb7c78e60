internal import CDBus
internal import Glibc

/// The bus's credentials of a connection (`GetConnectionCredentials`, `a{sv}`). Missing and unknown keys are ignored.
///
/// The bus read all of them from the socket when the connection was made (`SO_PEERCRED`, `SO_PEERSEC`, `SO_PEERPIDFD`). The process id may
/// have been reused since; the label and the process descriptor cannot.
public struct ConnectionCredentials: Sendable {
    /// `ProcessID`, in the bus's pid namespace.
    public var processID: UInt32?
    /// `UnixUserID`.
    public var userID: UInt32?
    /// `LinuxSecurityLabel` without its final NUL: an AppArmor label, an SELinux context.
    public var securityLabel: String?
    /// `ProcessFD`; nil unless bus and kernel (Linux 6.5) support it.
    public var process: ProcessDescriptor?
    public init() {}
}

/// A descriptor of a process (pidfd_open(2)), closed with its last reference.
public final class ProcessDescriptor: Sendable {
    public let number: Int32
    /// Adopts the descriptor `number`.
    public init(adopting number: Int32) { self.number = number }
    deinit { close(number) }
}

extension ConnectionCredentials: DBusValue {
    public static var signature: String { "a{sv}" }

    public init(from reader: inout Reader) throws(DBusError) {
        self.init()
        self = try reader.container(Int(kArray)) { (entries: inout Reader) throws(DBusError) -> ConnectionCredentials in
            var found = ConnectionCredentials()
            while entries.type != Int(kInvalid) {
                try entries.container(Int(kDictEntry)) { (entry: inout Reader) throws(DBusError) in
                    let key = try String(from: &entry)
                    try entry.container(Int(kVariant)) { (value: inout Reader) throws(DBusError) in try found.take(key, &value) }
                }
            }
            return found
        }
    }

    private mutating func take(_ key: String, _ value: inout Reader) throws(DBusError) {
        switch (key, Int32(value.type)) {
        case ("ProcessID", kUInt32): processID = try UInt32(from: &value)
        case ("UnixUserID", kUInt32): userID = try UInt32(from: &value)
        case ("LinuxSecurityLabel", kArray) where value.elementType == Int(kByte):
            securityLabel = String(decoding: try [UInt8](from: &value).prefix { $0 != 0 }, as: UTF8.self)
        case ("ProcessFD", kUnixFD): process = ProcessDescriptor(adopting: try FileDescriptor(from: &value).take())
        default: break
        }
    }

    public func write(to writer: inout Writer) {
        writer.container(Int(kArray), "{sv}") { entries in
            func entry(_ key: String, _ signature: String, _ write: (inout Writer) -> Void) {
                entries.container(Int(kDictEntry), nil) { pair in
                    key.write(to: &pair)
                    pair.container(Int(kVariant), signature, write)
                }
            }
            if let processID { entry("ProcessID", "u") { processID.write(to: &$0) } }
            if let userID { entry("UnixUserID", "u") { userID.write(to: &$0) } }
            if let securityLabel { entry("LinuxSecurityLabel", "ay") { (Array(securityLabel.utf8) + [0]).write(to: &$0) } }
            if let process { entry("ProcessFD", "h") { FileDescriptor(process.number).write(to: &$0) } }
        }
    }
}
