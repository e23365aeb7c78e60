#define _GNU_SOURCE
#include "CSystem.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

void todoku_set_thread_name(const char *name) { pthread_setname_np(pthread_self(), name); }

int todoku_fallocate_keep_size(int fd, off_t offset, off_t length) {
  return fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, length) == 0 ? 0 : errno;
}

int todoku_rename_noreplace(int dirfd, const char *from, const char *to) {
  return renameat2(dirfd, from, dirfd, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
}

int todoku_start_writeback(int fd, off_t offset, off_t length) {
  return sync_file_range(fd, offset, length, SYNC_FILE_RANGE_WRITE) == 0 ? 0 : errno;
}

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x00001000U
#endif

int todoku_file_identity(int fd, uint64_t *device, uint64_t *inode, uint64_t *mount) {
  struct statx s;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &s) != 0) return errno;
  *device = makedev(s.stx_dev_major, s.stx_dev_minor);
  *inode = s.stx_ino;
  *mount = (s.stx_mask & STATX_MNT_ID) ? s.stx_mnt_id : 0;
  return 0;
}

const int todoku_o_path = O_PATH;

int todoku_pipe(int descriptors[2]) { return pipe2(descriptors, O_CLOEXEC) == 0 ? 0 : errno; }

void todoku_keep_heap_small(void) {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  mallopt(M_TRIM_THRESHOLD, 256 * 1024);
}
