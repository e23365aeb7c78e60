package import DownloadModel
internal import PartFiles

/// A system call that changes the disk.
package enum ExtractionStep: String, CaseIterable, Sendable {
    case makeFolder, makeFile, write, endFile, symbolicLink, hardLink, remove, flush, journal, flushJournal, rename, flushParent
}

/// Where the entries of an archive are unpacked.
package enum UnpackingPlace: Sendable {
    /// In a confined child process.
    case child(ChildProgram)
    /// In this process, which is not confined: for fuzzers, and for tests that act between two steps.
    case thisProcess
}

/// A program that calls `UnpackingChild.run` if it is started with these arguments.
package struct ChildProgram: Sendable {
    package var path: String
    package var arguments: [String]

    /// This program. The kernel opens its file by the process, so a program that was replaced by an update still starts itself.
    package static let own = ChildProgram("/proc/self/exe", [UnpackingChild.argument])

    package init(_ path: String, _ arguments: [String]) { (self.path, self.arguments) = (path, arguments) }
}

/// The hooks and values that tests and their programs replace.
package struct ExtractionCalls: Sendable {
    /// Called before each system call that changes the disk.
    package var before: @Sendable (ExtractionStep) -> Void = { _ in }
    /// Whether one syncfs(2) flushes all files; nil: the file system decides.
    package var isFlushedWhole: Bool?
    /// The boot id; nil: that of the running kernel.
    package var boot: String?
    /// The identity of an open folder, with this boot id; nil if its file system does not tell.
    package var identify: @Sendable (_ folder: Int32, _ boot: String) -> FileIdentity? = { try? fileIdentity(of: $0, boot: $1) }

    package var place = UnpackingPlace.child(.own)
    /// The child is killed if it tells of no progress for so many seconds, unless it waits for a disk.
    package var patience = Duration.seconds(600)

    package init() {}
}
