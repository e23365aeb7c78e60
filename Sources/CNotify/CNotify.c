#include "CNotify.h"
#include <dlfcn.h>
#include <stdio.h>

static struct todoku_notify functions;
static char failure[256];

const struct todoku_notify *todoku_notify_functions(void) { return &functions; }

const char *todoku_notify_load(void) {
    // It brings GIO, GObject and GLib with it; dlsym(3) searches them too. Never closed: GLib starts threads.
    void *library = dlopen("libnotify.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(failure, sizeof failure, "%s", dlerror());
        return failure;
    }
#define TODOKU_NOTIFY_LOAD(result, name, ...) *(void **)&functions.name = dlsym(library, #name);
#define TODOKU_NOTIFY_CHECK(result, name, ...) \
    if (!functions.name) { \
        snprintf(failure, sizeof failure, "libnotify.so.4 has no %s", #name); \
        return failure; \
    }
    TODOKU_NOTIFY_FUNCTIONS(TODOKU_NOTIFY_LOAD)
    TODOKU_NOTIFY_OPTIONAL_FUNCTIONS(TODOKU_NOTIFY_LOAD)
    TODOKU_NOTIFY_FUNCTIONS(TODOKU_NOTIFY_CHECK)
    return NULL;
}

void todoku_notify_connect_closed(
    NotifyNotification *notification, todoku_notify_closed_callback handler, gpointer data, GClosureNotify destroy_data) {
    functions.g_signal_connect_data(notification, "closed", (GCallback)handler, data, destroy_data, (GConnectFlags)0);
}
