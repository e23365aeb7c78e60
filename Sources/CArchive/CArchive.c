#define _GNU_SOURCE
#include "CArchive.h"
#include <dlfcn.h>
#include <locale.h>
#include <pthread.h>
#include <string.h>

struct todoku_archive_table todoku_archive;

static const char *failure;

static void load(void) {
  void *library = dlopen("libarchive.so.13", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    failure = dlerror();
    if (failure) failure = strdup(failure);  // dlerror gives a buffer of the thread
    if (!failure) failure = "libarchive.so.13 cannot be loaded";
    return;
  }
#define TODOKU_ARCHIVE_FILL(name) \
  todoku_archive.name = (__typeof__(todoku_archive.name))dlsym(library, #name); \
  if (!todoku_archive.name) { \
    failure = "libarchive.so.13 has no " #name; \
    return; \
  }
  TODOKU_ARCHIVE_FUNCTIONS(TODOKU_ARCHIVE_FILL)
}

const char *todoku_archive_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return failure;
}

static locale_t utf8;
static void make_utf8(void) { utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0); }

void *todoku_archive_use_utf8(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_utf8);
  return uselocale(utf8);  // (locale_t)0 changes nothing
}

void todoku_archive_restore_locale(void *former) { uselocale((locale_t)former); }

static struct archive *open_reader(void *context, archive_read_callback *read, archive_seek_callback *seek, int (*add)(struct archive *)) {
  struct archive *archive = todoku_archive.archive_read_new();
  if (!archive) return NULL;
  if (add(archive) < ARCHIVE_WARN || todoku_archive.archive_read_set_read_callback(archive, read) != ARCHIVE_OK ||
      (seek && todoku_archive.archive_read_set_seek_callback(archive, seek) != ARCHIVE_OK) ||
      todoku_archive.archive_read_set_callback_data(archive, context) != ARCHIVE_OK) {
    todoku_archive.archive_read_free(archive);
    return NULL;
  }
  // A failure here is one of the callbacks: the next call fails, too, and says why.
  todoku_archive.archive_read_open1(archive);
  return archive;
}

struct archive *todoku_archive_open_tar(void *context, archive_read_callback *read) {
  return open_reader(context, read, NULL, todoku_archive.archive_read_support_format_tar);
}

struct archive *todoku_archive_open_zip(void *context, archive_read_callback *read, archive_seek_callback *seek) {
  return open_reader(context, read, seek, todoku_archive.archive_read_support_format_zip_seekable);
}

struct archive *todoku_archive_open_7z(void *context, archive_read_callback *read, archive_seek_callback *seek) {
  return open_reader(context, read, seek, todoku_archive.archive_read_support_format_7zip);
}

void todoku_archive_close(struct archive *archive) { todoku_archive.archive_read_free(archive); }

int todoku_archive_next(struct archive *archive, struct todoku_archive_entry *entry) {
  memset(entry, 0, sizeof *entry);
  struct archive_entry *found = NULL;
  int code = todoku_archive.archive_read_next_header(archive, &found);
  if ((code != ARCHIVE_OK && code != ARCHIVE_WARN) || !found) return code == ARCHIVE_OK ? ARCHIVE_FATAL : code;
  entry->name = todoku_archive.archive_entry_pathname(found);
  entry->hard_link = todoku_archive.archive_entry_hardlink(found);
  entry->symbolic_link = todoku_archive.archive_entry_symlink(found);
  entry->kind = todoku_archive.archive_entry_filetype(found);
  entry->permissions = todoku_archive.archive_entry_perm(found);
  entry->size = todoku_archive.archive_entry_size_is_set(found) ? todoku_archive.archive_entry_size(found) : -1;
  entry->has_modified = todoku_archive.archive_entry_mtime_is_set(found) != 0;
  entry->modified.tv_sec = todoku_archive.archive_entry_mtime(found);
  entry->modified.tv_nsec = todoku_archive.archive_entry_mtime_nsec(found);
  entry->is_encrypted = todoku_archive.archive_entry_is_encrypted(found) > 0;
  return code;
}

int todoku_archive_data(struct archive *archive, const void **bytes, size_t *count, int64_t *offset) {
  la_int64_t place = 0;
  int code = todoku_archive.archive_read_data_block(archive, bytes, count, &place);
  *offset = place;
  return code;
}

int todoku_archive_skip(struct archive *archive) { return todoku_archive.archive_read_data_skip(archive); }

const char *todoku_archive_error(struct archive *archive) {
  const char *text = todoku_archive.archive_error_string(archive);
  return text ? text : "its reader gives no reason";
}

int todoku_archive_errno(struct archive *archive) { return todoku_archive.archive_errno(archive); }

const char *todoku_archive_format(struct archive *archive) {
  const char *text = todoku_archive.archive_format_name(archive);
  return text ? text : "";
}

int64_t todoku_archive_end_mark(struct archive *archive) {
  return todoku_archive.archive_filter_bytes(archive, 0) - todoku_archive.archive_read_header_position(archive);
}

struct archive *todoku_archive_write_open(
    const char *filter, const char *level, void *context, archive_write_callback *write, char problem[256]) {
  struct archive *archive = todoku_archive.archive_write_new();
  if (!archive) {
    strcpy(problem, "there is not enough memory");
    return NULL;
  }
  // ARCHIVE_WARN: libarchive would start a program to compress.
  int ok = todoku_archive.archive_write_set_format_pax_restricted(archive) == ARCHIVE_OK &&
           (!filter || todoku_archive.archive_write_add_filter_by_name(archive, filter) == ARCHIVE_OK);
  // The time in gzip's header would make two runs differ.
  if (ok && filter && strcmp(filter, "gzip") == 0)
    ok = todoku_archive.archive_write_set_filter_option(archive, filter, "timestamp", NULL) == ARCHIVE_OK;
  if (ok && filter && level) ok = todoku_archive.archive_write_set_filter_option(archive, filter, "compression-level", level) == ARCHIVE_OK;
  // 1: no zeros behind the end.
  ok = ok && todoku_archive.archive_write_set_bytes_in_last_block(archive, 1) == ARCHIVE_OK &&
       todoku_archive.archive_write_open(archive, context, NULL, write, NULL) == ARCHIVE_OK;
  if (ok) return archive;
  const char *text = todoku_archive.archive_error_string(archive);
  strncpy(problem, text ? text : "libarchive gives no reason", 255);
  problem[255] = 0;
  todoku_archive_write_free(archive);
  return NULL;
}

int todoku_archive_write_entry(
    struct archive *archive, const char *name, const char *link, unsigned int kind, unsigned int permissions, int64_t size, int64_t modified) {
  struct archive_entry *entry = todoku_archive.archive_entry_new();
  if (!entry) return ARCHIVE_FATAL;
  todoku_archive.archive_entry_set_pathname(entry, name);
  if (link) todoku_archive.archive_entry_set_symlink(entry, link);
  todoku_archive.archive_entry_set_filetype(entry, kind);
  todoku_archive.archive_entry_set_perm(entry, permissions);
  todoku_archive.archive_entry_set_size(entry, size);
  todoku_archive.archive_entry_set_mtime(entry, modified, 0);
  int code = todoku_archive.archive_write_header(archive, entry);
  todoku_archive.archive_entry_free(entry);
  return code;
}

int64_t todoku_archive_write_data(struct archive *archive, const void *bytes, size_t count) {
  return todoku_archive.archive_write_data(archive, bytes, count);
}

int todoku_archive_write_close(struct archive *archive) { return todoku_archive.archive_write_close(archive); }

void todoku_archive_write_free(struct archive *archive) {
  todoku_archive.archive_write_fail(archive);
  todoku_archive.archive_write_free(archive);
}
