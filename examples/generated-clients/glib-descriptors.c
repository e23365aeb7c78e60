/* SPDX-License-Identifier: Apache-2.0
 * More calls, with what gdbus-codegen generates (see glib.c). The program downloads URL to FOLDER, and then into a descriptor. It replaces
 * the URL of a paused download, and sees the property change.
 */
#include "todoku.h"
#include <fcntl.h>
#include <gio/gunixfdlist.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *SERVICE = "org.todoku.Downloader1";

static void check(gboolean ok, GError *error)
{
    if (ok) return;
    fprintf(stderr, "%s\n", error->message);
    exit(1);
}

static void show(const char *name, int fd)
{
    char text[256];
    ssize_t length = pread(fd, text, sizeof text, 0);
    printf("%s %.*s\n", name, (int)(length > 0 ? length : 0), text);
}

static TodokuDownload1 *download_at(const char *path)
{
    GError *error = NULL;
    TodokuDownload1 *download =
        todoku_download1_proxy_new_for_bus_sync(G_BUS_TYPE_SESSION, G_DBUS_PROXY_FLAGS_NONE, SERVICE, path, NULL, &error);
    check(download != NULL, error);
    g_dbus_proxy_set_default_timeout(G_DBUS_PROXY(download), G_MAXINT);
    return download;
}

static GVariant *nothing(void) { return g_variant_new("a{sv}", NULL); }

static void changed(GObject *object, GParamSpec *property, gpointer loop)
{
    (void)property;
    printf("url now %s\n", todoku_download1_get_url(TODOKU_DOWNLOAD1(object)));
    g_main_loop_quit(loop);
}

int main(int argc, char **argv)
{
    GError *error = NULL;
    if (argc != 3) return fprintf(stderr, "usage: %s URL FOLDER\n", argv[0]), 64;
    TodokuDownloader1 *manager = todoku_downloader1_proxy_new_for_bus_sync(
        G_BUS_TYPE_SESSION, G_DBUS_PROXY_FLAGS_NONE, SERVICE, "/org/todoku/Downloader1", NULL, &error);
    check(manager != NULL, error);

    GVariantBuilder options;
    g_variant_builder_init(&options, G_VARIANT_TYPE_VARDICT);
    g_variant_builder_add(&options, "{sv}", "directory", g_variant_new_string(argv[2]));
    g_variant_builder_add(&options, "{sv}", "notify", g_variant_new_string("never"));
    char *path = NULL, *file = NULL;
    check(todoku_downloader1_call_download_sync(manager, argv[1], g_variant_builder_end(&options), &path, NULL, &error), error);
    TodokuDownload1 *download = download_at(path);
    check(todoku_download1_call_wait_sync(download, nothing(), &file, NULL, &error), error);
    printf("path %s\n", file);

    /* With org.gtk.GDBus.C.UnixFD the functions take and give lists of descriptors. */
    char *own = g_strdup_printf("%s/own", argv[2]);
    int fd = open(own, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    GUnixFDList *list = g_unix_fd_list_new();
    int index = g_unix_fd_list_append(list, fd, &error);
    check(index >= 0, error);
    check(todoku_downloader1_call_download_to_fd_sync(
              manager, argv[1], g_variant_new_handle(index), nothing(), list, &path, NULL, NULL, &error), error);
    check(todoku_download1_call_wait_sync(download_at(path), nothing(), &file, NULL, &error), error);
    show("own", fd);

    GVariant *handle = NULL;
    GUnixFDList *given = NULL;
    check(todoku_download1_call_open_file_sync(download, NULL, &handle, &given, NULL, &error), error);
    show("opened", g_unix_fd_list_get(given, g_variant_get_handle(handle), NULL));

    /* A proxy's property follows the service: Url is told when ReplaceUrl has changed it. */
    g_variant_builder_init(&options, G_VARIANT_TYPE_VARDICT);
    g_variant_builder_add(&options, "{sv}", "directory", g_variant_new_string(argv[2]));
    g_variant_builder_add(&options, "{sv}", "start", g_variant_new_boolean(FALSE));
    check(todoku_downloader1_call_download_sync(manager, argv[1], g_variant_builder_end(&options), &path, NULL, &error), error);
    TodokuDownload1 *paused = download_at(path);
    GMainLoop *loop = g_main_loop_new(NULL, FALSE);
    g_signal_connect(paused, "notify::url", G_CALLBACK(changed), loop);
    char *fresh = g_strdup_printf("%s-fresh", argv[1]);
    check(todoku_download1_call_replace_url_sync(paused, fresh, g_variant_new("a{sv}", NULL), NULL, &error), error);
    g_main_loop_run(loop);
    return 0;
}
