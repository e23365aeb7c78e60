internal import EventLoop
internal import Glibc

/// A real xfce4-panel that contains only a tray, along the bottom of a display. It ends with its last reference.
public final class XfcePanel: Sendable {
    private let panel: Child
    private let environment: [String: String]
    private let display: Display

    /// The names that the bus must be able to activate for the panel.
    public static var activatable: [String: String] {
        let candidates = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/libexec"].map {
            "\($0)/xfce4/xfconf/xfconfd"
        }
        guard let program = candidates.first(where: { access($0, X_OK) == 0 }) else {
            preconditionFailure("there is no xfconfd; install the package xfconf")
        }
        return ["org.xfce.Xfconf": program]
    }

    /// Returns once trays can register. `bus` must have `activatable`, and the display in its environment.
    public init(on bus: PrivateBus, _ display: Display) async {
        for (program, package) in [("xfce4-panel", "xfce4-panel"), ("xdotool", "xdotool"), ("convert", "imagemagick")] {
            let isThere = (processEnvironment()["PATH"] ?? "/usr/bin:/bin").split(separator: ":").contains {
                access("\($0)/\(program)", X_OK) == 0
            }
            precondition(isThere, "there is no \(program); install the package \(package)")
        }
        (environment, self.display) = (bus.environment, display)
        var folder = "config"
        for name in ["xfce4", "xfconf", "xfce-perchannel-xml"] {
            folder += "/\(name)"
            bus.folder.makeFolder(folder)
        }
        writeFile(bus.folder("\(folder)/xfce4-panel.xml"), Self.configuration.utf8)
        let panel = Child(["xfce4-panel", "--disable-wm-check"], environment: bus.environment)
        self.panel = panel
        let owns = await bus.waitForOwner("org.kde.StatusNotifierWatcher")
        precondition(owns && panel.isRunning, "xfce4-panel did not start: \(panel.errors)")
    }

    /// The pixels with a colour such as `#3D9AE8` on the screen, from left to right.
    public func places(of colour: String) async -> [(x: Int, y: Int)] {
        let picture = "\(environment["HOME"] ?? "/tmp")/screen.png"
        await display.screenshot(picture)
        let wanted = colour.uppercased()
        let list = await Child.run(["convert", picture, "-alpha", "off", "-depth", "8", "txt:-"])
        precondition(list.status == 0, "convert: \(list.errors)")
        return list.output.split(separator: "\n").compactMap { line in
            guard line.uppercased().contains(wanted), let colon = line.firstIndex(of: ":") else { return nil }
            let numbers = line[..<colon].split(separator: ",").compactMap { Int($0) }
            return numbers.count == 2 ? (numbers[0], numbers[1]) : nil
        }
    }

    /// Runs xdotool(1).
    public func act(_ arguments: String...) async {
        let exit = await Child.run(["xdotool"] + arguments, environment: environment)
        precondition(exit.status == 0, "xdotool: \(exit.errors)")
    }

    public func stop() async { await panel.stop() }

    private static let configuration = """
        <?xml version="1.0" encoding="UTF-8"?>
        <channel name="xfce4-panel" version="1.0">
          <property name="configver" type="int" value="2"/>
          <property name="panels" type="array"><value type="int" value="1"/>
            <property name="panel-1" type="empty">
              <property name="position" type="string" value="p=8;x=10;y=10"/>
              <property name="length" type="uint" value="100"/><property name="position-locked" type="bool" value="true"/>
              <property name="size" type="uint" value="32"/><property name="icon-size" type="uint" value="22"/>
              <property name="plugin-ids" type="array"><value type="int" value="1"/><value type="int" value="2"/></property>
            </property></property>
          <property name="plugins" type="empty">
            <property name="plugin-1" type="string" value="separator"><property name="expand" type="bool" value="true"/></property>
            <property name="plugin-2" type="string" value="systray"/>
          </property>
        </channel>
        """
}
