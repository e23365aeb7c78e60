internal import DownloadModel

/// The statements of the table `copy`.
enum CopyRow {
    static let insert = """
        INSERT OR REPLACE INTO copy (app, url, directory, wanted_name, name, size, modified, device, inode, mount, boot, born,
            entity_tag, last_modified, source, media_type, checksum, proof)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """

    /// Deletes all rows but the newest; the parameter says how many stay. A row that is written again counts as new.
    static let dropOldest = "DELETE FROM copy WHERE id <= (SELECT id FROM copy ORDER BY id DESC LIMIT 1 OFFSET ?)"

    static let find = """
        SELECT name, size, modified, device, inode, mount, boot, born, entity_tag, last_modified, source, media_type, checksum,
            proof
        FROM copy WHERE app = ? AND url = ? AND directory = ? AND wanted_name = ?
        """

    static func put(_ copy: CachedCopy, _ statement: borrowing Statement) throws(SQLiteError) {
        let (key, stamp, identity) = (copy.key, copy.stamp, copy.stamp.identity)
        try statement.run(
            key.app, key.url, key.directory, key.wantedName ?? "", copy.name, stamp.size, stamp.modified, identity.device, identity.inode,
            identity.mount, identity.boot, identity.born, copy.validators?.entityTag, copy.validators?.lastModified,
            copy.validators?.source, copy.mediaType, copy.checksum?.description, copy.proof?.rawValue)
    }

    static func find(_ key: CopyKey, _ statement: borrowing Statement) throws(SQLiteError) -> CachedCopy? {
        try statement.bind(key.app, at: 0)
        try statement.bind(key.url, at: 1)
        try statement.bind(key.directory, at: 2)
        try statement.bind(key.wantedName ?? "", at: 3)
        var copy: CachedCopy?
        try statement.eachRow { copy = CachedCopy(key, $0) }
        return copy
    }
}

extension CachedCopy {
    /// Unreadable values count as unknown. At worst, this costs a transfer.
    fileprivate init?(_ key: CopyKey, _ row: Row) {
        let name: String = row.value(0)
        guard !name.isEmpty, name.utf8.first != UInt8(ascii: "."), !name.utf8.contains(UInt8(ascii: "/")) else { return nil }
        let identity = FileIdentity(device: row.value(3), inode: row.value(4), mount: row.value(5), boot: row.value(6), born: row.value(7))
        let (tag, modified, source) = (row.value(8, as: String?.self), row.value(9, as: String?.self), row.value(10, as: String?.self))
        self.init(
            key: key, name: name, stamp: FileStamp(identity: identity, size: row.value(1), modified: row.value(2)),
            validators: source.flatMap { source in
                tag == nil && modified == nil ? nil : CopyValidators(entityTag: tag, lastModified: modified, source: source)
            },
            mediaType: row.value(11), checksum: row.value(12, as: String?.self).flatMap { try? Checksum($0) })
        // A row of an earlier version has no proof.
        proof = row.value(13, as: String?.self).flatMap(FileProof.init) ?? (checksum == nil ? nil : .checksum)
    }
}

extension StoreChange {
    var isCopy: Bool { if case .keepCopy = self { true } else { false } }
}
