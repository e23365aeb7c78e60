// expat's reader by a table of function pointers that dlopen(3) fills on first use.
#pragma once
#include <expat.h>
#include <stddef.h>
#include <string.h>

#define TODOKU_XML_FUNCTIONS(X) \
  X(XML_ParserCreate_MM) X(XML_ParserFree) X(XML_SetUserData) X(XML_SetElementHandler) X(XML_SetCharacterDataHandler) \
  X(XML_SetStartNamespaceDeclHandler) X(XML_SetStartDoctypeDeclHandler) X(XML_Parse) X(XML_StopParser) X(XML_GetErrorCode) \
  X(XML_ErrorString) X(XML_GetCurrentLineNumber)

#define TODOKU_XML_POINTER(name) __typeof__(&name) name;
struct todoku_xml_table { TODOKU_XML_FUNCTIONS(TODOKU_XML_POINTER) };
#undef TODOKU_XML_POINTER

/// Written by todoku_xml_load only.
extern struct todoku_xml_table todoku_xml;

/// Loads libexpat.so.1, once; later calls give the first call's answer. From any thread. NULL, or what dlopen(3) said, for ever.
const char *todoku_xml_load(void);

/// A parser with namespaces: the name of an element or attribute of a namespace is "NAMESPACE\nNAME", any other is "NAME". Use it on this
/// thread only, which has no other parser meanwhile, and free it by todoku_xml_free. NULL: there is no memory.
///
/// The parser takes at most `most` bytes of memory. For each attribute of a namespace expat makes a copy of the namespace.
__attribute__((swift_name("xml_create(_:)"))) XML_Parser todoku_xml_create(size_t most);
__attribute__((swift_name("xml_free(_:)"))) static inline void todoku_xml_free(XML_Parser parser) { todoku_xml.XML_ParserFree(parser); }

/// What is told while a document is read. `context` is the first argument of each function.
__attribute__((swift_name("xml_tell(_:_:_:_:_:_:_:)"))) static inline void todoku_xml_tell(
    XML_Parser parser, void *context, XML_StartElementHandler start, XML_EndElementHandler end, XML_CharacterDataHandler text,
    XML_StartNamespaceDeclHandler namespace, XML_StartDoctypeDeclHandler doctype) {
  todoku_xml.XML_SetUserData(parser, context);
  todoku_xml.XML_SetElementHandler(parser, start, end);
  todoku_xml.XML_SetCharacterDataHandler(parser, text);
  todoku_xml.XML_SetStartNamespaceDeclHandler(parser, namespace);
  todoku_xml.XML_SetStartDoctypeDeclHandler(parser, doctype);
}
/// NAME of "NAMESPACE\nNAME", as a part of `name`; NULL: `name` is of another namespace, or of none.
__attribute__((swift_name("xml_name(_:_:)"))) static inline const char *todoku_xml_name(const char *name, const char *namespace) {
  size_t length = strlen(namespace);
  return strncmp(name, namespace, length) == 0 && name[length] == '\n' ? name + length + 1 : NULL;
}
/// Whether the name is that of no namespace.
__attribute__((swift_name("xml_is(_:_:)"))) static inline _Bool todoku_xml_is(const char *name, const char *expected) {
  return strcmp(name, expected) == 0;
}
/// Reads the whole document; false if it is no XML, or the reading was stopped.
__attribute__((swift_name("xml_read(_:_:_:)"))) static inline _Bool todoku_xml_read(XML_Parser parser, const void *bytes, int count) {
  return todoku_xml.XML_Parse(parser, (const char *)bytes, count, XML_TRUE) == XML_STATUS_OK;
}
/// Ends the reading, from a function of todoku_xml_tell. More functions may be called for the same element.
__attribute__((swift_name("xml_stop(_:)"))) static inline void todoku_xml_stop(XML_Parser parser) {
  todoku_xml.XML_StopParser(parser, XML_FALSE);
}
/// The line of the present element, or of the error. From 1.
__attribute__((swift_name("xml_line(_:)"))) static inline unsigned long todoku_xml_line(XML_Parser parser) {
  return todoku_xml.XML_GetCurrentLineNumber(parser);
}
/// Whether the last error is that the parser may take no more memory, or that there is none.
__attribute__((swift_name("xml_lacks_memory(_:)"))) static inline _Bool todoku_xml_lacks_memory(XML_Parser parser) {
  return todoku_xml.XML_GetErrorCode(parser) == XML_ERROR_NO_MEMORY;
}
/// expat's words for the last error.
__attribute__((swift_name("xml_error(_:)"))) static inline const char *todoku_xml_error(XML_Parser parser) {
  return todoku_xml.XML_ErrorString(todoku_xml.XML_GetErrorCode(parser));
}
