/// A small file of another program that a backup carries beside the queue.
public struct Attachment: Equatable, Sendable {
    /// Names the file within the backup, as "push/settings".
    public let name: String
    public let bytes: [UInt8]
    public init(name: String, bytes: [UInt8]) { (self.name, self.bytes) = (name, bytes) }

    /// Bounds of what is read of a backup, which is a stranger's file.
    public static let most = 4096
    public static let longest = 1 << 20
    static let mostBytes = 256 << 20
    /// Bytes of a name.
    static let longestName = 255
}

extension CopyDraft {
    /// Only backups have this table, so it is in no version of the schema. The service never reads it.
    private static let table = "attachment"

    /// Writes the attachments into a copy.
    static func attach(_ attachments: [Attachment], to database: borrowing Database) throws(SQLiteError) {
        try detachAll(from: database)
        guard !attachments.isEmpty else { return }
        try database.execute("BEGIN; CREATE TABLE \(table) (name TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT, WITHOUT ROWID")
        let insert = try database.prepare("INSERT INTO \(table) (name, content) VALUES (?, ?)")
        for attachment in attachments { try insert.run(attachment.name, attachment.bytes) }
        try database.execute("COMMIT")
    }

    /// Removes the attachments of a copy that becomes the queue.
    static func detachAll(from database: borrowing Database) throws(SQLiteError) {
        try database.execute("DROP TABLE IF EXISTS \(table)")
    }

    /// - Returns: nil if there are more or longer ones than a backup of ours has.
    static func attachments(of database: borrowing Database) throws(SQLiteError) -> [Attachment]? {
        guard try database.number("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '\(table)'") == 1 else { return [] }
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
