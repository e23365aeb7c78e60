// libarchive's reader, and its writer of tar, by a table of function pointers that dlopen(3) fills on first use.
#pragma once
#include <archive.h>
#include <archive_entry.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define TODOKU_ARCHIVE_FUNCTIONS(X) \
  X(archive_read_new) X(archive_read_free) X(archive_read_support_format_tar) X(archive_read_support_format_zip_seekable) \
  X(archive_read_set_read_callback) X(archive_read_set_seek_callback) X(archive_read_set_callback_data) X(archive_read_open1) \
  X(archive_read_next_header) X(archive_read_data_block) X(archive_read_data_skip) X(archive_read_header_position) \
  X(archive_read_support_format_7zip) X(archive_errno) \
  X(archive_filter_bytes) X(archive_format_name) X(archive_error_string) X(archive_entry_pathname) X(archive_entry_hardlink) \
  X(archive_entry_symlink) X(archive_entry_filetype) X(archive_entry_perm) X(archive_entry_size) X(archive_entry_size_is_set) \
  X(archive_entry_mtime) X(archive_entry_mtime_nsec) X(archive_entry_mtime_is_set) X(archive_entry_is_encrypted) \
  X(archive_write_new) X(archive_write_free) X(archive_write_fail) X(archive_write_close) X(archive_write_set_format_pax_restricted) \
  X(archive_write_add_filter_by_name) X(archive_write_set_filter_option) X(archive_write_set_bytes_in_last_block) X(archive_write_open) \
  X(archive_write_header) X(archive_write_data) X(archive_entry_new) X(archive_entry_free) X(archive_entry_set_pathname) \
  X(archive_entry_set_symlink) X(archive_entry_set_filetype) X(archive_entry_set_perm) X(archive_entry_set_size) \
  X(archive_entry_set_mtime)

#define TODOKU_ARCHIVE_POINTER(name) __typeof__(&name) name;
struct todoku_archive_table { TODOKU_ARCHIVE_FUNCTIONS(TODOKU_ARCHIVE_POINTER) };
#undef TODOKU_ARCHIVE_POINTER

/// Written by todoku_archive_load only.
extern struct todoku_archive_table todoku_archive;

/// Loads libarchive.so.13, once; later calls give the first call's answer. From any thread. NULL, or what dlopen(3) said, for ever.
const char *todoku_archive_load(void);

/// Gives the calling thread a locale whose charset is UTF-8: libarchive gives names of another charset only as it can in the thread's.
/// Returns the locale to give back by todoku_archive_restore_locale. Without such a locale the thread keeps its own.
void *todoku_archive_use_utf8(void);
void todoku_archive_restore_locale(void *former);

/// A reader of tar (also pax and GNU's), without any decompression, of zip, or of 7z; NULL: no memory. End it by todoku_archive_close.
/// `context` is lent to the callbacks until then.
struct archive *todoku_archive_open_tar(void *context, archive_read_callback *read);
struct archive *todoku_archive_open_zip(void *context, archive_read_callback *read, archive_seek_callback *seek);
struct archive *todoku_archive_open_7z(void *context, archive_read_callback *read, archive_seek_callback *seek);
void todoku_archive_close(struct archive *archive);

/// An entry's header. The texts are libarchive's, valid until the next call.
struct todoku_archive_entry {
  /// NULL: it has none, or none that its charset allows.
  const char *name;
  /// The target; NULL: no such link.
  const char *hard_link, *symbolic_link;
  /// S_IFMT's bits; the permissions with set-user-id and set-group-id.
  unsigned int kind, permissions;
  /// -1: unknown.
  int64_t size;
  bool has_modified, is_encrypted;
  struct timespec modified;
};

/// ARCHIVE_OK, ARCHIVE_WARN, ARCHIVE_EOF, or another of libarchive's codes.
int todoku_archive_next(struct archive *archive, struct todoku_archive_entry *entry);
/// The next bytes of the entry's data, and their place in the file. ARCHIVE_EOF after the last.
int todoku_archive_data(struct archive *archive, const void **bytes, size_t *count, int64_t *offset);
/// Passes over the rest of the entry's data.
int todoku_archive_skip(struct archive *archive);
/// What libarchive says about its last failure; never NULL.
const char *todoku_archive_error(struct archive *archive);
/// Its errno, or one of libarchive's own.
int todoku_archive_errno(struct archive *archive);
/// How the format calls itself, for zip with the method of the last entry: "ZIP 2.0 (deflation)"; never NULL.
const char *todoku_archive_format(struct archive *archive);
/// After ARCHIVE_EOF: how many bytes the reader took for the end's mark. 0: the archive simply ended.
int64_t todoku_archive_end_mark(struct archive *archive);

/// A writer of tar, with pax headers only where a name or a size needs them; NULL: it cannot be made, and `problem` says why. `filter` is
/// libarchive's name of the compressor, NULL for none, `level` its level, NULL for its own. Programs are never started to compress.
/// `context` is lent to the callback until todoku_archive_write_free.
struct archive *todoku_archive_write_open(
    const char *filter, const char *level, void *context, archive_write_callback *write, char problem[256]);
/// Begins an entry of root's. ARCHIVE_OK, or another of libarchive's codes. `link` is the target of a symbolic link, else NULL.
int todoku_archive_write_entry(
    struct archive *archive, const char *name, const char *link, unsigned int kind, unsigned int permissions, int64_t size, int64_t modified);
/// How many bytes of the entry's data were taken; negative: none, it failed.
int64_t todoku_archive_write_data(struct archive *archive, const void *bytes, size_t count);
/// Writes the end. ARCHIVE_OK, or another of libarchive's codes.
int todoku_archive_write_close(struct archive *archive);
/// Frees a writer. If it is not closed, nothing more is written.
void todoku_archive_write_free(struct archive *archive);
