internal import DownloadModel

/// The facts about the held bytes, while a response brings another file beside them.
///
/// The other file replaces the held bytes once it has enough bytes, and is deleted if its transfer ends before. The engine reports the
/// first by a checkpoint of the other file, and the second by `bodyDropped`. If the disk does not answer, it reports neither.
///
/// A class, because few of very many downloads have such facts.
final class HeldFacts {
    private let identity: FileIdentity
    private let fileName: String?
    private let mediaType: String?
    private let source: String?
    private let total: ByteCount?
    private let isResumable: Bool

    /// nil: no bytes are held.
    init?(of entry: ScheduledDownload) {
        let record = entry.record
        guard let resume = record.resume, resume.written > 0 else { return nil }
        (identity, isResumable) = (resume.identity, entry.isResumable)
        (fileName, mediaType, source, total) = (record.fileName, record.mediaType, record.source, record.total)
    }

    /// Whether `resume` is of the held bytes, and not of the other file.
    func areOf(_ resume: ResumeData) -> Bool { resume.written > 0 && identity.isSameFile(as: resume.identity) }

    /// Gives `record`, which is that of `entry`, these facts again.
    func restore(_ record: inout DownloadRecord, of entry: ScheduledDownload) {
        entry.isResumable = isResumable
        (record.fileName, record.mediaType, record.source, record.total) = (fileName, mediaType, source, total)
    }
}
