// What Swift's Glibc module leaves out: headers that are not in its map, and calls that need _GNU_SOURCE.
#pragma once
#include <iconv.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/xattr.h>

/// Names the calling thread (at most 15 bytes), pthread_setname_np(3).
void todoku_set_thread_name(const char *name);

/// fallocate(2) with FALLOC_FL_KEEP_SIZE. 0 or errno.
int todoku_fallocate_keep_size(int fd, off_t offset, off_t length);

/// Opens a folder for reading, openat2(2) with RESOLVE_NO_SYMLINKS: fails with ELOOP if the path has a symbolic link anywhere. -1 with
/// errno; ENOSYS before Linux 5.6.
int todoku_open_folder_without_links(const char *path);
/// Whether `path` exists and no component of it is a symbolic link, by openat2(2). False also if that call is missing (before Linux 5.6)
/// or forbidden (EPERM in some sandboxes).
bool todoku_is_without_links(const char *path);

/// renameat2(2) with RENAME_NOREPLACE: `from` in `folder` becomes `to` in `new_folder`. 0 or errno.
int todoku_rename_noreplace(int folder, const char *from, int new_folder, const char *to);

/// sync_file_range(2) with SYNC_FILE_RANGE_WRITE: starts writing back, waits for nothing. 0 or errno.
int todoku_start_writeback(int fd, off_t offset, off_t length);

/// syncfs(2): flushes the whole file system of an open file. 0 or errno.
int todoku_sync_file_system(int fd);

/// Whether syncfs(2) leaves all of an open file's file system on its disk, and tells of every failure: for file systems of a local disk
/// that are known to, on Linux 5.8 and newer. FUSE does not pass it on, network file systems differ.
bool todoku_is_flushed_whole(int fd);

/// Which file one is, as statx(2) tells.
struct todoku_file_identity {
  uint64_t device, inode;
  /// 0: the kernel has no mount ids.
  uint64_t mount;
  /// When it was made, in nanoseconds since the Unix epoch; 0: the file system does not tell.
  int64_t born;
  /// Its size in bytes, and its mode and owner as in struct stat.
  uint64_t size;
  uint32_t mode, owner;
};

/// The identity of an open file, also of one opened with O_PATH. 0 or errno.
int todoku_identify_file(int fd, struct todoku_file_identity *identity);

/// O_PATH of open(2), which glibc shows to _GNU_SOURCE only.
extern const int todoku_o_path;
/// O_DIRECT, likewise.
extern const int todoku_o_direct;

/// The seals of a memory file, fcntl(2) with F_GET_SEALS; -1: it can have none.
int todoku_get_seals(int fd);
/// The seals against writing (F_SEAL_WRITE, F_SEAL_FUTURE_WRITE), growing and shrinking.
extern const int todoku_seal_write, todoku_seal_grow, todoku_seal_shrink;

/// Whether an open file lies on a file system in memory: tmpfs, hugetlbfs or ramfs.
bool todoku_is_memory(int fd);

/// Whether an open file lies in memory that no file system bounds: a memfd is a file of the kernel's own mount of tmpfs or hugetlbfs, which
/// has no size. A tmpfs that was mounted with a size bounds itself.
bool todoku_is_unbounded_memory(int fd);

/// accept4(2) with SOCK_CLOEXEC: no child process inherits the socket, even one that starts at this instant. -1 with errno.
int todoku_accept(int listener);

/// pipe2(2) with O_CLOEXEC. 0 or errno.
int todoku_pipe(int descriptors[2]);

/// Whether this process ignores `signal`, sigaction(2) with SIG_IGN. Its parent may have set that.
bool todoku_is_ignored(int signal);

/// Limits malloc(3) to one arena, and makes it return large blocks to the kernel at once: for a program of few threads that lives long and
/// should stay small. Call before the first thread starts.
///
/// Blocks below 1 MiB are reused, and so are 2 MiB at the end of the heap. With smaller limits, each small file cost four calls of mmap(2)
/// and munmap(2), and an eighth of the processor time.
void todoku_keep_heap_small(void);

/// Returns unused memory to the kernel, malloc_trim(3).
void todoku_trim_heap(void);

/// Takes the code and the constants of this program and its libraries out of its memory, madvise(2) with MADV_DONTNEED. They come back from
/// the page cache, or from their files, when they are used. A debugger’s breakpoints are lost.
void todoku_release_code(void);

/// Installs a handler for SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGABRT and SIGFPE. On a crash it appends a line to the file `path`: the number
/// of the download that the crashing thread worked on, else of the only running transfer. The previous action of the signal follows.
/// SIGKILL cannot be handled. The calling thread gets an alternate stack; other threads need `todoku_take_alternate_stack`.
void todoku_mark_crashes(const char *path);

/// Gives the calling thread an alternate signal stack, so that a handler can run after a stack overflow. Returns NULL if the thread has one
/// already, or without memory. The same thread must return it before it ends.
void *todoku_take_alternate_stack(void);
void todoku_drop_alternate_stack(void *memory);

/// What this thread works on from now on; 0: nothing. Returns what it worked on before.
uint64_t todoku_work_on(uint64_t number);

/// A transfer has begun, or has ended. From any thread.
void todoku_transfer_began(uint64_t number);
void todoku_transfer_ended(uint64_t number);

/// Whether an interface other than loopback is up and has an IPv4 or a global IPv6 address, getifaddrs(3). True where nobody can tell.
bool todoku_has_interface(void);

/// Whether there is a route to the public network, IPv4 or IPv6: connect(2) on datagram sockets, which sends nothing.
bool todoku_has_route(void);

/// A socket that is readable after each change of a link, an address or a route, rtnetlink(7). Reading does not block. -1 with errno.
int todoku_watch_routes(void);

/// Whether there is no host with this name, or the host has no address, as the system's resolver says (getaddrinfo(3)). False also if the
/// name servers do not answer. May block for a minute.
bool todoku_is_host_missing(const char *host);

/// Lets this process open as many files as it may at most: raises the soft limit of RLIMIT_NOFILE (getrlimit(2)) to the hard one.
void todoku_raise_file_limit(void);
/// Gives a child the soft limit that this process had before `todoku_raise_file_limit`: select(2) fails above descriptor 1023.
void todoku_lower_file_limit(pid_t child);

/// Starts a program that the kernel kills when the calling thread ends (PR_SET_PDEATHSIG of prctl(2)). No signal is blocked in the program,
/// SIGPIPE has its default action, and signals that this process ignores stay ignored. Looks `arguments[0]` up in PATH, unless it has a
/// slash. -1 with errno if the program cannot be started.
///
/// `output` and `errors` become its standard output and standard error; -1: ours. `is_daemon`: it begins a process group, so that Ctrl-C at
/// a terminal does not reach it, and its standard input is empty.
pid_t todoku_start_tied(char *const arguments[], char *const environment[], int output, int errors, bool is_daemon);

/// From now on, a descendant whose parent has ended becomes a child of this process (PR_SET_CHILD_SUBREAPER of prctl(2)). 0 or errno.
int todoku_adopt_orphans(void);

/// Gives this process and its children mounts of their own (unshare(2)), if need be in a user namespace, in which they keep their user and
/// group. Only before the first thread starts. 0 or errno.
int todoku_have_own_mounts(void);
/// Mounts a file system in memory (tmpfs) of `size` bytes at `folder`, or unmounts it. Only after `todoku_have_own_mounts`. 0 or errno.
int todoku_mount_memory_disk(const char *folder, uint64_t size);
int todoku_unmount(const char *folder);

/// Removes a file, or a folder with everything in it, down to 200 folders deep. Follows no link, and leaves what is mounted in the folder.
/// What cannot be removed stays.
void todoku_remove_tree(const char *path);
