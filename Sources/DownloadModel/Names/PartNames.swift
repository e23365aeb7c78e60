/// How part files are called. Several services may write into one folder (of other users, machines or state folders), and each begins to
/// count at 1: the id of the state folder tells their files apart.
public struct PartNames: Equatable, Sendable {
    /// Of the state folder: `[0-9a-f]`; empty: there is none, and no name has one.
    public let instance: String
    /// The first download with the id in its part file's name. Those before were begun by a version that had none.
    public let first: DownloadNumber

    public init(instance: String = "", first: DownloadNumber = DownloadNumber(1)) { (self.instance, self.first) = (instance, first) }

    /// `.todoku-<instance>-<number>.part`, or `.todoku-<number>.part`.
    public func name(of number: DownloadNumber) -> String {
        instance.isEmpty || number < first ? ".todoku-\(number).part" : ".todoku-\(instance)-\(number).part"
    }
}
