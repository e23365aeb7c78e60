// SPDX-License-Identifier: Apache-2.0
// Name servers that know no host whose name ends in .invalid, for Tests/CommandTests. Preloaded by the service.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  const char *end = host ? strrchr(host, '.') : NULL;
  if (end && strcmp(end, ".invalid") == 0) return EAI_NONAME;
  int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
  return real(host, service, hints, found);
}
