#define _GNU_SOURCE
#include "CSystem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/// Becomes the program, between fork(2) and execve(2): only calls that signal-safety(7) allows, and execvpe(3), which takes no lock.
/// Returns errno.
static int become(char *const arguments[], char *const environment[], pid_t parent, int output, int errors, bool is_daemon) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (getppid() != parent) _exit(127);  // the parent died before the line above
  if (is_daemon) {
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || setpgid(0, 0) != 0) return errno;
  }
  if (output >= 0 && dup2(output, STDOUT_FILENO) < 0) return errno;
  if (errors >= 0 && dup2(errors, STDERR_FILENO) < 0) return errno;
  signal(SIGPIPE, SIG_DFL);  // todokud ignores it
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  execvpe(arguments[0], arguments, environment);
  return errno;
}

static void wait_for(pid_t child) {
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}

pid_t todoku_start_tied(char *const arguments[], char *const environment[], int output, int errors, bool is_daemon) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    int code = become(arguments, environment, parent, output, errors, is_daemon);
    ssize_t written = write(ends[1], &code, sizeof code);
    (void)written;
    _exit(127);
  }
  int code = child < 0 ? errno : 0;
  close(ends[1]);
  if (child > 0) {
    // The end of the pipe closes with execve(2).
    ssize_t count;
    do count = read(ends[0], &code, sizeof code);
    while (count < 0 && errno == EINTR);
    if (count > 0) {
      wait_for(child);
      child = -1;
    }
  }
  close(ends[0]);
  errno = code;
  return child;
}

int todoku_adopt_orphans(void) { return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 ? 0 : errno; }

static int write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  int code = write(fd, text, strlen(text)) < 0 ? errno : 0;
  close(fd);
  return code;
}

/// A user namespace in which this user and group keep their numbers (user_namespaces(7)).
static int enter_user_namespace(void) {
  char map[64];
  uid_t user = geteuid();
  gid_t group = getegid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return errno;
  int code = write_text("/proc/self/setgroups", "deny");
  if (code != 0) return code;
  snprintf(map, sizeof map, "%u %u 1", user, user);
  code = write_text("/proc/self/uid_map", map);
  if (code != 0) return code;
  snprintf(map, sizeof map, "%u %u 1", group, group);
  return write_text("/proc/self/gid_map", map);
}

int todoku_have_own_mounts(void) {
  if (unshare(CLONE_NEWNS) != 0) {
    int code = enter_user_namespace();
    if (code != 0) return code;
  }
  return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : errno;
}

int todoku_mount_memory_disk(const char *folder, uint64_t size) {
  char options[64];
  snprintf(options, sizeof options, "size=%llu,mode=0755", (unsigned long long)size);
  return mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0 ? 0 : errno;
}

int todoku_unmount(const char *folder) { return umount2(folder, MNT_DETACH) == 0 ? 0 : errno; }

static int open_folder(int folder, const char *name) { return openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

/// Opens a folder to empty it. A program may have taken its permissions away. -1: it is on another mount than `root`, or cannot be opened.
static int open_to_empty(int folder, const char *name, const struct todoku_file_identity *root) {
  struct todoku_file_identity own;
  int fd = open_folder(folder, name);
  if (fd < 0 && errno == EACCES && fchmodat(folder, name, 0700, 0) == 0) fd = open_folder(folder, name);
  if (fd < 0) return -1;
  if (todoku_identify_file(fd, &own) != 0 || own.device != root->device || own.mount != root->mount) {
    close(fd);
    return -1;
  }
  fchmod(fd, 0700);  // in a read-only folder nothing can be removed
  return fd;
}

static void remove_entry(int folder, const char *name, const struct todoku_file_identity *root, int depth) {
  struct stat status;
  if (unlinkat(folder, name, 0) == 0 || depth == 0) return;
  if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(status.st_mode)) return;
  int fd = open_to_empty(folder, name, root);
  if (fd < 0) return;
  DIR *stream = fdopendir(fd);
  if (stream == NULL) {
    close(fd);
    return;
  }
  for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) remove_entry(fd, entry->d_name, root, depth - 1);
  closedir(stream);
  unlinkat(folder, name, AT_REMOVEDIR);
}

void todoku_remove_tree(const char *path) {
  struct todoku_file_identity root;
  int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  int code = todoku_identify_file(fd, &root);
  close(fd);
  if (code == 0) remove_entry(AT_FDCWD, path, &root, 200);
}
