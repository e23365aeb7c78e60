// SPDX-License-Identifier: Apache-2.0
// A folder, named by SILENT_FOLDER, whose disk never answers lstat(2), for Tests/CommandTests. Preloaded by the command.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int lstat(const char *path, struct stat *to) {
  const char *folder = getenv("SILENT_FOLDER");
  size_t length = folder ? strlen(folder) : 0;
  if (length && strncmp(path, folder, length) == 0 && path[length] == '/') {
    const char word[] = "no answer\n";  // the test waits for it
    if (write(STDERR_FILENO, word, sizeof word - 1) > 0)
      for (;;) pause();
  }
  int (*real)(const char *, struct stat *) = dlsym(RTLD_NEXT, "lstat");
  return real(path, to);
}
