internal import CConfine
internal import DownloadModel
internal import Glibc

/// What confines the process that unpacks. The kernel, or a rule of the distribution, may lack some of it.
package struct Confinement: OptionSet, Equatable, Sendable {
    package let rawValue: UInt32
    package init(rawValue: UInt32) { self.rawValue = rawValue }
    private init(_ bit: todoku_confinement) { self.init(rawValue: bit.rawValue) }

    /// Limits of memory, processor time, files and processes (setrlimit(2)).
    package static let limits = Confinement(TODOKU_CONFINED_LIMITS)
    /// A filter of system calls (seccomp(2)).
    package static let calls = Confinement(TODOKU_CONFINED_CALLS)
    /// No file outside of the folder (landlock(7)).
    package static let files = Confinement(TODOKU_CONFINED_FILES)
    /// The folder as the root (chroot(2)) in a user namespace.
    package static let root = Confinement(TODOKU_CONFINED_ROOT)
    /// A network namespace without a network.
    package static let network = Confinement(TODOKU_CONFINED_NETWORK)
    package static let all: Confinement = [.limits, .calls, .files, .root, .network]

    /// Without these, a process that an archive has taken over could harm more than its folder: either of two fences is enough.
    package var isEnough: Bool { contains(.calls) && !isDisjoint(with: [.files, .root]) }

    private static let names: [(Confinement, String)] = [
        (.limits, "limits"), (.calls, "seccomp"), (.files, "Landlock"), (.root, "chroot"), (.network, "network namespace"),
    ]

    /// For the log: "limits, seccomp, Landlock".
    package var text: String { Self.names.filter { contains($0.0) }.map(\.1).joined(separator: ", ") }
}

extension ExtractionLimits {
    /// Bounds of the process that unpacks an archive of `size` bytes.
    func bounds(size: ByteCount) -> todoku_bounds {
        let bytes = mostUnpacked(of: size)
        return todoku_bounds(
            // The widest window, the marks of the entries, and the rest: buffers, tables of the decoders.
            memory: (1 << UInt64(clamping: min(windowLog, 40))) +| UInt64(clamping: entries) *| 512 +| 96 << 20,
            // One MiB in a second is slower than any decoder.
            seconds: 600 +| bytes >> 20, file_size: max(bytes, 4096), descriptors: UInt64(clamping: depth) +| 24)
    }
}
