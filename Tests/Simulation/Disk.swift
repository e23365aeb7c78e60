// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// The content of a file: the version of the resource in each stretch.
struct Content: Equatable {
    private(set) var stretches: [(version: Int, end: ByteCount)] = []
    var length: ByteCount { stretches.last?.end ?? 0 }

    mutating func append(_ version: Int, upTo end: ByteCount) {
        guard end > length else { return }
        if stretches.last?.version == version { stretches[stretches.count - 1].end = end } else { stretches.append((version, end)) }
    }

    mutating func cut(_ length: ByteCount) {
        while let last = stretches.last, last.end > length {
            stretches.removeLast()
            if self.length < length { stretches.append((last.version, length)) }
        }
    }

    /// The version of the whole content; nil if there are several.
    var version: Int? { stretches.count == 1 ? stretches[0].version : nil }

    static func == (a: Content, b: Content) -> Bool { a.stretches.elementsEqual(b.stretches) { $0 == $1 } }
}

struct File {
    let inode: UInt64
    /// The time of the last write.
    var modified: Int64 = 0
    var content = Content()
    /// The bytes that are certain to survive a power cut.
    var durable: ByteCount = 0
    /// What further requests have brought behind missing bytes, in ascending order.
    var islands: [Stretch] = []
    /// All bytes that are certain to survive a power cut, those of islands too.
    var safe = ByteRanges()
    /// The places of the sources that have brought bytes of it (`DownloadRecord.sourceURLs`).
    var makers: Set<Int> = []
}

/// An unpacked or half-unpacked archive, and the journal of its extraction.
struct Unpacked {
    /// The inode of the archive.
    let archive: UInt64
    /// The inode of the folder.
    let inode: UInt64
    /// The folder under its provisional name, as one file with the archive's content; nil: it has its final name.
    var file: File?
}

/// Folders, part files and final files, in the page cache and on the disk.
struct Disk {
    var isFolderThere = true
    var isFull = false
    var parts: [DownloadNumber: File] = [:]
    var finals: [String: File] = [:]
    var folders: [DownloadNumber: Unpacked] = [:]
    /// The folder that has the part file of each download. What the download has left in other folders is in `left`, by its path.
    private var places: [DownloadNumber: String] = [:]
    private(set) var left: [String: (part: File?, folder: Unpacked?)] = [:]
    /// Part files have islands.
    var hasStretches = false
    private var nextInode: UInt64 = 100

    mutating func newInode() -> UInt64 {
        nextInode += 1
        return nextInode
    }

    private static func path(_ number: DownloadNumber, in directory: String) -> String { "\(directory)/\(number)" }

    private func isHere(_ number: DownloadNumber, _ directory: String) -> Bool { places[number].map { $0 == directory } ?? true }

    /// The download uses this folder from now on.
    mutating func turn(_ number: DownloadNumber, to directory: String) {
        let former = places.updateValue(directory, forKey: number) ?? directory
        guard former != directory else { return }
        let files = (part: parts[number], folder: folders[number])
        left[Self.path(number, in: former)] = files.part == nil && files.folder == nil ? nil : files
        (parts[number], folders[number]) = left.removeValue(forKey: Self.path(number, in: directory)) ?? (nil, nil)
    }

    /// Deletes what the download has in this folder.
    ///
    /// - Parameter keepsFolder: what an extraction has left stays.
    /// - Returns: the part file.
    mutating func delete(_ number: DownloadNumber, in directory: String, keepsFolder: Bool) -> File? {
        guard isHere(number, directory) else { return left.removeValue(forKey: Self.path(number, in: directory))?.part }
        if !keepsFolder { folders[number] = nil }
        return parts.removeValue(forKey: number)
    }

    /// A power cut brings a deleted part file back.
    mutating func restore(_ part: File, of number: DownloadNumber, in directory: String) {
        if isHere(number, directory) { parts[number] = part } else { left[Self.path(number, in: directory)] = (part, nil) }
    }

    /// Drops unflushed bytes: each file is cut, or zeroed, from a random length between its durable and its written length.
    mutating func cutPower(_ random: inout Random) {
        if hasStretches { for number in parts.keys.sorted() { parts[number]?.losePower(&random) } }
        for (number, file) in parts where !hasStretches {
            let loose = file.content.length - min(file.durable, file.content.length)
            parts[number]?.content.cut(file.durable + (loose == 0 ? 0 : random.next() % (loose + 1)))
            // The length may have reached the disk before the bytes: the bytes then read as zeros.
            if random.below(2) == 0 { parts[number]?.content.append(0, upTo: file.content.length) }
        }
        for (number, folder) in folders { if let file = folder.file { folders[number]?.file?.content.cut(file.durable) } }
    }
}

/// The resource of one URL.
struct Resource {
    var version = 1
    var size: ByteCount = 1000
    /// Whether responses have a strong validator.
    var hasValidator = true
    /// The kind of the next answer; 0: success.
    var mood = 0
    /// As `mood`, for each of its mirrors.
    var mirrorMoods = [0, 0]
    /// The places of the sources that send wrong bytes (`DownloadRecord.sourceURLs`).
    var wrong: Set<Int> = []
}
