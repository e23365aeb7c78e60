// The libraries of the service without the service: what is left of a row of docs/performance.md if the service's own code costs nothing.
//   floor DATABASE          org.todoku.Floor at /: opens a database as the service does, and answers Empty(), and All() with as many
//                           properties as the manager has
//   with -DTRANSFER         … and Get(s url, s file): one transfer by libcurl; answers once the file is flushed, and the heap trimmed
//   with -DUNFLUSHED        no program but a library to preload, under which no flush reaches a disk
#define _GNU_SOURCE
#ifdef UNFLUSHED
int fsync(int file) { return (void)file, 0; }
int fdatasync(int file) { return (void)file, 0; }
int syncfs(int file) { return (void)file, 0; }
#else
#include <dbus/dbus.h>
#include <sqlite3.h>
#include <stdio.h>
#ifdef TRANSFER
#include <curl/curl.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <unistd.h>

static size_t take(char *bytes, size_t size, size_t count, void *file) {
  ssize_t written = write((int)(intptr_t)file, bytes, size * count);
  return written < 0 ? 0 : (size_t)written;
}

static int get(const char *url, const char *path) {
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return 0;
  CURL *easy = curl_easy_init();
  curl_easy_setopt(easy, CURLOPT_URL, url);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, (void *)(intptr_t)file);
  curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1L);
  int right = curl_easy_perform(easy) == CURLE_OK && fsync(file) == 0;
  curl_easy_cleanup(easy);
  close(file);
  malloc_trim(0);
  return right;
}
#endif

// Appends `name`: 0 or, if `texts` is not 0, so many texts.
static void entry(DBusMessageIter *all, const char *name, int texts) {
  DBusMessageIter pair, variant, array;
  dbus_message_iter_open_container(all, DBUS_TYPE_DICT_ENTRY, NULL, &pair);
  dbus_message_iter_append_basic(&pair, DBUS_TYPE_STRING, &name);
  dbus_message_iter_open_container(&pair, DBUS_TYPE_VARIANT, texts ? "as" : "t", &variant);
  if (texts) {
    const char *text = "request-interval";
    dbus_message_iter_open_container(&variant, DBUS_TYPE_ARRAY, "s", &array);
    for (int index = 0; index < texts; index++) dbus_message_iter_append_basic(&array, DBUS_TYPE_STRING, &text);
    dbus_message_iter_close_container(&variant, &array);
  } else {
    dbus_uint64_t number = 0;
    dbus_message_iter_append_basic(&variant, DBUS_TYPE_UINT64, &number);
  }
  dbus_message_iter_close_container(&pair, &variant);
  dbus_message_iter_close_container(all, &pair);
}

static void all(DBusMessage *reply) {
  DBusMessageIter body, all;
  dbus_message_iter_init_append(reply, &body);
  dbus_message_iter_open_container(&body, DBUS_TYPE_ARRAY, "{sv}", &all);
  for (int index = 0; index < 20; index++) entry(&all, "DiskReserve", 0);
  entry(&all, "SupportedOptions", 50);
  dbus_message_iter_close_container(&body, &all);
}

static DBusHandlerResult handle(DBusConnection *connection, DBusMessage *message, void *context) {
  (void)context;
  int isAll = dbus_message_is_method_call(message, "org.todoku.Floor", "All");
  int right = isAll || dbus_message_is_method_call(message, "org.todoku.Floor", "Empty");
#ifdef TRANSFER
  const char *url, *file;
  if (dbus_message_is_method_call(message, "org.todoku.Floor", "Get") &&
      dbus_message_get_args(message, NULL, DBUS_TYPE_STRING, &url, DBUS_TYPE_STRING, &file, DBUS_TYPE_INVALID))
    right = get(url, file);
#endif
  if (!right) return DBUS_HANDLER_RESULT_NOT_YET_HANDLED;
  DBusMessage *reply = dbus_message_new_method_return(message);
  if (isAll) all(reply);
  dbus_connection_send(connection, reply, NULL);
  dbus_message_unref(reply);
  return DBUS_HANDLER_RESULT_HANDLED;
}

int main(int count, char **arguments) {
  if (count != 2) return fprintf(stderr, "usage: floor DATABASE\n"), 2;
  sqlite3 *database;
  if (sqlite3_open(arguments[1], &database) != SQLITE_OK ||
      sqlite3_exec(database,
                   "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE IF NOT EXISTS row (name INTEGER PRIMARY KEY);"
                   "SELECT * FROM row",
                   NULL, NULL, NULL) != SQLITE_OK)
    return fprintf(stderr, "floor: %s\n", sqlite3_errmsg(database)), 1;
  DBusError error;
  dbus_error_init(&error);
  DBusConnection *connection = dbus_bus_get(DBUS_BUS_SESSION, &error);
  if (!connection) return fprintf(stderr, "floor: %s\n", error.message), 1;
  dbus_connection_add_filter(connection, handle, NULL, NULL);
  if (dbus_bus_request_name(connection, "org.todoku.Floor", DBUS_NAME_FLAG_DO_NOT_QUEUE, &error) < 0)
    return fprintf(stderr, "floor: %s\n", error.message), 1;
  while (dbus_connection_read_write_dispatch(connection, -1)) {}
  return 0;
}
#endif
