#pragma once
#include <dbus/dbus.h>
// DBUS_TYPE_* are casts, which Swift does not import.
enum : int {
  kByte = DBUS_TYPE_BYTE, kBool = DBUS_TYPE_BOOLEAN, kInt16 = DBUS_TYPE_INT16, kUInt16 = DBUS_TYPE_UINT16,
  kInt32 = DBUS_TYPE_INT32, kUInt32 = DBUS_TYPE_UINT32, kInt64 = DBUS_TYPE_INT64, kUInt64 = DBUS_TYPE_UINT64,
  kDouble = DBUS_TYPE_DOUBLE, kString = DBUS_TYPE_STRING, kPath = DBUS_TYPE_OBJECT_PATH, kSignature = DBUS_TYPE_SIGNATURE,
  kArray = DBUS_TYPE_ARRAY, kVariant = DBUS_TYPE_VARIANT, kStruct = DBUS_TYPE_STRUCT, kDictEntry = DBUS_TYPE_DICT_ENTRY,
  kUnixFD = DBUS_TYPE_UNIX_FD, kInvalid = DBUS_TYPE_INVALID
};
