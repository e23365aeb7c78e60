// jansson's reader by a table of function pointers that dlopen(3) fills on first use.
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define TODOKU_JSON_FUNCTIONS(X) \
  X(json_loadb) X(json_delete) X(json_string_value) X(json_string_length) X(json_integer_value) X(json_real_value) \
  X(json_array_get) X(json_object_iter) X(json_object_iter_next) X(json_object_iter_key) X(json_object_iter_value)

#define TODOKU_JSON_POINTER(name) __typeof__(&name) name;
struct todoku_json_table { TODOKU_JSON_FUNCTIONS(TODOKU_JSON_POINTER) };
#undef TODOKU_JSON_POINTER

/// Written by todoku_json_load only.
extern struct todoku_json_table todoku_json;

/// Loads libjansson.so.4, once; later calls give the first call's answer. From any thread. NULL, or what dlopen(3) said, for ever.
const char *todoku_json_load(void);

/// Reads one object or array, which is all of `bytes`. Refuses repeated keys, U+0000 and invalid UTF-8; jansson refuses nesting deeper than
/// 2,048. Free it by todoku_json_free. NULL: the bytes are no such text, and `error` says why.
__attribute__((swift_name("json_parse(_:_:_:)"))) static inline json_t *todoku_json_parse(
    const void *bytes, size_t count, json_error_t *error) {
  return todoku_json.json_loadb((const char *)bytes, count, JSON_REJECT_DUPLICATES, error);
}
/// Frees a value of todoku_json_parse, whose only reference is the caller's, and all that is in it.
__attribute__((swift_name("json_free(_:)"))) static inline void todoku_json_free(json_t *value) { todoku_json.json_delete(value); }

__attribute__((swift_name("json_kind(_:)"))) static inline json_type todoku_json_kind(const json_t *value) { return json_typeof(value); }
/// Valid as long as `value`; the text has no NUL inside.
__attribute__((swift_name("json_text(_:)"))) static inline const char *todoku_json_text(const json_t *value) {
  return todoku_json.json_string_value(value);
}
__attribute__((swift_name("json_integer(_:)"))) static inline int64_t todoku_json_integer(const json_t *value) {
  return todoku_json.json_integer_value(value);
}
__attribute__((swift_name("json_real(_:)"))) static inline double todoku_json_real(const json_t *value) {
  return todoku_json.json_real_value(value);
}
/// Lent by `array`; NULL after the last.
__attribute__((swift_name("json_element(_:_:)"))) static inline json_t *todoku_json_element(const json_t *array, size_t index) {
  return todoku_json.json_array_get(array, index);
}
/// The members of an object, one after the other; NULL after the last. All are lent by `object`.
__attribute__((swift_name("json_first_member(_:)"))) static inline void *todoku_json_first_member(json_t *object) {
  return todoku_json.json_object_iter(object);
}
__attribute__((swift_name("json_next_member(_:_:)"))) static inline void *todoku_json_next_member(json_t *object, void *member) {
  return todoku_json.json_object_iter_next(object, member);
}
__attribute__((swift_name("json_member_key(_:)"))) static inline const char *todoku_json_member_key(void *member) {
  return todoku_json.json_object_iter_key(member);
}
__attribute__((swift_name("json_member_value(_:)"))) static inline json_t *todoku_json_member_value(void *member) {
  return todoku_json.json_object_iter_value(member);
}
/// jansson's sentence, without the number that it hides behind the text's end.
__attribute__((swift_name("json_error_text(_:)"))) static inline const char *todoku_json_error_text(const json_error_t *error) {
  return error->text;
}
