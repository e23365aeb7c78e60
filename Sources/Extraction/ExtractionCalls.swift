/// A system call that changes the disk.
package enum ExtractionStep: String, CaseIterable, Sendable {
    case makeFolder, makeFile, write, endFile, symbolicLink, hardLink, remove, flush, journal, flushJournal, rename, flushParent
}

/// What tests and the programs of tests see and replace.
package struct ExtractionCalls: Sendable {
    /// Comes before each system call that changes the disk.
    package var before: @Sendable (ExtractionStep) -> Void = { _ in }
    /// Whether one syncfs(2) flushes all; nil: as the file system says.
    package var isFlushedWhole: Bool?
    /// The id of the running kernel; nil: as it says.
    package var boot: String?

    package init() {}
}
