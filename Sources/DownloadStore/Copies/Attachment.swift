internal import DownloadModel

/// A small file of another program that a backup carries beside the queue.
public struct Attachment: Equatable, Sendable {
    /// Names the file within the backup, as "push/settings".
    public let name: String
    public let bytes: [UInt8]
    public init(name: String, bytes: [UInt8]) { (self.name, self.bytes) = (name, bytes) }

    /// Bounds of a backup, which may be a stranger's file: how many attachments it has, and the bytes of each and of all.
    public static let most = 4096
    public static let longest = 1 << 20
    static let mostBytes = 256 << 20
    /// Bytes of a name.
    static let longestName = 255

    /// Whether a backup may carry these attachments. `attachments(of:)` would refuse others.
    static func fit(_ attachments: [Attachment]) -> Bool {
        attachments.count <= most && attachments.allSatisfy { $0.bytes.count <= longest && $0.name.utf8.count <= longestName }
            && attachments.reduce(0) { $0 +| $1.bytes.count } <= mostBytes
    }
}

extension CopyDraft {
    /// Only backups have this table, so it is in no version of the schema. The service never reads it.
    private static let table = "attachment"
    private static let schema = "CREATE TABLE \(table) (name TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT, WITHOUT ROWID"

    /// Writes the attachments into a copy.
    static func attach(_ attachments: [Attachment], to database: borrowing Database) throws(SQLiteError) {
        try database.execute("DROP TABLE IF EXISTS \(table)")
        guard !attachments.isEmpty else { return }
        try database.execute("BEGIN; \(schema)")
        let insert = try database.prepare("INSERT INTO \(table) (name, content) VALUES (?, ?)")
        for attachment in attachments { try insert.run(attachment.name, attachment.bytes) }
        try database.execute("COMMIT")
    }

    /// The pages of `database` are checked.
    ///
    /// - Returns: nil if the table is not as `attach` creates it, or has more or longer rows than a backup of ours.
    static func attachments(of database: borrowing Database) throws(SQLiteError) -> [Attachment]? {
        var definitions: [String] = []
        try database.prepare("SELECT sql FROM sqlite_schema WHERE name = '\(table)' COLLATE NOCASE").each { (sql: String) in
            definitions.append(sql)
        }
        guard !definitions.isEmpty else { return [] }
        // In a table of another definition, a few bytes may compute long values. The length of a text ends at its first zero byte.
        guard definitions == [schema] else { return nil }
        let size = try database.number("SELECT ifnull(sum(length(content)), 0) FROM \(table)")
        let tooLong = try database.number(
            """
            SELECT count(*) FROM \(table)
            WHERE length(content) > \(Attachment.longest) OR length(CAST(name AS BLOB)) > \(Attachment.longestName)
            """)
        let count = try database.number("SELECT count(*) FROM \(table)")
        guard tooLong == 0, count <= Attachment.most, size <= Attachment.mostBytes else { return nil }
        var attachments: [Attachment] = []
        try database.prepare("SELECT name, content FROM \(table) ORDER BY name").each { (name: String, bytes: [UInt8]) in
            attachments.append(Attachment(name: name, bytes: bytes))
        }
        return attachments
    }
}
