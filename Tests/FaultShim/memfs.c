// SPDX-License-Identifier: Apache-2.0
// A file system in memory that can hang: served to the kernel over /dev/fuse (fuse(4)) by a process that a test stops and lets go on
// (SIGSTOP, SIGCONT). While it is stopped, every call on the file system waits, as on a dead network mount.
//
//   memfs PIDFILE OPERATION FOLDER... -- PROGRAM ARGUMENT...
//
// In a mount namespace of its own it mounts one such file system on each FOLDER, writes the serving process' id into PIDFILE and becomes
// PROGRAM. The serving process stops itself when the first OPERATION comes (lookup, create, write, fsync, rename, statfs, flush; none:
// never), and is killed with the program. held-write, held-read: it goes on, but answers no write (no read) before SIGUSR1. quota: before
// SIGUSR1 no file grows beyond a MiB (EDQUOT), while statfs tells of 4 GiB that are free, as where only this user's share of a disk is
// used up. After SIGUSR2 the process stops itself at the next flush, that is when a program closes a file.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { MOST_MOUNTS = 64, MOST_NODES = 1024, MOST_WRITE = 128 << 10, QUOTA = 1 << 20 };

struct node {
  uint64_t parent;  // 0: it has no name any more
  char name[256];
  uint32_t mode;
  char *data;
  uint64_t size, room;
};

struct mount {
  int fd;
  struct node nodes[MOST_NODES];  // the root is 1
  uint64_t count;
};

static struct mount *mounts[MOST_MOUNTS];
static int mount_count, has_quota;
static uint32_t holds;
static volatile sig_atomic_t stops_at;  // an operation; 0: none
static volatile sig_atomic_t is_let_go;
static struct { struct mount *mount; char bytes[1024]; size_t length; } held[256];
static int held_count;

static void let_go(int signal) { (void)signal; is_let_go = 1; }
static void stop_at_close(int signal) { (void)signal; stops_at = FUSE_FLUSH; }

static void fail(const char *what) {
  fprintf(stderr, "memfs: %s: %s\n", what, strerror(errno));
  exit(70);
}

static void put(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) fail(path);
  close(fd);
}

static uint32_t operation(const char *name) {
  static const struct { const char *name; uint32_t code; } all[] = {
      {"none", 0}, {"lookup", FUSE_LOOKUP}, {"create", FUSE_CREATE}, {"write", FUSE_WRITE}, {"fsync", FUSE_FSYNC},
      {"rename", FUSE_RENAME2}, {"statfs", FUSE_STATFS}, {"flush", FUSE_FLUSH}};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) if (!strcmp(name, all[i].name)) return all[i].code;
  errno = EINVAL;
  fail(name);
  return 0;
}

// MARK: Files

static void answer(struct mount *m, const struct fuse_in_header *in, int error, const void *data, size_t length) {
  char out[sizeof(struct fuse_out_header) + MOST_WRITE];
  struct fuse_out_header head = {(uint32_t)(sizeof head + length), error, in->unique};
  memcpy(out, &head, sizeof head);
  if (length) memcpy(out + sizeof head, data, length);
  if (holds && in->opcode == holds && held_count < 256 && sizeof head + length <= sizeof held[0].bytes) {
    held[held_count].mount = m;
    held[held_count].length = sizeof head + length;
    memcpy(held[held_count++].bytes, out, sizeof head + length);
    return;
  }
  if (write(m->fd, out, sizeof head + length) < 0 && errno != ENOENT) _exit(71);  // ENOENT: nobody waits for it any more
}

static uint64_t find(struct mount *m, uint64_t parent, const char *name) {
  for (uint64_t i = 2; i <= m->count; i++) if (m->nodes[i].parent == parent && !strcmp(m->nodes[i].name, name)) return i;
  return 0;
}

static uint64_t make(struct mount *m, uint64_t parent, const char *name, uint32_t mode) {
  if (m->count + 1 >= MOST_NODES) return 0;
  struct node *node = &m->nodes[++m->count];
  node->parent = parent;
  node->mode = mode;
  snprintf(node->name, sizeof node->name, "%s", name);
  return m->count;
}

static void resize(struct node *node, uint64_t size) {
  if (size > node->room) {
    node->room = size * 2;
    if (!(node->data = realloc(node->data, node->room))) _exit(72);
  }
  if (size > node->size) memset(node->data + node->size, 0, size - node->size);
  node->size = size;
}

static struct fuse_attr attributes(struct mount *m, uint64_t id) {
  struct node *node = &m->nodes[id];
  return (struct fuse_attr){.ino = id, .size = node->size, .blocks = (node->size + 511) / 512, .mode = node->mode,
                            .nlink = node->parent ? 1 : 0, .uid = getuid(), .gid = getgid(), .blksize = 4096};
}

static struct fuse_entry_out entry(struct mount *m, uint64_t id) {
  return (struct fuse_entry_out){.nodeid = id, .generation = 1, .attr = attributes(m, id)};
}

static void answer_entry(struct mount *m, const struct fuse_in_header *in, uint64_t id) {
  struct fuse_entry_out out = entry(m, id);
  answer(m, in, 0, &out, sizeof out);
}

static void answer_attributes(struct mount *m, const struct fuse_in_header *in) {
  struct fuse_attr_out out = {.attr = attributes(m, in->nodeid)};
  answer(m, in, 0, &out, sizeof out);
}

static void list(struct mount *m, const struct fuse_in_header *in, const struct fuse_read_in *read) {
  char out[4096];
  size_t length = 0;
  for (uint64_t i = read->offset < 2 ? 2 : read->offset; i <= m->count; i++) {
    struct node *node = &m->nodes[i];
    if (node->parent != in->nodeid) continue;
    size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + strlen(node->name));
    if (length + size > sizeof out || length + size > read->size) break;
    struct fuse_dirent one = {.ino = i, .off = i + 1, .namelen = (uint32_t)strlen(node->name), .type = node->mode >> 12};
    memset(out + length, 0, size);
    memcpy(out + length, &one, FUSE_NAME_OFFSET);
    memcpy(out + length + FUSE_NAME_OFFSET, node->name, one.namelen);
    length += size;
  }
  answer(m, in, 0, out, length);
}

static void rename_to(struct mount *m, const struct fuse_in_header *in, uint64_t folder, uint32_t flags, const char *name) {
  const char *other = name + strlen(name) + 1;
  uint64_t id = find(m, in->nodeid, name), there = find(m, folder, other);
  if (!id) return answer(m, in, -ENOENT, NULL, 0);
  if (flags & ~1u) return answer(m, in, -EINVAL, NULL, 0);
  if (there && flags & 1) return answer(m, in, -EEXIST, NULL, 0);
  if (there) m->nodes[there].parent = 0;
  m->nodes[id].parent = folder;
  snprintf(m->nodes[id].name, sizeof m->nodes[id].name, "%s", other);
  answer(m, in, 0, NULL, 0);
}

static void carry_out(struct mount *m, const struct fuse_in_header *in, const void *body) {
  struct node *node = in->nodeid < MOST_NODES ? &m->nodes[in->nodeid] : NULL;
  const char *name = body;
  uint64_t id;
  switch (in->opcode) {
  case FUSE_INIT: {
    const struct fuse_init_in *init = body;
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_readahead = init->max_readahead,
                                .flags = init->flags & FUSE_BIG_WRITES, .max_background = 16, .max_write = MOST_WRITE / 2};
    return answer(m, in, 0, &out, sizeof out);
  }
  case FUSE_LOOKUP:
    id = find(m, in->nodeid, name);
    return id ? answer_entry(m, in, id) : answer(m, in, -ENOENT, NULL, 0);
  case FUSE_SETATTR: {
    const struct fuse_setattr_in *set = body;
    if (set->valid & FATTR_SIZE) resize(node, set->size);
    if (set->valid & FATTR_MODE) node->mode = (node->mode & S_IFMT) | (set->mode & 07777);
    return answer_attributes(m, in);
  }
  case FUSE_GETATTR: return answer_attributes(m, in);
  case FUSE_MKDIR: {
    const struct fuse_mkdir_in *made = body;
    id = make(m, in->nodeid, (const char *)(made + 1), S_IFDIR | (made->mode & 07777));
    return id ? answer_entry(m, in, id) : answer(m, in, -ENOSPC, NULL, 0);
  }
  case FUSE_CREATE: {
    const struct fuse_create_in *made = body;
    name = (const char *)(made + 1);
    id = find(m, in->nodeid, name);
    if (!id) id = make(m, in->nodeid, name, S_IFREG | (made->mode & 07777));
    if (!id) return answer(m, in, -ENOSPC, NULL, 0);
    struct { struct fuse_entry_out entry; struct fuse_open_out open; } out = {entry(m, id), {.fh = id}};
    return answer(m, in, 0, &out, sizeof out);
  }
  case FUSE_OPEN:
  case FUSE_OPENDIR: {
    struct fuse_open_out out = {.fh = in->nodeid};
    return answer(m, in, 0, &out, sizeof out);
  }
  case FUSE_READ: {
    const struct fuse_read_in *read = body;
    uint64_t from = read->offset < node->size ? read->offset : node->size;
    uint64_t length = node->size - from < read->size ? node->size - from : read->size;
    return answer(m, in, 0, node->data + from, length < MOST_WRITE ? length : MOST_WRITE);
  }
  case FUSE_WRITE: {
    const struct fuse_write_in *written = body;
    if (has_quota && written->offset + written->size > QUOTA) return answer(m, in, -EDQUOT, NULL, 0);
    if (written->offset + written->size > node->size) resize(node, written->offset + written->size);
    memcpy(node->data + written->offset, written + 1, written->size);
    struct fuse_write_out out = {.size = written->size};
    return answer(m, in, 0, &out, sizeof out);
  }
  case FUSE_READDIR: return list(m, in, body);
  case FUSE_UNLINK:
  case FUSE_RMDIR:
    id = find(m, in->nodeid, name);
    if (id) m->nodes[id].parent = 0;
    return answer(m, in, id ? 0 : -ENOENT, NULL, 0);
  case FUSE_RENAME: return rename_to(m, in, ((const struct fuse_rename_in *)body)->newdir, 0, name + sizeof(struct fuse_rename_in));
  case FUSE_RENAME2: {
    const struct fuse_rename2_in *renamed = body;
    return rename_to(m, in, renamed->newdir, renamed->flags, (const char *)(renamed + 1));
  }
  case FUSE_STATFS: {
    struct fuse_statfs_out out = {{.blocks = 1 << 20, .bfree = 1 << 20, .bavail = 1 << 20, .bsize = 4096, .namelen = 255, .frsize = 4096}};
    return answer(m, in, 0, &out, sizeof out);
  }
  case FUSE_ACCESS:
  case FUSE_FLUSH:
  case FUSE_FSYNC:
  case FUSE_FSYNCDIR:
  case FUSE_RELEASE:
  case FUSE_RELEASEDIR: return answer(m, in, 0, NULL, 0);
  case FUSE_FORGET:
  case FUSE_BATCH_FORGET:
  case FUSE_INTERRUPT: return;
  default: return answer(m, in, -ENOSYS, NULL, 0);
  }
}

static void serve(void) {
  static char bytes[MOST_WRITE + 8192] __attribute__((aligned(16)));
  struct pollfd entries[MOST_MOUNTS];
  sigset_t usr1, waiting;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  sigprocmask(SIG_BLOCK, &usr1, &waiting);
  sigdelset(&waiting, SIGUSR1);
  signal(SIGUSR1, let_go);
  signal(SIGUSR2, stop_at_close);
  for (;;) {
    for (int i = 0; i < mount_count; i++) entries[i] = (struct pollfd){.fd = mounts[i]->fd, .events = POLLIN};
    int ready = ppoll(entries, (nfds_t)mount_count, NULL, &waiting);
    if (ready < 0 && errno != EINTR) _exit(73);
    if (is_let_go) {
      holds = has_quota = 0;
      for (int i = 0; i < held_count; i++) if (write(held[i].mount->fd, held[i].bytes, held[i].length) < 0 && errno != ENOENT) _exit(71);
      held_count = 0;
    }
    if (ready < 0) continue;
    for (int i = 0; i < mount_count; i++) {
      if (!entries[i].revents) continue;
      ssize_t length = read(mounts[i]->fd, bytes, sizeof bytes);
      if (length < 0 && errno == ENODEV) _exit(0);  // unmounted
      if (length < (ssize_t)sizeof(struct fuse_in_header)) continue;
      const struct fuse_in_header *in = (const void *)bytes;
      if (stops_at && in->opcode == (uint32_t)stops_at) {
        stops_at = 0;
        raise(SIGSTOP);
      }
      carry_out(mounts[i], in, in + 1);
    }
  }
}

// MARK: Mounts

static void enter_namespace(void) {
  uid_t uid = getuid();
  gid_t gid = getgid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (errno != EPERM || unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) fail("a mount namespace");
    char line[64];
    put("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "%u %u 1", uid, uid);
    put("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "%u %u 1", gid, gid);
    put("/proc/self/gid_map", line);
  }
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) fail("private mounts");
}

static void add(const char *folder) {
  struct mount *m = calloc(1, sizeof *m);
  if (!m || mount_count == MOST_MOUNTS) fail("too many folders");
  m->count = 1;
  m->nodes[1] = (struct node){.parent = 1, .mode = S_IFDIR | 0700};
  m->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (m->fd < 0) fail("/dev/fuse");
  char options[128];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", m->fd, getuid(), getgid());
  if (mount("memfs", folder, "fuse.memfs", MS_NOSUID | MS_NODEV, options) != 0) fail(folder);
  mounts[mount_count++] = m;
}

int main(int count, char **words) {
  if (count < 6) {
    fputs("usage: memfs PIDFILE OPERATION FOLDER... -- PROGRAM ARGUMENT...\n", stderr);
    return 64;
  }
  if (!strcmp(words[2], "held-write")) holds = FUSE_WRITE;
  else if (!strcmp(words[2], "held-read")) holds = FUSE_READ;
  else if (!strcmp(words[2], "quota")) has_quota = 1;
  else stops_at = (sig_atomic_t)operation(words[2]);
  enter_namespace();
  int next = 3;
  while (next < count && strcmp(words[next], "--")) add(words[next++]);
  pid_t parent = getpid(), server = fork();
  if (server < 0) fail("fork");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(null, i);
    if (getppid() == parent) serve();
    _exit(0);
  }
  char line[32];
  snprintf(line, sizeof line, "%d", server);
  put(words[1], line);
  execv(words[next + 1], words + next + 1);
  fail(words[next + 1]);
}
