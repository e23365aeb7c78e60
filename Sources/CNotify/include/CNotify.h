// libnotify and the little of GLib that it is spoken to with: a table of functions, loaded on first use.
//
// Types and prototypes are declared here, so that a build needs no GLib headers. Each declares the same as the header named beside it: data
// structure layouts and prototypes, whose use the LGPL 2.1 does not limit (section 5). A test compiles the table against the real headers.
// Where those are included before this file, its own types stand back.
#pragma once
#include <stddef.h>

#ifndef _LIBNOTIFY_NOTIFY_H_
// glib/gtypes.h
typedef int gboolean;
typedef int gint;
typedef unsigned int guint;
typedef unsigned long gsize;
typedef unsigned long gulong;
typedef char gchar;
typedef void *gpointer;
typedef void (*GDestroyNotify)(gpointer data);
typedef void (*GFreeFunc)(gpointer data);
// glib/gquark.h, gerror.h: public layouts
typedef unsigned int GQuark;
typedef struct _GError {
    GQuark domain;
    gint code;
    gchar *message;
} GError;
typedef struct _GMainContext GMainContext;
typedef struct _GVariant GVariant;
typedef struct _GVariantType GVariantType;
// gobject/gclosure.h, gsignal.h
typedef struct _GClosure GClosure;
typedef void (*GCallback)(void);
typedef void (*GClosureNotify)(gpointer data, GClosure *closure);
typedef enum { G_CONNECT_DEFAULT = 0 } GConnectFlags;
// gio/giotypes.h, gioenums.h
typedef struct _GCancellable GCancellable;
typedef struct _GDBusConnection GDBusConnection;
typedef enum { G_BUS_TYPE_SESSION = 2 } GBusType;
typedef enum { G_DBUS_CALL_FLAGS_NONE = 0 } GDBusCallFlags;
typedef enum { G_DBUS_SIGNAL_FLAGS_NONE = 0 } GDBusSignalFlags;
typedef void (*GDBusSignalCallback)(
    GDBusConnection *connection, const gchar *sender_name, const gchar *object_path, const gchar *interface_name,
    const gchar *signal_name, GVariant *parameters, gpointer user_data);
// libnotify/notification.h
typedef struct _NotifyNotification NotifyNotification;
typedef enum { NOTIFY_URGENCY_LOW, NOTIFY_URGENCY_NORMAL, NOTIFY_URGENCY_CRITICAL } NotifyUrgency;
typedef void (*NotifyActionCallback)(NotifyNotification *notification, char *action, gpointer user_data);
#endif

// F(result, name, parameters…): what must be there. Ownership as in the libraries' documentation.
#define TODOKU_NOTIFY_FUNCTIONS(F) \
    /* libnotify/notify.h */ \
    F(gboolean, notify_init, const char *app_name) \
    F(gboolean, notify_get_server_info, char **ret_name, char **ret_vendor, char **ret_version, char **ret_spec_version) \
    /* libnotify/notification.h */ \
    F(NotifyNotification *, notify_notification_new, const char *summary, const char *body, const char *icon) \
    F(gboolean, notify_notification_update, NotifyNotification *notification, const char *summary, const char *body, const char *icon) \
    F(gboolean, notify_notification_show, NotifyNotification *notification, GError **error) \
    F(void, notify_notification_set_timeout, NotifyNotification *notification, gint timeout) \
    F(void, notify_notification_set_category, NotifyNotification *notification, const char *category) \
    F(void, notify_notification_set_urgency, NotifyNotification *notification, NotifyUrgency urgency) \
    F(void, notify_notification_set_hint, NotifyNotification *notification, const char *key, GVariant *value) \
    F(void, notify_notification_add_action, NotifyNotification *notification, const char *action, const char *label, \
      NotifyActionCallback callback, gpointer user_data, GFreeFunc free_func) \
    F(gboolean, notify_notification_close, NotifyNotification *notification, GError **error) \
    F(gint, notify_notification_get_closed_reason, const NotifyNotification *notification) \
    /* glib/gmain.h */ \
    F(GMainContext *, g_main_context_new, void) \
    F(void, g_main_context_push_thread_default, GMainContext *context) \
    F(gboolean, g_main_context_iteration, GMainContext *context, gboolean may_block) \
    F(void, g_main_context_wakeup, GMainContext *context) \
    /* glib/gmem.h, gerror.h */ \
    F(void, g_free, gpointer mem) \
    F(void, g_error_free, GError *error) \
    /* glib/gvariant.h */ \
    F(GVariant *, g_variant_new_boolean, gboolean value) \
    F(GVariant *, g_variant_new_int32, gint value) \
    F(GVariant *, g_variant_new_string, const gchar *string) \
    F(GVariant *, g_variant_new_strv, const gchar *const *strv, long length) \
    F(GVariant *, g_variant_new_tuple, GVariant *const *children, gsize n_children) \
    F(gsize, g_variant_n_children, GVariant *value) \
    F(GVariant *, g_variant_get_child_value, GVariant *value, gsize index) \
    F(const gchar *, g_variant_get_string, GVariant *value, gsize *length) \
    F(void, g_variant_unref, GVariant *value) \
    /* gobject/gobject.h, gsignal.h */ \
    F(void, g_object_unref, gpointer object) \
    F(gulong, g_signal_connect_data, gpointer instance, const gchar *detailed_signal, GCallback c_handler, gpointer data, \
      GClosureNotify destroy_data, GConnectFlags connect_flags) \
    /* gio/gdbusconnection.h */ \
    F(GDBusConnection *, g_bus_get_sync, GBusType bus_type, GCancellable *cancellable, GError **error) \
    F(gboolean, g_dbus_connection_is_closed, GDBusConnection *connection) \
    F(void, g_dbus_connection_set_exit_on_close, GDBusConnection *connection, gboolean exit_on_close) \
    F(GVariant *, g_dbus_connection_call_sync, GDBusConnection *connection, const gchar *bus_name, const gchar *object_path, \
      const gchar *interface_name, const gchar *method_name, GVariant *parameters, const GVariantType *reply_type, \
      GDBusCallFlags flags, gint timeout_msec, GCancellable *cancellable, GError **error) \
    F(guint, g_dbus_connection_signal_subscribe, GDBusConnection *connection, const gchar *sender, const gchar *interface_name, \
      const gchar *member, const gchar *object_path, const gchar *arg0, GDBusSignalFlags flags, GDBusSignalCallback callback, \
      gpointer user_data, GDestroyNotify user_data_free_func)

// Since libnotify 0.7.10, and 0.7.3; NULL in an older one.
#define TODOKU_NOTIFY_OPTIONAL_FUNCTIONS(F) \
    F(void, notify_notification_set_app_name, NotifyNotification *notification, const char *app_name) \
    F(const char *, notify_notification_get_activation_token, NotifyNotification *notification)

struct todoku_notify {
#define TODOKU_NOTIFY_MEMBER(result, name, ...) result (*name)(__VA_ARGS__);
    TODOKU_NOTIFY_FUNCTIONS(TODOKU_NOTIFY_MEMBER)
    TODOKU_NOTIFY_OPTIONAL_FUNCTIONS(TODOKU_NOTIFY_MEMBER)
#undef TODOKU_NOTIFY_MEMBER
};

/// Opens libnotify.so.4 and fills the table. NULL, or why not: a static text. Once, on the thread that will use it.
const char *todoku_notify_load(void);

/// The table; its members are NULL until the library is loaded. Everything but g_main_context_wakeup is called on the loading thread only.
const struct todoku_notify *todoku_notify_functions(void);

typedef void (*todoku_notify_closed_callback)(NotifyNotification *notification, gpointer data);

/// g_signal_connect_data for the signal `closed`, with its handler's own type.
void todoku_notify_connect_closed(
    NotifyNotification *notification, todoku_notify_closed_callback handler, gpointer data, GClosureNotify destroy_data);
