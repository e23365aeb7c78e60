// SPDX-License-Identifier: Apache-2.0
// A preloaded object (LD_PRELOAD, ld.so(8)) that stands between a program and its files: it makes one call fail as a bad disk would, kills
// the program at one call, or records every change for a replay of power cuts. Only files below the given roots are looked at.
//
//   FAULTSHIM_ROOTS=FOLDER:FOLDER   what is looked at
//   FAULTSHIM_SHARED=FILE           one page or more, mapped by every process of a run and read by the test: `struct shared`
//   FAULTSHIM_FAULT=KIND            enospc, edquot, eio, eintr, erofs, short (half is written); kill (before the call), kill-after,
//                                   kill-torn (after half a write); hang (every kind of call, until `stop` is set), slow (a write takes
//                                   1.5 s)
//   FAULTSHIM_AT=N                  the call that fails, counted from 1 over all processes of the run, among those that it can befall
//   FAULTSHIM_LASTING=1             from there on every one, until `stop` is set
//   FAULTSHIM_LOG=FILE              a line for each fault; with FAULTSHIM_AT=0, for each call that it can befall
//   FAULTSHIM_RECORD=FILE           every change, fsync and message sent, of every process, see `struct entry`
//   FAULTSHIM_HOLD=END              a write to a file whose name ends so waits while `hold` is set
//   FAULTSHIM_HOLD_DELETION=END     so does the deletion of such a file
//   FAULTSHIM_PLAIN=1               the file system seems to be one on which each file is flushed by itself
//   FAULTSHIM_BOOT=FILE             read instead of the kernel's boot id
//   FAULTSHIM_OWNER=UID             the owner that stat(2) tells of files below the roots, as FAT, NTFS, SMB and all-squash NFS do; no mode
//                                   of theirs can be set
//   FAULTSHIM_REOPEN=HOW            a file below the roots that is opened again for reading and writing: refused (EACCES); another (it
//                                   tells of another inode number at each open descriptor, as where the mount makes the numbers up)
//   FAULTSHIM_INODES=FILE           lines "REAL TOLD": the inode numbers that stat(2) tells of rebuilt files; "REAL 0": by now, it is the
//                                   number of a new file
#include "faultshim.h"

static struct shared nothing;
struct shared *shared = &nothing;
static char *roots[8];
enum fault wanted;
static uint64_t at;
int lasting;
long file_owner = -1;
int invents_inodes;
static int refuses_reopen;
int record_fd = -1;
static int log_fd = -1, inodes_fd = -1;
static const char *boot;
struct inode_pair inodes[MOST_INODES];
int inode_count;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

static const char *const fault_names[] = {"none", "enospc", "edquot", "eio", "eintr", "erofs", "short", "kill", "kill-after", "kill-torn",
                                          "hang", "slow"};
static const int fault_codes[] = {0, ENOSPC, EDQUOT, EIO, EINTR, EROFS};

static int raw_open(const char *path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600); }

// A new file may have the number of one that was rebuilt and is gone. Later processes read so in the list.
static void forget_inode(uint64_t inode) {
  for (int i = 0; i < inode_count; i++) {
    if (inodes[i].real != inode) continue;
    inodes[i].real = 0;
    char line[32];
    int length = snprintf(line, sizeof line, "%lu 0\n", inode);
    if (inodes_fd >= 0) syscall(SYS_write, inodes_fd, line, length);
  }
}

__attribute__((constructor)) static void begin(void) {
  const char *text = getenv("FAULTSHIM_ROOTS");
  if (!text) return;
  char *copy = strdup(text), *rest = NULL;
  int count = 0;
  for (char *one = strtok_r(copy, ":", &rest); one && count < 7; one = strtok_r(NULL, ":", &rest)) roots[count++] = one;
  if ((text = getenv("FAULTSHIM_SHARED"))) {
    int fd = raw_open(text, O_RDWR);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) (shared = page)->is_mapped = 1;
    if (fd >= 0) syscall(SYS_close, fd);
  }
  if ((text = getenv("FAULTSHIM_FAULT")))
    for (unsigned i = 1; i < sizeof fault_names / sizeof *fault_names; i++)
      if (!strcmp(text, fault_names[i])) wanted = (enum fault)i;
  if ((text = getenv("FAULTSHIM_AT"))) at = strtoull(text, NULL, 10);
  lasting = getenv("FAULTSHIM_LASTING") != NULL;
  boot = getenv("FAULTSHIM_BOOT");
  if ((text = getenv("FAULTSHIM_OWNER"))) file_owner = atol(text);
  if ((text = getenv("FAULTSHIM_REOPEN"))) {
    refuses_reopen = !strcmp(text, "refused");
    invents_inodes = !strcmp(text, "another");
  }
  if ((text = getenv("FAULTSHIM_LOG"))) log_fd = raw_open(text, O_WRONLY | O_CREAT | O_APPEND);
  if ((text = getenv("FAULTSHIM_RECORD"))) record_fd = raw_open(text, O_WRONLY | O_CREAT | O_APPEND);
  FILE *file = (text = getenv("FAULTSHIM_INODES")) ? fopen(text, "re") : NULL;
  if (file) {
    uint64_t real, other;
    while (inode_count < MOST_INODES && fscanf(file, "%lu %lu", &real, &other) == 2) {
      if (other) inodes[inode_count++] = (struct inode_pair){real, other};
      else forget_inode(real);
    }
    fclose(file);
    inodes_fd = raw_open(text, O_WRONLY | O_APPEND);
  }
}

int is_below(const char *path) {
  for (int i = 0; roots[i]; i++) {
    size_t length = strlen(roots[i]);
    if (!strncmp(path, roots[i], length) && (path[length] == '/' || path[length] == 0)) return 1;
  }
  return 0;
}

// The absolute path in `buffer`; NULL where it is not below a root. A folder that was reached step by step is known to the kernel.
static const char *full(int folder, const char *path, char buffer[PATH_MAX]) {
  if (!path || !roots[0]) return NULL;
  if (path[0] == '/') {
    snprintf(buffer, PATH_MAX, "%s", path);
    return is_below(buffer) ? buffer : NULL;
  }
  char link[32] = "/proc/self/cwd";
  if (folder != AT_FDCWD) snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
  long length = folder >= 0 || folder == AT_FDCWD ? syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX / 2) : -1;
  if (length <= 0) return NULL;
  if (strcmp(path, ".")) snprintf(buffer + length, PATH_MAX - length, "%s%s", length > 1 ? "/" : "", path);
  else buffer[length] = 0;
  return is_below(buffer) ? buffer : NULL;
}

// The kernel is asked each time. A table of our own would be wrong: a process inherits descriptors, duplicates them, and the C library
// closes some by itself.
const char *name_in(int fd, char buffer[PATH_MAX]) {
  if (fd < 0 || !roots[0]) return NULL;
  int code = errno;
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX - 1);
  errno = code;
  if (length <= 0) return NULL;
  buffer[length] = 0;
  return is_below(buffer) ? buffer : NULL;
}

// MARK: Faults

// What can befall a call: open(2), write(2), fsync(2) … each name the errors they give.
enum { SPACE = 1 << ENOSPC_ | 1 << EDQUOT_, ANY_KILL = 1 << KILL | 1 << KILL_AFTER, CHANGE = 1 << EIO_ | 1 << EROFS_ | ANY_KILL };

static void tell(const char *call, const char *path, uint64_t number) {
  if (log_fd < 0) return;
  char line[PATH_MAX + 128];
  int length = snprintf(line, sizeof line, "%lu %s %s %s\n", number, fault_names[wanted], call, path);
  syscall(SYS_write, log_fd, line, length);
}

static void rest(long milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  while (nanosleep(&time, &time) != 0 && errno == EINTR) continue;
}

// The fault that befalls this call. `kill` does not return; `hang` returns when the faults are stopped.
static enum fault befalls(const char *call, unsigned possible, const char *path) {
  possible |= 1 << HANG;
  if (!path || !wanted || !(possible & 1u << wanted)) return NONE;
  uint64_t number = __atomic_add_fetch(&shared->calls, 1, __ATOMIC_SEQ_CST);
  if (at == 0) tell(call, path, number);
  if (at == 0 || __atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST)) return NONE;
  if (number != at && !(lasting && number > at)) return NONE;
  __atomic_add_fetch(&shared->hits, 1, __ATOMIC_SEQ_CST);
  tell(call, path, number);
  if (wanted == KILL) kill(getpid(), SIGKILL);
  if (wanted == HANG) while (!__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST)) rest(10);
  if (wanted == SLOW) rest(1500);
  return wanted == HANG || wanted == SLOW ? NONE : wanted;
}

static int failed(enum fault fault) {
  if (fault == NONE || fault > EROFS_) return 0;
  errno = fault_codes[fault];
  return 1;
}

// After the call: the end of the program where that was asked for.
static void after(enum fault fault) {
  if (fault == KILL_AFTER || fault == KILL_TORN) kill(getpid(), SIGKILL);
}

// MARK: Recording

void record(enum change kind, uint64_t inode, uint64_t offset, const void *first, size_t first_length, const void *second,
            size_t second_length) {
  if (record_fd < 0) return;
  struct entry entry = {ENTRY_MARK, kind, (uint32_t)first_length, (uint32_t)second_length, (uint32_t)getpid(), inode, offset};
  struct iovec parts[] = {{&entry, sizeof entry}, {(void *)first, first_length}, {(void *)second, second_length}};
  // One call, so that the entries of several processes do not mix. Only a kill cuts an entry.
  syscall(SYS_writev, record_fd, parts, 3);
}

static uint64_t inode_of(int fd) {
  struct stat s;
  return syscall(SYS_fstat, fd, &s) == 0 ? s.st_ino : 0;
}

// Changes and their entries are in one order, over all threads and processes. The kernel drops the lock of a process that dies.
int lock(void) {
  if (record_fd < 0) return 0;
  pthread_mutex_lock(&order);
  while (syscall(SYS_flock, record_fd, LOCK_EX) != 0 && errno == EINTR) continue;
  return 1;
}
void unlock(int is_locked) {
  int code = errno;
  if (is_locked) {
    syscall(SYS_flock, record_fd, LOCK_UN);
    pthread_mutex_unlock(&order);
  }
  errno = code;
}

// MARK: The clock

// Swift's SuspendingClock reads CLOCK_MONOTONIC. The kernel's clock is not ahead, so a wait until a time of this clock takes longer.
int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_MONOTONIC) now->tv_sec += (time_t)__atomic_load_n(&shared->ahead, __ATOMIC_SEQ_CST);
  return result;
}

// MARK: Calls

static int opened(int folder, const char *path, int flags, mode_t mode) {
  char buffer[PATH_MAX];
  if (boot && path && !strcmp(path, "/proc/sys/kernel/random/boot_id")) path = boot;
  const char *name = full(folder, path, buffer);
  if (!name) return (int)syscall(SYS_openat, folder, path, flags, mode);
  if (refuses_reopen && !(flags & O_CREAT) && (flags & O_ACCMODE) == O_RDWR) {
    errno = EACCES;
    return -1;
  }
  unsigned possible = 1 << EIO_ | 1 << EINTR_;
  if (flags & O_CREAT) possible |= SPACE | ANY_KILL;
  if ((flags & O_ACCMODE) != O_RDONLY) possible |= 1 << EROFS_;
  enum fault fault = befalls("open", possible, name);
  if (failed(fault)) return -1;
  int locked = lock();
  int was_there = !(flags & O_CREAT) || syscall(SYS_faccessat, AT_FDCWD, name, F_OK) == 0;
  int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
  if (fd >= 0 && !was_there) {
    uint64_t inode = inode_of(fd);
    forget_inode(inode);
    record(CREATE, inode, 0, name, strlen(name), NULL, 0);
  } else if (fd >= 0 && (flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY) record(TRUNCATE, inode_of(fd), 0, NULL, 0, NULL, 0);
  unlock(locked);
  after(fault);
  return fd;
}

#define MODE(flags) \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | O_TMPFILE)) { \
    va_list list; \
    va_start(list, flags); \
    mode = va_arg(list, mode_t); \
    va_end(list); \
  }

int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags | O_LARGEFILE, mode); }
// glibc has it from 2.42 on. The service uses it to open folders.
int openat2(int folder, const char *path, const struct open_how *how, size_t size) {
  char buffer[PATH_MAX];
  const char *name = full(folder, path, buffer);
  if (name && failed(befalls("open", 1 << EIO_ | 1 << EINTR_, name))) return -1;
  return (int)syscall(SYS_openat2, folder, path, how, size);
}
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/// Whether `name` ends with what the variable says.
static int is_asked(const char *variable, const char *name) {
  const char *end = getenv(variable);
  return end && name && strlen(name) >= strlen(end) && !strcmp(name + strlen(name) - strlen(end), end);
}

static void wait_while_held(void) {
  if (!__atomic_load_n(&shared->hold, __ATOMIC_SEQ_CST)) return;
  __atomic_add_fetch(&shared->held, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&shared->hold, __ATOMIC_SEQ_CST)) rest(10);
}

/// Uses up the thread's stack.
static __attribute__((noinline)) int overflow(int depth) {
  if (depth < 0) return 0;
  volatile char frame[1024];
  frame[depth & 1023] = (char)depth;
  return overflow(depth + 1) + frame[depth & 1023];
}

ssize_t written(const char *call, int fd, const void *bytes, size_t count, off_t offset) {
  const char *name = name_of(fd);
  if (!name) return offset < 0 ? syscall(SYS_write, fd, bytes, count) : syscall(SYS_pwrite64, fd, bytes, count, offset);
  // A defect of the program itself, on the thread that writes this file.
  if (is_asked("FAULTSHIM_TRAP", name)) __builtin_trap();
  if (is_asked("FAULTSHIM_OVERFLOW", name)) overflow(0);
  if (is_asked("FAULTSHIM_HOLD", name)) wait_while_held();
  unsigned possible = SPACE | 1 << EIO_ | 1 << EINTR_ | ANY_KILL | 1 << SLOW | (count > 1 ? 1 << SHORT | 1 << KILL_TORN : 0);
  enum fault fault = befalls(call, possible, name);
  if (failed(fault)) return -1;
  if (fault == SHORT || fault == KILL_TORN) count /= 2;
  int locked = lock();
  ssize_t result = offset < 0 ? syscall(SYS_write, fd, bytes, count) : syscall(SYS_pwrite64, fd, bytes, count, offset);
  // Behind the bytes, also in a file that is only added to.
  off_t place = offset < 0 ? syscall(SYS_lseek, fd, 0, SEEK_CUR) - result : offset;
  if (result > 0) record(WRITE, inode_of(fd), (uint64_t)place, bytes, (size_t)result, NULL, 0);
  unlock(locked);
  after(fault);
  return result;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) { return written("pwrite", fd, bytes, count, offset); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset) { return written("pwrite", fd, bytes, count, offset); }

static ssize_t got(int fd, void *bytes, size_t count, off_t offset) {
  if (failed(befalls("pread", 1 << EIO_ | 1 << EINTR_, name_of(fd)))) return -1;
  return offset < 0 ? syscall(SYS_read, fd, bytes, count) : syscall(SYS_pread64, fd, bytes, count, offset);
}

ssize_t read(int fd, void *bytes, size_t count) { return got(fd, bytes, count, -1); }
ssize_t pread(int fd, void *bytes, size_t count, off_t offset) { return got(fd, bytes, count, offset); }
ssize_t pread64(int fd, void *bytes, size_t count, off_t offset) { return got(fd, bytes, count, offset); }

static int synced(const char *call, long number, int fd) {
  const char *name = name_of(fd);
  if (!name) return (int)syscall(number, fd);
  enum fault fault = befalls(call, SPACE | 1 << EIO_ | 1 << EINTR_ | ANY_KILL, name);
  if (failed(fault)) return -1;
  int locked = lock();
  struct stat s;
  int is_folder = syscall(SYS_fstat, fd, &s) == 0 && S_ISDIR(s.st_mode);
  // While changes are recorded the machine stays on: what is on disk is told by the record.
  int result = record_fd >= 0 ? 0 : (int)syscall(number, fd);
  if (result == 0) record(is_folder ? SYNC_FOLDER : SYNC, s.st_ino, 0, name, strlen(name), NULL, 0);
  unlock(locked);
  after(fault);
  return result;
}

int fsync(int fd) { return synced("fsync", SYS_fsync, fd); }
int fdatasync(int fd) { return synced("fdatasync", SYS_fdatasync, fd); }

// The machine stays on, and so nothing of its disk is flushed: that would wait for what other programs write.
int syncfs(int fd) {
  const char *name = name_of(fd);
  if (!name) return (int)syscall(SYS_syncfs, fd);
  enum fault fault = befalls("syncfs", SPACE | 1 << EIO_ | ANY_KILL, name);
  if (failed(fault)) return -1;
  int locked = lock();
  record(SYNC_ALL, 0, 0, name, strlen(name), NULL, 0);
  unlock(locked);
  after(fault);
  return 0;
}

int sync_file_range(int fd, off64_t offset, off64_t count, unsigned flags) {
  if (failed(befalls("sync_file_range", SPACE | 1 << EIO_, name_of(fd)))) return -1;
  return (int)syscall(SYS_sync_file_range, fd, offset, count, flags);
}

static int reserved(int fd, int mode, off_t offset, off_t length) {
  enum fault fault = befalls("fallocate", SPACE | 1 << EIO_ | 1 << EINTR_ | ANY_KILL, name_of(fd));
  if (failed(fault)) return -1;
  int locked = lock();
  int result = (int)syscall(SYS_fallocate, fd, mode, offset, length);
  int is_longer = !(mode & FALLOC_FL_KEEP_SIZE) && name_of(fd);
  if (result == 0 && is_longer) record(EXTEND, inode_of(fd), (uint64_t)(offset + length), NULL, 0, NULL, 0);
  unlock(locked);
  after(fault);
  return result;
}

int fallocate(int fd, int mode, off_t offset, off_t length) { return reserved(fd, mode, offset, length); }
int fallocate64(int fd, int mode, off64_t offset, off64_t length) { return reserved(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length) { return reserved(fd, 0, offset, length) == 0 ? 0 : errno; }
int posix_fallocate64(int fd, off64_t offset, off64_t length) { return reserved(fd, 0, offset, length) == 0 ? 0 : errno; }

static int cut(int fd, off_t length) {
  enum fault fault = befalls("ftruncate", 1 << EINTR_ | CHANGE, name_of(fd));
  if (failed(fault)) return -1;
  int locked = lock();
  int result = (int)syscall(SYS_ftruncate, fd, length);
  if (result == 0 && name_of(fd)) record(TRUNCATE, inode_of(fd), (uint64_t)length, NULL, 0, NULL, 0);
  unlock(locked);
  after(fault);
  return result;
}

int ftruncate(int fd, off_t length) { return cut(fd, length); }
int ftruncate64(int fd, off64_t length) { return cut(fd, length); }

// Two names, or one and `to` NULL.
static int named(const char *call, unsigned possible, enum change kind, int from_folder, const char *from, int to_folder, const char *to,
                 long number, long extra) {
  char first[PATH_MAX], second[PATH_MAX];
  const char *name = full(from_folder, from, first), *other = to ? full(to_folder, to, second) : NULL;
  enum fault fault = befalls(call, possible, name ? name : other);
  if (failed(fault)) return -1;
  int locked = lock();
  int result = to ? (int)syscall(number, from_folder, from, to_folder, to, extra) : (int)syscall(number, from_folder, from, extra);
  if (result == 0 && (name || other)) {
    struct stat s = {0};
    if (kind == MKDIR) {
      syscall(SYS_newfstatat, AT_FDCWD, name, &s, AT_SYMLINK_NOFOLLOW);
      forget_inode(s.st_ino);
    }
    record(kind, s.st_ino, 0, name, name ? strlen(name) : 0, other, other ? strlen(other) : 0);
  }
  unlock(locked);
  after(fault);
  return result;
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
  if (is_asked("FAULTSHIM_TRAP_NAMED", from)) __builtin_trap();
  return named("rename", SPACE | CHANGE, RENAME, a, from, b, to, SYS_renameat2, flags);
}
int renameat(int a, const char *from, int b, const char *to) { return renameat2(a, from, b, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int a, const char *from, int b, const char *to, int flags) {
  return named("link", SPACE | CHANGE, LINK, a, from, b, to, SYS_linkat, flags);
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int unlinkat(int folder, const char *path, int flags) {
  if (is_asked("FAULTSHIM_HOLD_DELETION", path)) wait_while_held();
  return named("unlink", CHANGE, UNLINK, folder, path, -1, NULL, SYS_unlinkat, flags);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int folder, const char *path, mode_t mode) {
  return named("mkdir", SPACE | CHANGE, MKDIR, folder, path, -1, NULL, SYS_mkdirat, mode);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

// The target is text, and no path of ours.
int symlinkat(const char *target, int folder, const char *path) {
  char buffer[PATH_MAX];
  const char *name = full(folder, path, buffer);
  enum fault fault = befalls("symlink", SPACE | CHANGE, name);
  if (failed(fault)) return -1;
  int locked = lock();
  int result = (int)syscall(SYS_symlinkat, target, folder, path);
  if (result == 0 && name) record(SYMLINK, 0, 0, name, strlen(name), target, strlen(target));
  unlock(locked);
  after(fault);
  return result;
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

int fchmod(int fd, mode_t mode) {
  enum fault fault = befalls("fchmod", CHANGE, name_of(fd));
  if (failed(fault)) return -1;
  if (file_owner >= 0 && name_of(fd)) {
    errno = EPERM;
    return -1;
  }
  int result = (int)syscall(SYS_fchmod, fd, mode);
  after(fault);
  return result;
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags) {
  enum fault fault = befalls("fsetxattr", SPACE | CHANGE, name_of(fd));
  if (failed(fault)) return -1;
  int result = (int)syscall(SYS_fsetxattr, fd, name, value, size, flags);
  after(fault);
  return result;
}
