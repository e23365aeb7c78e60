internal import EventLoop
internal import Glibc

/// A real xfce4-notifyd on a private bus and a display, with a window manager. It ends with its last reference.
public final class XfceNotifyd: Sendable {
    private let server: Child
    private let manager: Child
    private let environment: [String: String]
    private let display: Display

    /// Returns once the server owns its name. Debian: xfce4-notifyd, xfconf, openbox, xdotool, adwaita-icon-theme.
    public init(on bus: PrivateBus, _ display: Display) async {
        let environment = bus.environment.merging(["DISPLAY": display.name]) { $1 }
        (self.environment, self.display) = (environment, display)
        await bus.makeActivatable("org.xfce.Xfconf", libraryProgram("xfce4/xfconf/xfconfd", package: "xfconf"))
        manager = Child(["openbox"], environment: environment)
        let server = Child([libraryProgram("xfce4/notifyd/xfce4-notifyd", package: "xfce4-notifyd")], environment: environment)
        self.server = server
        let owns = await bus.waitForOwner("org.freedesktop.Notifications")
        precondition(owns && server.isRunning, "xfce4-notifyd did not start: \(server.errors)")
        precondition(manager.isRunning, "openbox (package openbox) did not start: \(manager.errors)")
    }

    /// The windows of the toasts on screen.
    public func windows() async -> [String] {
        let exit = await Child.run(["xdotool", "search", "--onlyvisible", "--class", "^xfce4-notifyd$"], environment: environment)
        precondition(!exit.errors.contains("xdotool"), "xdotool (package xdotool): \(exit.errors)")
        return exit.output.split(separator: "\n").map(String.init)
    }

    public enum Button: Sendable { case first, last }

    /// Clicks with the mouse on one of at most two buttons of a toast's window. The buttons are equally wide, and in the lower right
    /// corner.
    public func click(_ window: String, _ button: Button) async {
        let shape = await Child.run(["xdotool", "getwindowgeometry", "--shell", window], environment: environment)
        func value(_ key: String) -> Int {
            shape.output.split(separator: "\n").first { $0.hasPrefix("\(key)=") }.flatMap { Int($0.dropFirst(key.count + 1)) } ?? 0
        }
        let x = value("X") + value("WIDTH") - (button == .last ? 50 : 170)
        let y = value("Y") + value("HEIGHT") - 30
        let click = await Child.run(["xdotool", "mousemove", "\(x)", "\(y)", "click", "1"], environment: environment)
        precondition(click.status == 0, "xdotool: \(click.errors)")
    }

    public func stop() async {
        await server.stop()
        await manager.stop()
    }
}

/// A program that Debian installs beside the libraries.
private func libraryProgram(_ name: String, package: String) -> String {
    let multiarch = listFolder("/usr/lib").filter { $0.hasSuffix("-linux-gnu") }.map { "/usr/lib/\($0)" }
    let paths: [String] = (multiarch + ["/usr/lib", "/usr/libexec"]).map { "\($0)/\(name)" }
    guard let path = paths.first(where: { access($0, X_OK) == 0 }) else {
        preconditionFailure("this test needs \(name): install the package \(package) (meson-helpers/set-up)")
    }
    return path
}
