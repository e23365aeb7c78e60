/* SPDX-License-Identifier: Apache-2.0
 * A client of Todoku, with what gdbus-codegen generates:
 *   interfaces=$(pkg-config --variable=interface_files todoku)
 *   gdbus-codegen --interface-prefix org.todoku. --c-namespace Todoku --generate-c-code todoku $interfaces
 *   cc glib.c todoku.c -o client $(pkg-config --cflags --libs gio-unix-2.0)
 *
 *   client [--again | --cancel] URL [FOLDER]
 *
 * It queues a download, shows its progress, and waits for its end. If the client is killed, the download continues, and --again waits for
 * it; --cancel cancels it. The exit status is 0 if the download finished or was cancelled by --cancel, 1 if it failed, and 69 if Todoku is
 * missing. An existing file of the same name is replaced.
 */
#include "todoku.h"
#include <stdio.h>
#include <string.h>

#define APP "org.example.GlibClient"
#define TODOKU "org.todoku.Downloader1"
#define MANAGER "/org/todoku/Downloader1"
#define MOST_LOSSES 6  /* in a row: then the service does not work */

static GMainLoop *loop;
static TodokuDownload1 *download;
static int status = 1, losses;
static gint64 asked;

/* The service exited or crashed before it answered. */
static gboolean is_lost(const GError *error) { return g_error_matches(error, G_DBUS_ERROR, G_DBUS_ERROR_NO_REPLY); }

/* The bus knows no such service, or cannot start it. */
static gboolean is_missing(const char *name)
{
    if (name == NULL) return FALSE;
    return strcmp(name, "org.freedesktop.DBus.Error.ServiceUnknown") == 0 || g_str_has_prefix(name, "org.freedesktop.DBus.Error.Spawn.") ||
        g_str_has_prefix(name, "org.freedesktop.systemd1.");
}

/* GDBus puts the name of a D-Bus error before its message. Its own errors have no such name, but the name of their domain. */
static void failed(GError *error)
{
    char *name = g_dbus_error_get_remote_error(error);
    const char *dot = name ? strrchr(name, '.') : NULL;
    g_dbus_error_strip_remote_error(error);
    if (is_missing(name)) status = 69;
    printf("failed %s: %s%s\n", dot ? dot + 1 : g_quark_to_string(error->domain),
        status == 69 ? "Todoku is not installed, or cannot be started: " : "", error->message);
    g_free(name);
    g_error_free(error);
    g_main_loop_quit(loop);
}

/* An ended download of an earlier run still has the token: the call Download would return it. */
static gboolean remove_ended(const char *path, GError **error)
{
    static const char *const ends[] = { "finished", "failed", "cancelled", NULL };
    TodokuDownload1 *former = todoku_download1_proxy_new_for_bus_sync(
        G_BUS_TYPE_SESSION, G_DBUS_PROXY_FLAGS_DO_NOT_LOAD_PROPERTIES, TODOKU, path, NULL, error);
    if (former == NULL) return FALSE;
    /* A property that the proxy has loaded is NULL also if no answer came. */
    GError *failure = NULL;
    GVariant *answer = g_dbus_connection_call_sync(g_dbus_proxy_get_connection(G_DBUS_PROXY(former)), TODOKU, path,
        "org.freedesktop.DBus.Properties", "Get", g_variant_new("(ss)", "org.todoku.Download1", "State"), G_VARIANT_TYPE("(v)"),
        G_DBUS_CALL_FLAGS_NONE, 60000, NULL, &failure);
    gboolean is_ready = FALSE;
    if (answer != NULL) {
        GVariant *state;
        g_variant_get(answer, "(v)", &state);
        gboolean has_ended = g_strv_contains(ends, g_variant_get_string(state, NULL));
        is_ready = !has_ended || todoku_download1_call_remove_sync(former, FALSE, NULL, error);
        g_variant_unref(state);
        g_variant_unref(answer);
    } else if (g_error_matches(failure, G_DBUS_ERROR, G_DBUS_ERROR_UNKNOWN_OBJECT)) {
        is_ready = TRUE;  /* there is no such download */
        g_error_free(failure);
    } else {
        g_propagate_error(error, failure);
    }
    g_object_unref(former);
    return is_ready;
}

/* After the answer, the download is on disk. The token makes a repeated call return the same download. */
static gboolean queue(const char *url, const char *folder, const char *token, const char *path, GError **error)
{
    if (!remove_ended(path, error)) return FALSE;
    TodokuDownloader1 *manager = todoku_downloader1_proxy_new_for_bus_sync(
        G_BUS_TYPE_SESSION, G_DBUS_PROXY_FLAGS_DO_NOT_LOAD_PROPERTIES, TODOKU, MANAGER, NULL, error);
    if (manager == NULL) return FALSE;
    g_dbus_proxy_set_default_timeout(G_DBUS_PROXY(manager), 60000);
    GVariantBuilder options;
    g_variant_builder_init(&options, G_VARIANT_TYPE_VARDICT);
    g_variant_builder_add(&options, "{sv}", "app", g_variant_new_string(APP));
    g_variant_builder_add(&options, "{sv}", "token", g_variant_new_string(token));
    g_variant_builder_add(&options, "{sv}", "if-exists", g_variant_new_string("replace"));
    if (folder != NULL) g_variant_builder_add(&options, "{sv}", "directory", g_variant_new_string(folder));
    char *queued = NULL;
    if (todoku_downloader1_call_download_sync(manager, url, g_variant_builder_end(&options), &queued, NULL, error))
        printf("queued %s\n", queued);
    g_object_unref(manager);
    gboolean is_queued = queued != NULL;
    g_free(queued);
    return is_queued;
}

static void progress(TodokuDownload1 *object, guint64 written, guint64 received, gint64 total, gpointer data)
{
    /* The total is -1 while the server has not told it. */
    if (received > 0) printf("progress %" G_GUINT64_FORMAT " of %" G_GINT64_FORMAT "\n", received, total);
}

/* Says why the download waits. docs/dbus.md has the reasons; empty: it does not wait. */
static void waits(TodokuDownload1 *object, GParamSpec *changed, gpointer data)
{
    const char *reason = todoku_download1_get_wait_reason(object);
    if (reason != NULL && *reason != 0) printf("waiting %s\n", reason);
}

static gboolean begin_wait(gpointer data);

static void answered(GObject *source, GAsyncResult *result, gpointer data)
{
    GError *error = NULL;
    char *file = NULL;
    if (todoku_download1_call_wait_finish(download, &file, result, &error)) {
        printf("finished %s\n", file);
        g_free(file);
        status = 0;
        g_main_loop_quit(loop);
        return;
    }
    losses = g_get_monotonic_time() - asked > 30 * G_USEC_PER_SEC ? 1 : losses + 1;
    if (!is_lost(error) || losses > MOST_LOSSES) {
        failed(error);
        return;
    }
    g_error_free(error);
    /* The download resumes with the service, and the next call starts the service. */
    g_timeout_add(losses == 1 ? 0 : 1000 << (losses - 2), begin_wait, NULL);
}

/* Do not call Wait by todoku_download1_call_wait_sync(): after a restart of the service, a proxy calls the process that has exited, until
 * the main loop runs. */
static gboolean begin_wait(gpointer data)
{
    asked = g_get_monotonic_time();
    todoku_download1_call_wait(download, g_variant_new("a{sv}", NULL), NULL, answered, NULL);
    return G_SOURCE_REMOVE;
}

/* The proxy first subscribed, and then read: its properties are newer than the signals before. */
static void found(GObject *source, GAsyncResult *result, gpointer data)
{
    GError *error = NULL;
    download = todoku_download1_proxy_new_for_bus_finish(result, &error);
    if (download == NULL) {
        failed(error);
        return;
    }
    g_signal_connect(download, "progress", G_CALLBACK(progress), NULL);
    g_signal_connect(download, "notify::wait-reason", G_CALLBACK(waits), NULL);
    progress(download, 0, todoku_download1_get_received(download), todoku_download1_get_total(download), NULL);
    waits(download, NULL, NULL);
    g_dbus_proxy_set_default_timeout(G_DBUS_PROXY(download), G_MAXINT);  /* no time limit; otherwise 25 s */
    begin_wait(NULL);
}

static gboolean cancel(const char *path, GError **error)
{
    TodokuDownload1 *former = todoku_download1_proxy_new_for_bus_sync(
        G_BUS_TYPE_SESSION, G_DBUS_PROXY_FLAGS_DO_NOT_LOAD_PROPERTIES, TODOKU, path, NULL, error);
    if (former == NULL) return FALSE;
    gboolean is_cancelled = todoku_download1_call_cancel_sync(former, NULL, error);
    if (is_cancelled) printf("cancelled %s\n", path);
    g_object_unref(former);
    return is_cancelled;
}

int main(int argc, char **argv)
{
    gboolean again = argc > 1 && strcmp(argv[1], "--again") == 0;
    gboolean cancels = argc > 1 && strcmp(argv[1], "--cancel") == 0;
    char **given = argv + (again || cancels ? 2 : 1);
    int count = argc - (again || cancels ? 2 : 1);
    if (count < 1 || count > 2) return fprintf(stderr, "usage: %s [--again | --cancel] URL [FOLDER]\n", argv[0]), 64;
    /* A relative name begins with the working folder. */
    char *folder = count > 1 ? g_canonicalize_filename(given[1], NULL) : NULL;
    if (!g_utf8_validate(given[0], -1, NULL) || (folder != NULL && !g_utf8_validate(folder, -1, NULL)))
        return fprintf(stderr, "%s: D-Bus carries only text in UTF-8\n", argv[0]), 64;
    setvbuf(stdout, NULL, _IOLBF, 0);
    loop = g_main_loop_new(NULL, FALSE);
    /* A letter, then letters and digits: such a token needs no escaping in the object path. */
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, given[0], -1);
    char *token = g_strdup_printf("url%.32s", digest);
    char *path = g_strconcat(MANAGER, "/download/by_token/org_2eexample_2eGlibClient/", token, NULL);
    GError *error = NULL;
    if (cancels) {
        if (cancel(path, &error)) return 0;
        failed(error);
        return status;
    }
    gboolean is_queued = again || queue(given[0], folder, token, path, &error);
    if (!is_queued && is_lost(error)) {
        /* The next call starts the service. */
        g_clear_error(&error);
        is_queued = queue(given[0], folder, token, path, &error);
    }
    if (is_queued) {
        todoku_download1_proxy_new_for_bus(G_BUS_TYPE_SESSION, G_DBUS_PROXY_FLAGS_NONE, TODOKU, path, NULL, found, NULL);
        g_main_loop_run(loop);
    } else {
        failed(error);
    }
    return status;
}
