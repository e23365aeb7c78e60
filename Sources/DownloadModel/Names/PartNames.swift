/// The names of part files. Several services (of other users, machines or state folders) may write into one folder, and each counts from 1.
/// The id of the state folder keeps their part files apart.
public struct PartNames: Equatable, Sendable {
    /// The id of the state folder, of `[0-9a-f]`. Empty: part files have no id in their name.
    public let instance: String
    /// The first download whose part file has the id in its name. An older version, without ids, began the downloads before it.
    public let first: DownloadNumber

    public init(instance: String = "", first: DownloadNumber = DownloadNumber(1)) { (self.instance, self.first) = (instance, first) }

    /// `.todoku-<instance>-<number>.part`, or `.todoku-<number>.part`.
    public func name(of number: DownloadNumber) -> String {
        instance.isEmpty || number < first ? ".todoku-\(number).part" : ".todoku-\(instance)-\(number).part"
    }
}
