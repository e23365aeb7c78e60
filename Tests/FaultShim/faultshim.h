// SPDX-License-Identifier: Apache-2.0
// What the parts of the shim share, and what the tests read (Tests/FaultTests/Support/Shim.swift, RecordedLog.swift have the same layouts).
#pragma once
#define _GNU_SOURCE
#include <alloca.h>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum fault { NONE, ENOSPC_, EDQUOT_, EIO_, EINTR_, EROFS_, SHORT, KILL, KILL_AFTER, KILL_TORN, HANG, SLOW };

// Of one run, over all its processes. All zero at the beginning.
struct shared {
  uint64_t calls;  // that the fault could befall
  uint64_t hits;   // that it befell
  uint64_t stop;   // set by the test: no more faults
  uint64_t is_mapped;
  struct { uint64_t port, bytes; } received[64];  // bytes of TCP connections, by the server's port
  uint64_t hold;  // set by the test: writes that FAULTSHIM_HOLD names wait
  uint64_t held;  // writes that have waited
  uint64_t ahead;  // set by the test: seconds by which CLOCK_MONOTONIC is ahead
};

enum change { CREATE = 1, MKDIR, TRUNCATE, EXTEND, WRITE, SYNC, SYNC_FOLDER, RENAME, LINK, UNLINK, SENT, SYMLINK, SYNC_ALL };

// The beginning of each entry, as bytes: "faultsh2".
#define ENTRY_MARK 0x326873746c756166ull
// One change in the record; `first_length` and `second_length` bytes follow: data or a path, and the second path.
// In the order of the changes of all processes; `offset` is a file's new length for TRUNCATE and EXTEND.
struct entry {
  uint64_t mark;
  uint32_t kind, first_length, second_length, process;
  uint64_t inode, offset;
};

// Of faultshim.c, for told.c. Hidden: the program's own functions of these names are left alone.
#pragma GCC visibility push(hidden)
extern struct shared *shared;
extern enum fault wanted;
extern int lasting, record_fd, inode_count, invents_inodes;
extern long file_owner;  // -1: files have their own
#define MOST_INODES 4096
extern struct inode_pair { uint64_t real, told; } inodes[MOST_INODES];
int is_below(const char *path);
const char *name_in(int fd, char buffer[PATH_MAX]);
// The path of an open file, if it is below a root; valid until the calling function returns.
#define name_of(fd) name_in(fd, alloca(PATH_MAX))
int lock(void);
void unlock(int is_locked);
void record(enum change kind, uint64_t inode, uint64_t offset, const void *first, size_t first_length, const void *second,
            size_t second_length);
ssize_t written(const char *call, int fd, const void *bytes, size_t count, off_t offset);
#pragma GCC visibility pop
