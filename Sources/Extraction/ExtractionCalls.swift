/// A system call that changes the disk.
package enum ExtractionStep: String, CaseIterable, Sendable {
    case makeFolder, makeFile, write, endFile, symbolicLink, hardLink, remove, flush, journal, flushJournal, rename, flushParent
}

/// The hooks and values that tests and their programs replace.
package struct ExtractionCalls: Sendable {
    /// Called before each system call that changes the disk.
    package var before: @Sendable (ExtractionStep) -> Void = { _ in }
    /// Whether one syncfs(2) flushes all files; nil: the file system decides.
    package var isFlushedWhole: Bool?
    /// The boot id; nil: that of the running kernel.
    package var boot: String?

    package init() {}
}
