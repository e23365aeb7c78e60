#define _GNU_SOURCE
#include "CConfine.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
const bool todoku_is_sanitized = SANITIZED;

// MARK: The parent

static bool follow(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return getppid() == parent;  // the parent may have ended before the call above
}

bool todoku_become_child(int first, const char *name, pid_t parent) {
#ifdef SYS_close_range
  if (first >= 0 && syscall(SYS_close_range, first, ~0U, 0) != 0)
#else
  if (first >= 0)
#endif
  {
    struct rlimit limit;
    rlim_t most = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 65536 ? limit.rlim_cur : 65536;
    for (rlim_t fd = (rlim_t)first; fd < most; fd++) close((int)fd);
  }
  prctl(PR_SET_NAME, name);
  return follow(parent);
}

// MARK: Limits

/// Sets the soft limit to `most`, and the hard limit `margin` above it, both as far as the hard limit of now allows.
static bool limit(int resource, uint64_t most, uint64_t margin) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0) return false;
  if (limit.rlim_max == RLIM_INFINITY || most + margin < limit.rlim_max) limit.rlim_max = most + margin;
  limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
  return setrlimit(resource, &limit) == 0;
}

/// Bytes of address space; 0: unknown.
static uint64_t mapped(void) {
  FILE *file = fopen("/proc/self/statm", "re");
  unsigned long pages = 0;
  if (!file) return 0;
  if (fscanf(file, "%lu", &pages) != 1) pages = 0;
  fclose(file);
  return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool bound(const struct todoku_bounds *bounds) {
  uint64_t now = mapped();
  bool done = now > 0 && bounds->memory < UINT64_MAX / 2 && limit(RLIMIT_AS, now + bounds->memory, 0);
  const struct { int resource; uint64_t most, margin; } others[] = {
    // SIGXCPU, which tells the reason, comes at the soft limit. At the hard limit the kernel sends SIGKILL only.
    {RLIMIT_CPU, bounds->seconds, 1},
    {RLIMIT_FSIZE, bounds->file_size, 0}, {RLIMIT_NOFILE, bounds->descriptors, 0}, {RLIMIT_CORE, 0, 0},
    {RLIMIT_NPROC, 0, 0}, {RLIMIT_MEMLOCK, 0, 0}, {RLIMIT_MSGQUEUE, 0, 0},
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    done = limit((int)others[i].resource, others[i].most, others[i].margin) && done;
  return done;
}

/// Has the kernel end this process before any other if memory is short.
static void volunteer(void) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  ssize_t written = write(fd, "500", 3);
  (void)written;
  close(fd);
}

// MARK: Namespaces

static bool drop_capabilities(void) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[2] = {{0}};
  return syscall(SYS_capset, &header, none) == 0;
}

static unsigned detach(int folder) {
  unsigned done = 0;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC) == 0) {
    done |= TODOKU_CONFINED_NETWORK;
  } else if (unshare(CLONE_NEWUSER) != 0 && geteuid() != 0) {
    return 0;
  }
  if (fchdir(folder) == 0 && chroot(".") == 0) done |= TODOKU_CONFINED_ROOT;
  // With its capabilities, a process could leave the root.
  if (!drop_capabilities()) done &= ~(unsigned)TODOKU_CONFINED_ROOT;
  return done;
}

// MARK: Landlock

// The numbers are the same on every architecture; older headers lack them.
enum { landlock_create = 444, landlock_add = 445, landlock_restrict = 446 };
enum {
  fs_write_file = 1 << 1, fs_read_dir = 1 << 3, fs_remove_file = 1 << 5, fs_make_dir = 1 << 7, fs_make_reg = 1 << 8,
  fs_make_sym = 1 << 12, fs_refer = 1 << 13, fs_truncate = 1 << 14, fs_ioctl_dev = 1 << 15,
  net_bind_and_connect = 3, scope_sockets_and_signals = 3,
};
struct ruleset { uint64_t fs, net, scoped; };
struct path_beneath { uint64_t allowed; int32_t parent; } __attribute__((packed));

static bool restrict_files(int folder) {
  long version = syscall(landlock_create, NULL, 0, 1);
  // Version 1 (Linux 5.13 to 5.18) refuses every hard link into another folder.
  if (version < 2) return false;
  struct ruleset ruleset = {.fs = (fs_refer << 1) - 1};
  struct path_beneath rule = {
    .allowed = fs_write_file | fs_read_dir | fs_remove_file | fs_make_dir | fs_make_reg | fs_make_sym | fs_refer, .parent = folder};
  if (version >= 3) {
    ruleset.fs |= fs_truncate;
    rule.allowed |= fs_truncate;
  }
  if (version >= 4) ruleset.net = net_bind_and_connect;
  if (version >= 5) ruleset.fs |= fs_ioctl_dev;
  if (version >= 6) ruleset.scoped = scope_sockets_and_signals;
  size_t size = version >= 6 ? sizeof ruleset : version >= 4 ? offsetof(struct ruleset, scoped) : offsetof(struct ruleset, net);
  int fd = (int)syscall(landlock_create, &ruleset, size, 0);
  if (fd < 0) return false;
  bool done = syscall(landlock_add, fd, 1, &rule, 0) == 0 && syscall(landlock_restrict, fd, 0) == 0;
  close(fd);
  return done;
}

// MARK: System calls

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#endif

#ifdef ARCHITECTURE
#define LOW(argument) (offsetof(struct seccomp_data, args) + 8 * (argument))  // these architectures are little-endian

/// What unpacking needs, whatever the arguments are.
static const int allowed[] = {
  SYS_read, SYS_pread64, SYS_write, SYS_pwrite64, SYS_writev, SYS_lseek, SYS_close, SYS_ftruncate, SYS_fsync, SYS_fdatasync, SYS_syncfs,
  SYS_sync_file_range, SYS_utimensat, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_fstatfs, SYS_readlinkat, SYS_linkat, SYS_symlinkat,
  SYS_unlinkat, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_futex, SYS_getrandom, SYS_clock_gettime, SYS_sched_yield, SYS_getpid,
  SYS_gettid, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall, SYS_exit, SYS_exit_group,
};
/// What only a program does that the archive has taken over. Such a program is killed. Other calls fail with ENOSYS, because a newer C
/// library may try a newer call first.
static const int deadly[] = {
  SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_sendto, SYS_sendmsg, SYS_execve,
  SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount, SYS_setuid, SYS_kill, SYS_unshare, SYS_setns,
#ifdef SYS_fork
  SYS_fork, SYS_vfork,
#endif
};

enum { mask_set_id = S_ISUID | S_ISGID | S_ISVTX };
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define STEP(code, k) (struct sock_filter) BPF_STMT(code, k)
#define LOAD(offset) STEP(BPF_LD | BPF_W | BPF_ABS, offset)
#define RETURN(action) STEP(BPF_RET | BPF_K, action)
// Skips so many steps if the condition does not hold.
#define UNLESS_EQUAL(value, skip) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define IF_ANY_BIT(bits, skip) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, skip)

static bool restrict_calls(void) {
  struct sock_filter filter[COUNT(allowed) * 2 + COUNT(deadly) * 2 + 48];
  unsigned short n = 0;
  const struct sock_filter no = RETURN(SECCOMP_RET_ERRNO | EPERM), yes = RETURN(SECCOMP_RET_ALLOW);
  const struct sock_filter death = RETURN(SECCOMP_RET_KILL_PROCESS);
  filter[n++] = LOAD(offsetof(struct seccomp_data, arch));
  filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
  filter[n++] = death;
  filter[n++] = LOAD(offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
  filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);  // x32
  filter[n++] = death;
#endif
  for (size_t i = 0; i < COUNT(allowed); i++) {
    filter[n++] = UNLESS_EQUAL((unsigned)allowed[i], 1);
    filter[n++] = yes;
  }
  for (size_t i = 0; i < COUNT(deadly); i++) {
    filter[n++] = UNLESS_EQUAL((unsigned)deadly[i], 1);
    filter[n++] = death;
  }
  // Calls with an argument that counts: its index, and the bits that it must not have.
  const struct { int call, argument; unsigned refused; } careful[] = {
    {SYS_openat, 3, mask_set_id}, {SYS_mkdirat, 2, mask_set_id}, {SYS_mmap, 2, PROT_EXEC}, {SYS_mprotect, 2, PROT_EXEC},
  };
  for (size_t i = 0; i < COUNT(careful); i++) {
    filter[n++] = UNLESS_EQUAL((unsigned)careful[i].call, 4);
    filter[n++] = LOAD(LOW(careful[i].argument));
    filter[n++] = IF_ANY_BIT(careful[i].refused, 1);
    filter[n++] = no;
    filter[n++] = yes;
  }
  // abort(3) and raise(3): only this process.
  filter[n++] = UNLESS_EQUAL(SYS_tgkill, 4);
  filter[n++] = LOAD(LOW(0));
  filter[n++] = UNLESS_EQUAL((unsigned)getpid(), 1);
  filter[n++] = yes;
  filter[n++] = death;
  filter[n++] = RETURN(SECCOMP_RET_ERRNO | ENOSYS);
  struct sock_fprog program = {.len = n, .filter = filter};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#else
static bool restrict_calls(void) { return false; }
#endif

unsigned todoku_confine(int folder, pid_t parent, const struct todoku_bounds *bounds) {
  if (SANITIZED) return 0;
  unsigned done = 0;
  volunteer();
  // A runtime that explains crashes starts a program for that, which would hide the signal.
  static const int crashes[] = {SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGQUIT};
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) signal(crashes[i], SIG_DFL);
  // Nobody but root reads this process's memory.
  prctl(PR_SET_DUMPABLE, 0);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 0;
  if (bound(bounds)) done |= TODOKU_CONFINED_LIMITS;
  done |= detach(folder);
  drop_capabilities();
  // A change of rights may have reset it.
  if (!follow(parent)) _exit(1);
  if (restrict_files(folder)) done |= TODOKU_CONFINED_FILES;
  if (restrict_calls()) done |= TODOKU_CONFINED_CALLS;
  return done;
}
