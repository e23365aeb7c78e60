// A measuring client on the session bus, over libdbus. Times are in microseconds of CLOCK_MONOTONIC.
//   client call NAME PATH INTERFACE METHOD COUNT      blocking empty calls: prints the median and the 99th percentile
//   client activate NAME PATH INTERFACE METHOD COUNT  first call to a service that is not there; it is killed after each: prints the median
//   client get URL                                    Download, then Wait: prints the time and the path
//   client batch CALLS ITEMS                          DownloadBatch of ITEMS paused downloads, CALLS times one after the other: prints the
//                                                     time of each call, and of all
#include <dbus/dbus.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static DBusConnection *bus;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static DBusMessage *exchange(DBusMessage *call, int timeout) {
  DBusError error;
  dbus_error_init(&error);
  DBusMessage *reply = dbus_connection_send_with_reply_and_block(bus, call, timeout, &error);
  dbus_message_unref(call);
  if (reply) return reply;
  fprintf(stderr, "client: %s: %s\n", error.name, error.message);
  exit(1);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void report(double *times, int count) {
  qsort(times, count, sizeof *times, ascending);
  printf("%.1f %.1f\n", times[count / 2], times[(int)(count * 0.99)]);
}

static void kill_owner(const char *name) {
  DBusMessage *ask = dbus_message_new_method_call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetConnectionUnixProcessID");
  dbus_message_append_args(ask, DBUS_TYPE_STRING, &name, DBUS_TYPE_INVALID);
  DBusMessage *reply = exchange(ask, 5000);
  dbus_uint32_t pid = 0;
  dbus_message_get_args(reply, NULL, DBUS_TYPE_UINT32, &pid, DBUS_TYPE_INVALID);
  dbus_message_unref(reply);
  if (pid > 1) kill((pid_t)pid, SIGKILL);
  while (dbus_bus_name_has_owner(bus, name, NULL)) usleep(1000);
}

// One call of DownloadBatch, all items with the batch's options; the time until its answer.
static double batch(int items) {
  static int serial;
  DBusMessage *call = dbus_message_new_method_call("org.todoku.Downloader1", "/org/todoku/Downloader1", "org.todoku.Downloader1", "DownloadBatch");
  DBusMessageIter all, array, item, none, options, entry, value;
  dbus_message_iter_init_append(call, &all);
  dbus_message_iter_open_container(&all, DBUS_TYPE_ARRAY, "(sa{sv})", &array);
  for (int i = 0; i < items; i++) {
    char text[64], *url = text;
    snprintf(text, sizeof text, "http://127.0.0.1:9/music/album/track-%07d.flac", serial++);
    dbus_message_iter_open_container(&array, DBUS_TYPE_STRUCT, NULL, &item);
    dbus_message_iter_append_basic(&item, DBUS_TYPE_STRING, &url);
    dbus_message_iter_open_container(&item, DBUS_TYPE_ARRAY, "{sv}", &none);
    dbus_message_iter_close_container(&item, &none);
    dbus_message_iter_close_container(&array, &item);
  }
  dbus_message_iter_close_container(&all, &array);
  const char *key = "start";
  dbus_bool_t no = FALSE;
  dbus_message_iter_open_container(&all, DBUS_TYPE_ARRAY, "{sv}", &options);
  dbus_message_iter_open_container(&options, DBUS_TYPE_DICT_ENTRY, NULL, &entry);
  dbus_message_iter_append_basic(&entry, DBUS_TYPE_STRING, &key);
  dbus_message_iter_open_container(&entry, DBUS_TYPE_VARIANT, "b", &value);
  dbus_message_iter_append_basic(&value, DBUS_TYPE_BOOLEAN, &no);
  dbus_message_iter_close_container(&entry, &value);
  dbus_message_iter_close_container(&options, &entry);
  dbus_message_iter_close_container(&all, &options);
  double begin = now();
  dbus_message_unref(exchange(call, 60000));
  return now() - begin;
}

int main(int count, char **words) {
  DBusError error;
  dbus_error_init(&error);
  bus = dbus_bus_get(DBUS_BUS_SESSION, &error);
  if (!bus) return fprintf(stderr, "client: %s\n", error.message), 1;
  if (count == 4 && !strcmp(words[1], "batch")) {
    double begin = now();
    for (int i = 0; i < atoi(words[2]); i++) printf("%.0f ", batch(atoi(words[3])));
    printf("%.0f\n", now() - begin);
    return 0;
  }
  if (count == 7) {
    int activate = !strcmp(words[1], "activate"), rounds = atoi(words[6]), warm = activate ? 1 : 200;
    double *times = calloc(rounds, sizeof *times);
    for (int i = -warm; i < rounds; i++) {
      DBusMessage *call = dbus_message_new_method_call(words[2], words[3], words[4], words[5]);
      double start = now();
      dbus_message_unref(exchange(call, 30000));
      if (i >= 0) times[i] = now() - start;
      if (activate) kill_owner(words[2]);
    }
    report(times, rounds);
    return 0;
  }
  if (count == 3 && !strcmp(words[1], "get")) {
    double start = now();
    DBusMessage *call = dbus_message_new_method_call("org.todoku.Downloader1", "/org/todoku/Downloader1", "org.todoku.Downloader1", "Download");
    DBusMessageIter body, options;
    dbus_message_iter_init_append(call, &body);
    dbus_message_iter_append_basic(&body, DBUS_TYPE_STRING, &words[2]);
    dbus_message_iter_open_container(&body, DBUS_TYPE_ARRAY, "{sv}", &options);
    dbus_message_iter_close_container(&body, &options);
    DBusMessage *reply = exchange(call, 30000);
    const char *path, *file;
    dbus_message_get_args(reply, NULL, DBUS_TYPE_OBJECT_PATH, &path, DBUS_TYPE_INVALID);
    call = dbus_message_new_method_call("org.todoku.Downloader1", path, "org.todoku.Download1", "Wait");
    dbus_message_iter_init_append(call, &body);
    dbus_message_iter_open_container(&body, DBUS_TYPE_ARRAY, "{sv}", &options);
    dbus_message_iter_close_container(&body, &options);
    DBusMessage *end = exchange(call, DBUS_TIMEOUT_INFINITE);
    dbus_message_get_args(end, NULL, DBUS_TYPE_STRING, &file, DBUS_TYPE_INVALID);
    printf("%.0f %s\n", now() - start, file);
    return 0;
  }
  return fprintf(stderr, "client: see the head of client.c\n"), 2;
}
