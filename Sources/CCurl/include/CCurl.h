// libcurl by a table of function pointers that dlopen(3) fills on first use: nothing links libcurl, so a start without a transfer does not
// pay for it. Types and constants are libcurl's own. The functions below go through the table; call todoku_curl_load first.
#pragma once
#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TODOKU_CURL_FUNCTIONS(X) \
  X(global_init) X(easy_init) X(easy_cleanup) X(easy_setopt) X(easy_getinfo) X(easy_pause) X(easy_strerror) X(multi_init) X(multi_cleanup) X(multi_setopt) \
  X(multi_add_handle) X(multi_remove_handle) X(multi_perform) X(multi_poll) X(multi_info_read) X(slist_append) X(slist_free_all) \
  X(share_init) X(share_setopt) X(share_cleanup)

// libcurl's headers wrap some names in type-checking macros; the table is declared by the functions themselves.
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt
#undef curl_share_setopt

#define TODOKU_CURL_POINTER(name) __typeof__(&curl_##name) name;
struct todoku_curl_table { TODOKU_CURL_FUNCTIONS(TODOKU_CURL_POINTER) };
#undef TODOKU_CURL_POINTER

// Macros with casts are not imported by Swift.
static const long todoku_curl_auth_basic_digest = (long)(CURLAUTH_BASIC | CURLAUTH_DIGEST);
static const long todoku_curl_tls_1_2 = (long)CURL_SSLVERSION_TLSv1_2;
static const long todoku_curl_tls_1_2_to_1_3 = (long)CURL_SSLVERSION_TLSv1_2 | (long)CURL_SSLVERSION_MAX_TLSv1_3;

/// Written by todoku_curl_load only.
extern struct todoku_curl_table todoku_curl;

/// Loads libcurl.so.4 and initialises it (curl_global_init), once; later calls give the first call's answer. From any thread.
/// NULL, or what dlopen(3) or libcurl said, for ever.
const char *todoku_curl_load(void);

/// Whether `descriptor` is a socket connected from `local_port` to `remote` and `remote_port`. `remote` is an address as libcurl writes it.
/// False for any other descriptor, also a closed one.
bool todoku_socket_joins(int descriptor, int local_port, const char *remote, int remote_port);

enum todoku_unread { TODOKU_UNREAD_NOTHING, TODOKU_UNREAD_BYTES, TODOKU_UNREAD_END };
/// What can be read from a socket: nothing, bytes, or its end or an error. Reads nothing, and does not wait.
enum todoku_unread todoku_socket_unread(int descriptor);

/// Whether the next unread bytes of a socket begin a TLS record with application data (RFC 8446, section 5.1). A closing alert does not
/// count: TLS 1.3 wraps its 2 bytes in a data record of 19 bytes, which is recognised by its length. Reads nothing, and does not wait.
bool todoku_socket_has_tls_data(int descriptor);

/// The number of bytes that a TCP socket has received since it was connected (TCP_INFO); 0 if it is none, or the kernel does not tell.
uint64_t todoku_socket_received(int descriptor);

/// The number of bytes that the other side's kernel has confirmed on a TCP socket since it was connected (TCP_INFO); 0 as above.
uint64_t todoku_socket_acknowledged(int descriptor);

/// Whether the other side's kernel has not confirmed yet all that was sent (TCP_INFO).
bool todoku_socket_has_unacknowledged(int descriptor);

/// The TLS session of the connection that the handle uses now; NULL: it uses none, or that is unknown.
const void *todoku_curl_tls_session(CURL *easy);

enum todoku_answer { TODOKU_NO, TODOKU_YES, TODOKU_UNKNOWN };
/// Whether both sides have agreed on HTTP/2 for that connection (RFC 7301). Unknown without TLS, and with a TLS library other than OpenSSL.
enum todoku_answer todoku_curl_speaks_http2(CURL *easy);

/// The number of decrypted bytes that the TLS library still holds for the handle's connection; -1 if unknown. Call only in libcurl's
/// callbacks.
int todoku_curl_tls_pending(CURL *easy);

// The variadic calls, typed: several C functions with one Swift name, which Swift tells apart by the argument.
#define TODOKU_SETOPT(suffix, type) \
  __attribute__((swift_name("easy_setopt(_:_:_:)"))) static inline CURLcode todoku_easy_setopt_##suffix(CURL *easy, CURLoption option, type value) { \
    return todoku_curl.easy_setopt(easy, option, value); \
  }
TODOKU_SETOPT(long, long)
TODOKU_SETOPT(string, const char *)
TODOKU_SETOPT(pointer, void *)
TODOKU_SETOPT(list, struct curl_slist *)
TODOKU_SETOPT(write, curl_write_callback)
TODOKU_SETOPT(prereq, curl_prereq_callback)
TODOKU_SETOPT(opensocket, curl_opensocket_callback)
#undef TODOKU_SETOPT

#define TODOKU_GETINFO(suffix, type) \
  __attribute__((swift_name("easy_getinfo(_:_:_:)"))) static inline CURLcode todoku_easy_getinfo_##suffix(CURL *easy, CURLINFO info, type *value) { \
    return todoku_curl.easy_getinfo(easy, info, value); \
  }
TODOKU_GETINFO(long, long)
TODOKU_GETINFO(string, char *)
TODOKU_GETINFO(pointer, void *)
TODOKU_GETINFO(socket, curl_socket_t)
TODOKU_GETINFO(list, struct curl_slist *)
#undef TODOKU_GETINFO

__attribute__((swift_name("multi_setopt(_:_:_:)"))) static inline CURLMcode todoku_multi_setopt_long(CURLM *multi, CURLMoption option, long value) {
  return todoku_curl.multi_setopt(multi, option, value);
}

__attribute__((swift_name("easy_init()"))) static inline CURL *todoku_easy_init(void) { return todoku_curl.easy_init(); }
__attribute__((swift_name("easy_cleanup(_:)"))) static inline void todoku_easy_cleanup(CURL *easy) { todoku_curl.easy_cleanup(easy); }
__attribute__((swift_name("easy_pause(_:_:)"))) static inline CURLcode todoku_easy_pause(CURL *easy, int mask) {
  return todoku_curl.easy_pause(easy, mask);
}
__attribute__((swift_name("easy_strerror(_:)"))) static inline const char *todoku_easy_strerror(CURLcode code) {
  return todoku_curl.easy_strerror(code);
}
__attribute__((swift_name("multi_init()"))) static inline CURLM *todoku_multi_init(void) { return todoku_curl.multi_init(); }
__attribute__((swift_name("multi_cleanup(_:)"))) static inline CURLMcode todoku_multi_cleanup(CURLM *multi) {
  return todoku_curl.multi_cleanup(multi);
}
__attribute__((swift_name("multi_add_handle(_:_:)"))) static inline CURLMcode todoku_multi_add_handle(CURLM *multi, CURL *easy) {
  return todoku_curl.multi_add_handle(multi, easy);
}
__attribute__((swift_name("multi_remove_handle(_:_:)"))) static inline CURLMcode todoku_multi_remove_handle(CURLM *multi, CURL *easy) {
  return todoku_curl.multi_remove_handle(multi, easy);
}
__attribute__((swift_name("multi_perform(_:_:)"))) static inline CURLMcode todoku_multi_perform(CURLM *multi, int *running) {
  return todoku_curl.multi_perform(multi, running);
}
__attribute__((swift_name("multi_poll(_:_:_:_:_:)"))) static inline CURLMcode todoku_multi_poll(
    CURLM *multi, struct curl_waitfd *extra, unsigned int count, int milliseconds, int *found) {
  return todoku_curl.multi_poll(multi, extra, count, milliseconds, found);
}
__attribute__((swift_name("multi_info_read(_:_:)"))) static inline CURLMsg *todoku_multi_info_read(CURLM *multi, int *left) {
  return todoku_curl.multi_info_read(multi, left);
}
__attribute__((swift_name("slist_append(_:_:)"))) static inline struct curl_slist *todoku_slist_append(struct curl_slist *list, const char *line) {
  return todoku_curl.slist_append(list, line);
}
__attribute__((swift_name("slist_free_all(_:)"))) static inline void todoku_slist_free_all(struct curl_slist *list) {
  todoku_curl.slist_free_all(list);
}
__attribute__((swift_name("share_init()"))) static inline CURLSH *todoku_share_init(void) { return todoku_curl.share_init(); }
/// Lets the handles of `share` have their cookies in common. No handle may use `share` yet.
__attribute__((swift_name("share_cookies(_:)"))) static inline CURLSHcode todoku_share_cookies(CURLSH *share) {
  return todoku_curl.share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_COOKIE);
}
__attribute__((swift_name("share_cleanup(_:)"))) static inline CURLSHcode todoku_share_cleanup(CURLSH *share) {
  return todoku_curl.share_cleanup(share);
}
