#define _GNU_SOURCE
#include "CSystem.h"
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <malloc.h>
#include <netdb.h>
#include <net/if.h>
#include <netinet/in.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

void todoku_set_thread_name(const char *name) { pthread_setname_np(pthread_self(), name); }

int todoku_fallocate_keep_size(int fd, off_t offset, off_t length) {
  return fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, length) == 0 ? 0 : errno;
}

/// The C library has it from 2.42 on.
struct open_how;
extern int openat2(int, const char *, const struct open_how *, size_t) __attribute__((weak));

static int open_without_links(const char *path, int flags) {
  enum { NO_SYMLINKS = 0x04 };  // RESOLVE_NO_SYMLINKS
  const struct { uint64_t flags, mode, resolve; } how = {(uint64_t)(flags | O_CLOEXEC), 0, NO_SYMLINKS};
  if (openat2) return openat2(AT_FDCWD, path, (const struct open_how *)&how, sizeof how);
  return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

int todoku_open_folder_without_links(const char *path) { return open_without_links(path, O_RDONLY | O_DIRECTORY); }

bool todoku_is_without_links(const char *path) {
  int fd = open_without_links(path, O_PATH);
  if (fd < 0) return false;
  close(fd);
  return true;
}

int todoku_rename_noreplace(int folder, const char *from, int new_folder, const char *to) {
  return renameat2(folder, from, new_folder, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
}

int todoku_start_writeback(int fd, off_t offset, off_t length) {
  return sync_file_range(fd, offset, length, SYNC_FILE_RANGE_WRITE) == 0 ? 0 : errno;
}

int todoku_sync_file_system(int fd) { return syncfs(fd) == 0 ? 0 : errno; }

bool todoku_is_flushed_whole(int fd) {
  struct utsname kernel;
  int major = 0, minor = 0;
  if (uname(&kernel) != 0 || sscanf(kernel.release, "%d.%d", &major, &minor) != 2 || major < 5 || (major == 5 && minor < 8)) return false;
  struct statfs status;
  if (fstatfs(fd, &status) != 0) return false;
  switch ((unsigned long)status.f_type & 0xFFFFFFFF) {
  case 0xEF53:      // ext2, ext3, ext4
  case 0x9123683E:  // btrfs
  case 0x58465342:  // XFS
  case 0xF2F52010:  // F2FS
  case 0x01021994:  // tmpfs
  case 0x4D44:      // FAT
  case 0x2011BAB0:  // exFAT
  case 0xCA451A4E:  // bcachefs
    return true;
  default: return false;
  }
}

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x00001000U
#endif

int todoku_identify_file(int fd, struct todoku_file_identity *identity) {
  struct statx s;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID, &s) != 0) return errno;
  identity->device = makedev(s.stx_dev_major, s.stx_dev_minor);
  identity->inode = s.stx_ino;
  identity->mount = (s.stx_mask & STATX_MNT_ID) ? s.stx_mnt_id : 0;
  identity->born = (s.stx_mask & STATX_BTIME) ? (int64_t)((uint64_t)s.stx_btime.tv_sec * 1000000000 + s.stx_btime.tv_nsec) : 0;
  identity->size = s.stx_size;
  identity->mode = s.stx_mode;
  identity->owner = s.stx_uid;
  return 0;
}

const int todoku_o_path = O_PATH;
const int todoku_o_direct = O_DIRECT;

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
const int todoku_seal_write = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
const int todoku_seal_grow = F_SEAL_GROW;
const int todoku_seal_shrink = F_SEAL_SHRINK;

int todoku_get_seals(int fd) { return fcntl(fd, F_GET_SEALS); }

int todoku_accept(int listener) { return accept4(listener, NULL, NULL, SOCK_CLOEXEC); }

int todoku_pipe(int descriptors[2]) { return pipe2(descriptors, O_CLOEXEC) == 0 ? 0 : errno; }

bool todoku_is_ignored(int signal) {
  struct sigaction action;
  return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void todoku_keep_heap_small(void) {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 2048 * 1024);
}

void todoku_trim_heap(void) { malloc_trim(0); }

// Whether the dynamic linker has changed the code of an object. The changes would be lost.
static bool has_changed_code(const struct dl_phdr_info *object) {
  for (int i = 0; i < object->dlpi_phnum; i++) {
    if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; entry++) {
      if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL))) return true;
    }
  }
  return false;
}

static int release_code(struct dl_phdr_info *object, size_t size, void *page_size) {
  (void)size;
  const uintptr_t page = *(const uintptr_t *)page_size;
  if (has_changed_code(object)) return 0;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_W)) continue;
    const uintptr_t start = (object->dlpi_addr + part->p_vaddr + page - 1) / page * page;
    const uintptr_t end = (object->dlpi_addr + part->p_vaddr + part->p_filesz) / page * page;
    // The part of the kernel (vdso) is refused.
    if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
  }
  return 0;
}

void todoku_release_code(void) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  dl_iterate_phdr(release_code, &page);
}

static bool reaches_out(const struct ifaddrs *i) {
  if (i->ifa_addr == NULL || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) return false;
  if (i->ifa_addr->sa_family == AF_INET) return true;
  if (i->ifa_addr->sa_family != AF_INET6) return false;
  return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
}

bool todoku_has_interface(void) {
  struct ifaddrs *all;
  if (getifaddrs(&all) != 0) return true;
  bool found = false;
  for (struct ifaddrs *i = all; i != NULL && !found; i = i->ifa_next) found = reaches_out(i);
  freeifaddrs(all);
  return found;
}

bool todoku_is_host_missing(const char *host) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  int result = getaddrinfo(host, NULL, &hints, &found);
  if (result == 0) freeaddrinfo(found);
  return result == EAI_NONAME || result == EAI_NODATA;
}

static bool routes(const struct sockaddr *address, socklen_t length) {
  int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool found = connect(fd, address, length) == 0;
  close(fd);
  return found;
}

bool todoku_has_route(void) {
  // Addresses for documentation, RFC 5737 and RFC 3849: nobody has them, so only a default route leads there.
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xC0000201)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr.s6_addr = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}};
  return routes((struct sockaddr *)&v4, sizeof v4) || routes((struct sockaddr *)&v6, sizeof v6);
}

int todoku_watch_routes(void) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd < 0) return -1;
  struct sockaddr_nl groups = {
      .nl_family = AF_NETLINK,
      .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE,
  };
  if (bind(fd, (struct sockaddr *)&groups, sizeof groups) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

static const int crash_signals[] = {SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGABRT, SIGFPE};
static struct sigaction former_actions[sizeof crash_signals / sizeof *crash_signals];
static char crash_file[PATH_MAX];
static _Thread_local uint64_t at_work;
// Of the transfers under way: how many, and the exclusive or of their numbers, which is the number where it is one.
static _Atomic uint64_t transfer_count, transfer_numbers;

// Calls nothing but what signal-safety(7) allows.
static void crashed(int number) {
  uint64_t culprit = at_work;
  if (!culprit && atomic_load(&transfer_count) == 1) culprit = atomic_load(&transfer_numbers);
  if (culprit) {
    char line[24];
    size_t start = sizeof line;
    line[--start] = '\n';
    do line[--start] = (char)('0' + culprit % 10);
    while (culprit /= 10);
    int fd = open(crash_file, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
      ssize_t written = write(fd, line + start, sizeof line - start);
      (void)written;
      close(fd);
    }
  }
  for (size_t i = 0; i < sizeof crash_signals / sizeof *crash_signals; i++)
    if (crash_signals[i] == number) sigaction(number, &former_actions[i], NULL);
  raise(number);  // it is blocked until this returns
}

enum { alternate_stack_size = 64 * 1024 };

void *todoku_take_alternate_stack(void) {
  stack_t held;
  if (sigaltstack(NULL, &held) != 0 || !(held.ss_flags & SS_DISABLE)) return NULL;  // a sanitizer has given one
  void *memory = mmap(NULL, alternate_stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  stack_t own = {.ss_sp = memory, .ss_size = alternate_stack_size};
  if (sigaltstack(&own, NULL) == 0) return memory;
  munmap(memory, alternate_stack_size);
  return NULL;
}

void todoku_drop_alternate_stack(void *memory) {
  if (!memory) return;
  stack_t none = {.ss_flags = SS_DISABLE, .ss_size = alternate_stack_size};
  if (sigaltstack(&none, NULL) == 0) munmap(memory, alternate_stack_size);
}

void todoku_mark_crashes(const char *path) {
  if (strlen(path) >= sizeof crash_file || *crash_file) return;
  strcpy(crash_file, path);
  todoku_take_alternate_stack();
  struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof crash_signals / sizeof *crash_signals; i++) sigaction(crash_signals[i], &action, &former_actions[i]);
}

uint64_t todoku_work_on(uint64_t number) {
  uint64_t before = at_work;
  at_work = number;
  return before;
}

void todoku_transfer_began(uint64_t number) {
  atomic_fetch_xor(&transfer_numbers, number);
  atomic_fetch_add(&transfer_count, 1);
}

void todoku_transfer_ended(uint64_t number) {
  atomic_fetch_sub(&transfer_count, 1);
  atomic_fetch_xor(&transfer_numbers, number);
}

static bool is_memory(const struct statfs *status) {
  switch ((unsigned long)status->f_type & 0xFFFFFFFF) {
  case 0x01021994:  // TMPFS_MAGIC
  case 0x958458F6:  // HUGETLBFS_MAGIC
  case 0x858458F6:  // RAMFS_MAGIC
    return true;
  default: return false;
  }
}

bool todoku_is_memory(int fd) {
  struct statfs status;
  return fstatfs(fd, &status) == 0 && is_memory(&status);
}

bool todoku_is_unbounded_memory(int fd) {
  struct statfs status;
  return fstatfs(fd, &status) == 0 && status.f_blocks == 0 && is_memory(&status);
}

static struct rlimit first_limit;  // written once, before the first child

void todoku_raise_file_limit(void) {
  if (getrlimit(RLIMIT_NOFILE, &first_limit) != 0) return;
  struct rlimit limit = {first_limit.rlim_max, first_limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &limit);
}

void todoku_lower_file_limit(pid_t child) {
  if (first_limit.rlim_max != 0) prlimit(child, RLIMIT_NOFILE, &first_limit, NULL);
}
