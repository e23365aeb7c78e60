#define _GNU_SOURCE
#include "CCurl.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

struct todoku_curl_table todoku_curl;

static const char *failure;
/// OpenSSL's, where libcurl is built with it; found through libcurl, so that it is the one libcurl uses.
static int (*ssl_pending)(const void *);
static void (*ssl_protocol)(const void *, const unsigned char **, unsigned *);

static void load(void) {
  void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    failure = dlerror();
    if (failure) failure = strdup(failure);  // dlerror gives a buffer of the thread
    if (!failure) failure = "libcurl.so.4 cannot be loaded";
    return;
  }
#define TODOKU_CURL_FILL(name) \
  todoku_curl.name = (__typeof__(todoku_curl.name))dlsym(library, "curl_" #name); \
  if (!todoku_curl.name) { \
    failure = "libcurl.so.4 has no curl_" #name; \
    return; \
  }
  TODOKU_CURL_FUNCTIONS(TODOKU_CURL_FILL)
  // An older libcurl would ignore options that keep a download safe (CURLOPT_PROTOCOLS_STR: no redirect to file://).
  enum { OLDEST = 0x075500 };  // 7.85.0
  __typeof__(&curl_version_info) version_info = (__typeof__(&curl_version_info))dlsym(library, "curl_version_info");
  if (!version_info || version_info(CURLVERSION_NOW)->version_num < OLDEST) {
    failure = "libcurl is older than 7.85.0";
    return;
  }
  ssl_pending = (__typeof__(ssl_pending))dlsym(library, "SSL_pending");
  ssl_protocol = (__typeof__(ssl_protocol))dlsym(library, "SSL_get0_alpn_selected");
  if (todoku_curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) failure = "curl_global_init failed";
}

const char *todoku_curl_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return failure;
}

static int port_of(const struct sockaddr_storage *address) {
  switch (address->ss_family) {
  case AF_INET: return ntohs(((const struct sockaddr_in *)address)->sin_port);
  case AF_INET6: return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
  default: return -1;
  }
}

bool todoku_socket_joins(int descriptor, int local_port, const char *remote, int remote_port) {
  struct sockaddr_storage own, other;
  socklen_t own_length = sizeof own, other_length = sizeof other;
  if (getsockname(descriptor, (struct sockaddr *)&own, &own_length) || port_of(&own) != local_port) return false;
  if (getpeername(descriptor, (struct sockaddr *)&other, &other_length) || port_of(&other) != remote_port) return false;
  char text[INET6_ADDRSTRLEN] = "";
  const void *address = other.ss_family == AF_INET ? (const void *)&((struct sockaddr_in *)&other)->sin_addr
                                                   : (const void *)&((struct sockaddr_in6 *)&other)->sin6_addr;
  return inet_ntop(other.ss_family, address, text, sizeof text) && !strcmp(text, remote);
}

enum todoku_unread todoku_socket_unread(int descriptor) {
  struct pollfd entry = {descriptor, POLLIN | POLLRDHUP, 0};
  if (poll(&entry, 1, 0) == 0) return TODOKU_UNREAD_NOTHING;
  char byte;
  return recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ? TODOKU_UNREAD_BYTES : TODOKU_UNREAD_END;
}

bool todoku_socket_has_tls_data(int descriptor) {
  enum { DATA = 23, ALERT_LENGTH = 2 + 1 + 16 };
  unsigned char head[5];
  if (recv(descriptor, head, sizeof head, MSG_PEEK | MSG_DONTWAIT) != sizeof head) return false;
  return head[0] == DATA && (head[3] << 8 | head[4]) != ALERT_LENGTH;
}

bool todoku_socket_has_unacknowledged(int descriptor) {
  struct tcp_info info = {0};
  socklen_t length = sizeof info;
  return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_unacked > 0;
}

// As in <linux/tcp.h>, whose other names are those of <netinet/tcp.h>.
struct counted_info {
  struct tcp_info first;
  uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
};
_Static_assert(offsetof(struct counted_info, pacing_rate) == 104, "the kernel's fields begin here");

/// All zero if the socket is none of TCP, or the kernel does not tell.
static struct counted_info counts_of(int descriptor) {
  struct counted_info info = {0};
  socklen_t length = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || length < sizeof info) return (struct counted_info){0};
  return info;
}

uint64_t todoku_socket_received(int descriptor) { return counts_of(descriptor).bytes_received; }

uint64_t todoku_socket_acknowledged(int descriptor) { return counts_of(descriptor).bytes_acked; }

const void *todoku_curl_tls_session(CURL *easy) {
  struct curl_tlssessioninfo *session = NULL;
  if (todoku_curl.easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &session) != CURLE_OK || !session) return NULL;
  return session->backend == CURLSSLBACKEND_OPENSSL ? session->internals : NULL;
}

enum todoku_answer todoku_curl_speaks_http2(CURL *easy) {
  const void *session = todoku_curl_tls_session(easy);
  if (!session || !ssl_protocol) return TODOKU_UNKNOWN;
  const unsigned char *name = NULL;
  unsigned length = 0;
  ssl_protocol(session, &name, &length);
  return length == 2 && !memcmp(name, "h2", 2) ? TODOKU_YES : TODOKU_NO;
}

int todoku_curl_tls_pending(CURL *easy) {
  const void *session = todoku_curl_tls_session(easy);
  return session && ssl_pending ? ssl_pending(session) : -1;
}
