// SPDX-License-Identifier: Apache-2.0
import DownloadModel
import Scheduling

/// The bytes of a file: from which version of the resource each stretch is.
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

    /// The version that all of it is, if it is one.
    var version: Int? { stretches.count == 1 ? stretches[0].version : nil }

    static func == (a: Content, b: Content) -> Bool { a.stretches.elementsEqual(b.stretches) { $0 == $1 } }
}

struct File {
    let inode: UInt64
    /// When it was written last.
    var modified: Int64 = 0
    var content = Content()
    /// How much of it survives a power cut for certain.
    var durable: ByteCount = 0
}

/// Folders, part files, final files; what the page cache has and what the disk has.
struct Disk {
    var isFolderThere = true
    var isFull = false
    var parts: [DownloadNumber: File] = [:]
    var finals: [String: File] = [:]
    private var nextInode: UInt64 = 100

    mutating func newInode() -> UInt64 {
        nextInode += 1
        return nextInode
    }

    /// Drops what was not flushed: of each file all beyond a length between what is durable and what was written is gone, or zeros.
    mutating func cutPower(_ random: inout Random) {
        for (number, file) in parts {
            let loose = file.content.length - min(file.durable, file.content.length)
            parts[number]?.content.cut(file.durable + (loose == 0 ? 0 : random.next() % (loose + 1)))
            // The length may have come to the disk before the bytes: they read as zeros.
            if random.below(2) == 0 { parts[number]?.content.append(0, upTo: file.content.length) }
        }
    }
}

/// One URL's resource.
struct Resource {
    var version = 1
    var size: ByteCount = 1000
    /// Whether it comes with a strong validator.
    var hasValidator = true
    /// How it answers next: 0 well.
    var mood = 0
}
