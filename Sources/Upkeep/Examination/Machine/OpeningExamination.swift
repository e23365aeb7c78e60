internal import Desktop
internal import EventLoop

/// How a finished file is opened: by xdg-open, or by the desktop portal (`Opener`).
enum OpeningExamination {
    /// - Parameters:
    ///   - start: the environment of the service.
    ///   - session: nil: there is no session bus.
    @BusActor static func finding(_ start: StartEnvironment, _ session: BusProbe?) async -> Finding {
        let variables = start.variables
        guard let found = await Pool.programs.value(within: BusProbe.patience, { findProgram("xdg-open", in: variables) }) else {
            return Finding(
                .opening, .wrong, Phrase("xdg-open cannot be looked up in time"), advice: Phrase("Check the disks of the folders in PATH."))
        }
        let hasPortal = await session?.owner(of: SessionExamination.portalName) != nil
        return finding(found, hasPortal: hasPortal, hasDisplay: Opener.hasDisplay(in: variables), start)
    }

    /// - Parameter program: the path of xdg-open; nil: there is none.
    static func finding(_ program: String?, hasPortal: Bool, hasDisplay: Bool, _ start: StartEnvironment) -> Finding {
        switch (program, hasPortal, hasDisplay) {
        case (let program?, true, true): Finding(.opening, .found, Phrase("\(program) opens files, and the desktop portal if it fails"))
        case (let program?, false, true): Finding(.opening, .found, Phrase("\(program) opens files"))
        case (_, true, false): Finding(.opening, .found, Phrase("the desktop portal opens files, because the service has no display"))
        case (nil, true, true): Finding(.opening, .found, Phrase("the desktop portal opens files"))
        case (nil, false, _):
            Finding(
                .opening, .missing, Phrase("neither xdg-open nor a running desktop portal is there, so no file is opened"),
                advice: Phrase("Install xdg-utils, or xdg-desktop-portal with the portal of your desktop."))
        case (let program?, false, false):
            Finding(
                .opening, .missing, Phrase("\(program) has no display to open files on, \(start.origin)"),
                advice: start.advice(for: ["DISPLAY", "WAYLAND_DISPLAY"]))
        }
    }
}
