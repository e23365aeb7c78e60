public import DBus

/// `org.kde.StatusNotifierItem`: every member as hosts read and call them (freedesktop.org, "Status Notifier Item").
public enum ItemInterface {
    public static let name = "org.kde.StatusNotifierItem"
    public static let path = ObjectPath("/StatusNotifierItem")

    public static let category = PropertyOf(name, "Category", String.self, change: .untold)
    public static let id = PropertyOf(name, "Id", String.self, change: .untold)
    public static let title = PropertyOf(name, "Title", String.self, change: .untold)
    public static let status = PropertyOf(name, "Status", String.self, change: .untold)
    public static let windowId = PropertyOf(name, "WindowId", Int32.self, change: .untold)
    public static let iconThemePath = PropertyOf(name, "IconThemePath", String.self, change: .untold)
    public static let iconName = PropertyOf(name, "IconName", String.self, change: .untold)
    public static let iconPixmap = PropertyOf(name, "IconPixmap", IconPixmaps.self, change: .untold)
    public static let overlayIconName = PropertyOf(name, "OverlayIconName", String.self, change: .untold)
    public static let overlayIconPixmap = PropertyOf(name, "OverlayIconPixmap", IconPixmaps.self, change: .untold)
    public static let attentionIconName = PropertyOf(name, "AttentionIconName", String.self, change: .untold)
    public static let attentionIconPixmap = PropertyOf(name, "AttentionIconPixmap", IconPixmaps.self, change: .untold)
    /// The icon's text for a screen reader. An extension of the Ayatana project, read by GNOME's extension.
    public static let iconAccessibleDesc = PropertyOf(name, "IconAccessibleDesc", String.self, change: .untold)
    public static let attentionAccessibleDesc = PropertyOf(name, "AttentionAccessibleDesc", String.self, change: .untold)
    public static let attentionMovieName = PropertyOf(name, "AttentionMovieName", String.self, change: .untold)
    public static let toolTip = PropertyOf(name, "ToolTip", ToolTip.self, change: .untold)
    public static let itemIsMenu = PropertyOf(name, "ItemIsMenu", Bool.self, change: .untold)
    public static let menu = PropertyOf(name, "Menu", ObjectPath.self, change: .untold)

    public static let contextMenu = MethodOf(name, "ContextMenu", in: Int32.self, Int32.self)
    public static let activate = MethodOf(name, "Activate", in: Int32.self, Int32.self)
    public static let secondaryActivate = MethodOf(name, "SecondaryActivate", in: Int32.self, Int32.self)
    public static let scroll = MethodOf(name, "Scroll", in: Int32.self, String.self)
    /// The token is for the window that the next call opens (Plasma on Wayland).
    public static let provideXdgActivationToken = MethodOf(name, "ProvideXdgActivationToken", in: String.self)

    public static let newTitle = SignalOf(name, "NewTitle")
    public static let newIcon = SignalOf(name, "NewIcon")
    public static let newAttentionIcon = SignalOf(name, "NewAttentionIcon")
    public static let newOverlayIcon = SignalOf(name, "NewOverlayIcon")
    public static let newToolTip = SignalOf(name, "NewToolTip")
    public static let newStatus = SignalOf(name, "NewStatus", String.self)

    static let xml = """
          <interface name="org.kde.StatusNotifierItem">
            <property name="Category" type="s" access="read"/>
            <property name="Id" type="s" access="read"/>
            <property name="Title" type="s" access="read"/>
            <property name="Status" type="s" access="read"/>
            <property name="WindowId" type="i" access="read"/>
            <property name="IconThemePath" type="s" access="read"/>
            <property name="IconName" type="s" access="read"/>
            <property name="IconPixmap" type="a(iiay)" access="read"/>
            <property name="OverlayIconName" type="s" access="read"/>
            <property name="OverlayIconPixmap" type="a(iiay)" access="read"/>
            <property name="AttentionIconName" type="s" access="read"/>
            <property name="AttentionIconPixmap" type="a(iiay)" access="read"/>
            <property name="AttentionMovieName" type="s" access="read"/>
            <property name="IconAccessibleDesc" type="s" access="read"/>
            <property name="AttentionAccessibleDesc" type="s" access="read"/>
            <property name="ToolTip" type="(sa(iiay)ss)" access="read"/>
            <property name="ItemIsMenu" type="b" access="read"/>
            <property name="Menu" type="o" access="read"/>
            <method name="ContextMenu">
              <arg name="x" type="i" direction="in"/>
              <arg name="y" type="i" direction="in"/>
            </method>
            <method name="Activate">
              <arg name="x" type="i" direction="in"/>
              <arg name="y" type="i" direction="in"/>
            </method>
            <method name="SecondaryActivate">
              <arg name="x" type="i" direction="in"/>
              <arg name="y" type="i" direction="in"/>
            </method>
            <method name="Scroll">
              <arg name="delta" type="i" direction="in"/>
              <arg name="orientation" type="s" direction="in"/>
            </method>
            <method name="ProvideXdgActivationToken">
              <arg name="token" type="s" direction="in"/>
            </method>
            <signal name="NewTitle"/>
            <signal name="NewIcon"/>
            <signal name="NewAttentionIcon"/>
            <signal name="NewOverlayIcon"/>
            <signal name="NewToolTip"/>
            <signal name="NewStatus">
              <arg name="status" type="s"/>
            </signal>
          </interface>
        """
}

/// `org.kde.StatusNotifierWatcher`: keeps the list of items for the panels.
public enum WatcherInterface {
    public static let name = "org.kde.StatusNotifierWatcher"
    public static let path = ObjectPath("/StatusNotifierWatcher")
    public static let registerItem = MethodOf(name, "RegisterStatusNotifierItem", in: String.self)
}
