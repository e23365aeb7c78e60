// SPDX-License-Identifier: Apache-2.0
// Counts what a process asks of the kernel and of malloc, for Tests/ServiceTests/Costs. Preloaded by the service.
//   COSTSHIM_SHARED=FILE   a page, mapped by the process and read by the test: a number for each name of `enum cost`
// System calls are counted where the program or a library calls the function of libc. What libc calls by itself is not counted: the futexes
// of a mutex, the memory of malloc.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <poll.h>
#include <unistd.h>

enum cost { ALLOCATIONS, FILES, FLUSHES, SOCKETS, STREAMS, WAITS, BYTES, COST_COUNT };
static uint64_t nowhere[COST_COUNT], *counts = nowhere;

static void add_many(enum cost cost, uint64_t count) { __atomic_add_fetch(&counts[cost], count, __ATOMIC_RELAXED); }
static void add(enum cost cost) { add_many(cost, 1); }

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("COSTSHIM_SHARED");
  int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (page != MAP_FAILED) counts = page;
}

// glibc's own names of its allocator, so that no dlsym is needed, which may itself allocate.
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void *malloc(size_t size) { add(ALLOCATIONS); return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { add(ALLOCATIONS); return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { add(ALLOCATIONS); return __libc_realloc(old, size); }
void *aligned_alloc(size_t alignment, size_t size) { add(ALLOCATIONS); return __libc_memalign(alignment, size); }
int posix_memalign(void **out, size_t alignment, size_t size) {
  add(ALLOCATIONS);
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : 12;  // ENOMEM
}

// A function of libc that is one system call. `next` is found at the first call; all threads find the same.
#define COUNTED(cost, result, name, parameters, ...) \
  result name parameters { \
    static result(*next) parameters; \
    if (!next) next = (result(*) parameters)dlsym(RTLD_NEXT, #name); \
    add(cost); \
    return next(__VA_ARGS__); \
  }
// As above, for functions whose mode is an optional argument: it is passed on always, and read by the function only with O_CREAT.
#define COUNTED_OPEN(name, before, ...) \
  int name before { \
    static int(*next) before; \
    if (!next) next = (int(*) before)dlsym(RTLD_NEXT, #name); \
    va_list rest; \
    va_start(rest, flags); \
    int mode = va_arg(rest, int); \
    va_end(rest); \
    add(FILES); \
    return next(__VA_ARGS__, mode); \
  }
COUNTED_OPEN(open, (const char *path, int flags, ...), path, flags)
COUNTED_OPEN(open64, (const char *path, int flags, ...), path, flags)
COUNTED_OPEN(openat, (int at, const char *path, int flags, ...), at, path, flags)
COUNTED_OPEN(openat64, (int at, const char *path, int flags, ...), at, path, flags)

COUNTED(FILES, ssize_t, pread, (int fd, void *to, size_t count, off_t at), fd, to, count, at)
COUNTED(FILES, ssize_t, pread64, (int fd, void *to, size_t count, off_t at), fd, to, count, at)
COUNTED(FILES, ssize_t, pwrite, (int fd, const void *from, size_t count, off_t at), fd, from, count, at)
COUNTED(FILES, ssize_t, pwrite64, (int fd, const void *from, size_t count, off_t at), fd, from, count, at)
COUNTED(FILES, ssize_t, pwritev, (int fd, const struct iovec *from, int count, off_t at), fd, from, count, at)
COUNTED(FILES, int, fstat, (int fd, struct stat *to), fd, to)
COUNTED(FILES, int, fstat64, (int fd, struct stat64 *to), fd, to)
COUNTED(FILES, int, stat, (const char *path, struct stat *to), path, to)
COUNTED(FILES, int, stat64, (const char *path, struct stat64 *to), path, to)
COUNTED(FILES, int, lstat, (const char *path, struct stat *to), path, to)
COUNTED(FILES, int, fstatat, (int at, const char *path, struct stat *to, int flags), at, path, to, flags)
COUNTED(FILES, int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *to), at, path, flags, mask, to)
COUNTED(FILES, int, statfs, (const char *path, struct statfs *to), path, to)
COUNTED(FILES, int, fstatfs, (int fd, struct statfs *to), fd, to)
COUNTED(FILES, int, access, (const char *path, int mode), path, mode)
COUNTED(FILES, int, faccessat, (int at, const char *path, int mode, int flags), at, path, mode, flags)
COUNTED(FILES, ssize_t, readlink, (const char *path, char *to, size_t count), path, to, count)
COUNTED(FILES, ssize_t, readlinkat, (int at, const char *path, char *to, size_t count), at, path, to, count)
COUNTED(FILES, int, unlink, (const char *path), path)
COUNTED(FILES, int, unlinkat, (int at, const char *path, int flags), at, path, flags)
COUNTED(FILES, int, rename, (const char *from, const char *to), from, to)
COUNTED(FILES, int, renameat, (int at, const char *from, int other, const char *to), at, from, other, to)
COUNTED(FILES, int, renameat2, (int at, const char *from, int other, const char *to, unsigned flags), at, from, other, to, flags)
COUNTED(FILES, int, linkat, (int at, const char *from, int other, const char *to, int flags), at, from, other, to, flags)
COUNTED(FILES, int, mkdirat, (int at, const char *path, mode_t mode), at, path, mode)
COUNTED(FILES, int, fchmod, (int fd, mode_t mode), fd, mode)
COUNTED(FILES, int, futimens, (int fd, const struct timespec times[2]), fd, times)
COUNTED(FILES, int, ftruncate, (int fd, off_t length), fd, length)
COUNTED(FILES, int, ftruncate64, (int fd, off64_t length), fd, length)
COUNTED(FILES, int, fallocate, (int fd, int mode, off_t at, off_t length), fd, mode, at, length)
COUNTED(FILES, int, posix_fadvise, (int fd, off_t at, off_t length, int advice), fd, at, length, advice)
COUNTED(FLUSHES, int, fsync, (int fd), fd)
COUNTED(FLUSHES, int, fdatasync, (int fd), fd)
COUNTED(FLUSHES, int, syncfs, (int fd), fd)
COUNTED(SOCKETS, int, socket, (int family, int type, int protocol), family, type, protocol)
COUNTED(SOCKETS, int, connect, (int fd, const struct sockaddr *to, socklen_t length), fd, to, length)
COUNTED(SOCKETS, ssize_t, send, (int fd, const void *from, size_t count, int flags), fd, from, count, flags)
COUNTED(SOCKETS, ssize_t, sendmsg, (int fd, const struct msghdr *from, int flags), fd, from, flags)
COUNTED(SOCKETS, ssize_t, recvmsg, (int fd, struct msghdr *to, int flags), fd, to, flags)
COUNTED(SOCKETS, int, setsockopt, (int fd, int level, int name, const void *from, socklen_t length), fd, level, name, from, length)
COUNTED(SOCKETS, int, getsockopt, (int fd, int level, int name, void *to, socklen_t *length), fd, level, name, to, length)
COUNTED(STREAMS, ssize_t, read, (int fd, void *to, size_t count), fd, to, count)
COUNTED(STREAMS, ssize_t, write, (int fd, const void *from, size_t count), fd, from, count)
COUNTED(WAITS, int, poll, (struct pollfd *fds, nfds_t count, int timeout), fds, count, timeout)
COUNTED(WAITS, int, epoll_wait, (int fd, struct epoll_event *events, int count, int timeout), fd, events, count, timeout)

// libcurl receives by recv, and libdbus by recvmsg.
ssize_t recv(int fd, void *to, size_t count, int flags) {
  static ssize_t (*next)(int, void *, size_t, int);
  if (!next) next = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
  add(SOCKETS);
  ssize_t received = next(fd, to, count, flags);
  if (received > 0) add_many(BYTES, (uint64_t)received);
  return received;
}

// openat2 has no function of its own.
long syscall(long number, ...) {
  static long (*next)(long, ...);
  if (!next) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  va_list rest;
  va_start(rest, number);
  long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long), d = va_arg(rest, long), e = va_arg(rest, long);
  long f = va_arg(rest, long);
  va_end(rest);
  add(FILES);
  return next(number, a, b, c, d, e, f);
}
