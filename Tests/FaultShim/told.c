// SPDX-License-Identifier: Apache-2.0
// What the program is told of its files and servers, and what it tells: inode numbers, owners, room, messages, bytes received.
#include "faultshim.h"

// MARK: Sockets

static int is_local_socket(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

// What goes out on a local socket is recorded as far as it was taken: the messages that others can have seen.
static ssize_t sent(int fd, const struct iovec *parts, size_t count, ssize_t (*send)(int, const void *, int), const void *what, int flags) {
  if (record_fd < 0 || !is_local_socket(fd)) return send(fd, what, flags);
  int locked = lock();
  ssize_t result = send(fd, what, flags);
  ssize_t left = result;
  for (size_t i = 0; i < count && left > 0; i++) {
    size_t length = parts[i].iov_len < (size_t)left ? parts[i].iov_len : (size_t)left;
    record(SENT, (uint64_t)fd, 0, parts[i].iov_base, length, NULL, 0);
    left -= length;
  }
  unlock(locked);
  return result;
}

static ssize_t send_plain(int fd, const void *part, int flags) {
  const struct iovec *one = part;
  return syscall(SYS_sendto, fd, one->iov_base, one->iov_len, flags, NULL, 0);
}
static ssize_t send_message(int fd, const void *message, int flags) { return syscall(SYS_sendmsg, fd, message, flags); }

ssize_t send(int fd, const void *bytes, size_t count, int flags) {
  struct iovec part = {(void *)bytes, count};
  return sent(fd, &part, 1, send_plain, &part, flags);
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  return sent(fd, message->msg_iov, message->msg_iovlen, send_message, message, flags);
}
ssize_t write(int fd, const void *bytes, size_t count) {
  if (record_fd >= 0 && !name_of(fd) && is_local_socket(fd)) return send(fd, bytes, count, 0);
  return written("write", fd, bytes, count, -1);
}

// Bytes that servers have given, by port: what was fetched, however far a server was ahead.
ssize_t recv(int fd, void *bytes, size_t count, int flags) {
  ssize_t result = syscall(SYS_recvfrom, fd, bytes, count, flags, NULL, NULL);
  struct sockaddr_in peer;
  socklen_t length = sizeof peer;
  if (result <= 0 || (flags & MSG_PEEK) || !shared->is_mapped) return result;
  if (syscall(SYS_getpeername, fd, &peer, &length) != 0 || peer.sin_family != AF_INET) return result;
  uint64_t port = ntohs(peer.sin_port);
  for (int i = 0; i < 64; i++) {
    uint64_t holder = 0;  // of the place: we, if it is free
    if (__atomic_compare_exchange_n(&shared->received[i].port, &holder, port, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) holder = port;
    if (holder != port) continue;
    __atomic_add_fetch(&shared->received[i].bytes, (uint64_t)result, __ATOMIC_SEQ_CST);
    break;
  }
  return result;
}

// MARK: Inode numbers and owners

static uint64_t told(uint64_t inode) {
  for (int i = 0; i < inode_count; i++) if (inodes[i].real == inode) return inodes[i].told;
  return inode;
}

static int looked(int folder, const char *path, struct stat *s, int flags) {
  int result = (int)syscall(SYS_newfstatat, folder, path, s, flags);
  if (result == 0 && inode_count) s->st_ino = told(s->st_ino);
  if (result == 0 && file_owner >= 0 && S_ISREG(s->st_mode) && (folder >= 0 ? name_of(folder) != NULL : is_below(path)))
    s->st_uid = (uid_t)file_owner;
  return result;
}

int fstat(int fd, struct stat *s) { return looked(fd, "", s, AT_EMPTY_PATH); }
int fstat64(int fd, struct stat64 *s) { return looked(fd, "", (struct stat *)s, AT_EMPTY_PATH); }
int stat(const char *path, struct stat *s) { return looked(AT_FDCWD, path, s, 0); }
int stat64(const char *path, struct stat64 *s) { return looked(AT_FDCWD, path, (struct stat *)s, 0); }
int lstat(const char *path, struct stat *s) { return looked(AT_FDCWD, path, s, AT_SYMLINK_NOFOLLOW); }
int lstat64(const char *path, struct stat64 *s) { return looked(AT_FDCWD, path, (struct stat *)s, AT_SYMLINK_NOFOLLOW); }
int fstatat(int folder, const char *path, struct stat *s, int flags) { return looked(folder, path, s, flags); }
int fstatat64(int folder, const char *path, struct stat64 *s, int flags) { return looked(folder, path, (struct stat *)s, flags); }

int statx(int folder, const char *path, int flags, unsigned mask, struct statx *s) {
  int result = (int)syscall(SYS_statx, folder, path, flags, mask, s);
  if (result == 0 && file_owner >= 0 && S_ISREG(s->stx_mode) && (folder >= 0 ? name_of(folder) != NULL : is_below(path)))
    s->stx_uid = (uint32_t)file_owner;
  if (result == 0 && invents_inodes && S_ISREG(s->stx_mode) && (flags & AT_EMPTY_PATH) && name_of(folder))
    s->stx_ino += (uint64_t)folder << 32;
  if (result == 0 && inode_count) {
    s->stx_ino = told(s->stx_ino);
    s->stx_mask &= ~STATX_BTIME;  // files that were made again were not born when those were that they stand for
  }
  return result;
}

// A file system on which syncfs(2) is not known to flush everything.
static int named(int result, int fd, struct statfs *s) {
  if (result == 0 && getenv("FAULTSHIM_PLAIN") && name_of(fd)) s->f_type = 0x65735546;  // FUSE
  return result;
}
int fstatfs(int fd, struct statfs *s) { return named((int)syscall(SYS_fstatfs, fd, s), fd, s); }
int fstatfs64(int fd, struct statfs64 *s) { return fstatfs(fd, (struct statfs *)s); }

// MARK: Room

// While a full disk lasts, it also says that it is full.
static int measured(int result, int is_ours, struct statvfs *s) {
  int is_full = (wanted == ENOSPC_ || wanted == EDQUOT_) && lasting && shared->hits && !__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST);
  if (result == 0 && is_ours && is_full) s->f_bavail = s->f_bfree = 0;
  const char *blocks = getenv("FAULTSHIM_BLOCKS");
  if (result == 0 && is_ours && blocks) s->f_blocks = s->f_bfree = s->f_bavail = strtoull(blocks, NULL, 10);
  return result;
}

int statvfs(const char *path, struct statvfs *s) {
  static int (*next)(const char *, struct statvfs *);
  if (!next) next = (int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs");
  return measured(next(path, s), is_below(path), s);
}
int fstatvfs(int fd, struct statvfs *s) {
  static int (*next)(int, struct statvfs *);
  if (!next) next = (int (*)(int, struct statvfs *))dlsym(RTLD_NEXT, "fstatvfs");
  return measured(next(fd, s), name_of(fd) != NULL, s);
}
int statvfs64(const char *path, struct statvfs64 *s) { return statvfs(path, (struct statvfs *)s); }
int fstatvfs64(int fd, struct statvfs64 *s) { return fstatvfs(fd, (struct statvfs *)s); }
