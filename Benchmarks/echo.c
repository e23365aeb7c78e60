// The floor: the least that a D-Bus service in C can be. org.todoku.Echo at /, method Empty() without arguments.
#include <dbus/dbus.h>
#include <stdio.h>

static DBusHandlerResult handle(DBusConnection *connection, DBusMessage *message, void *context) {
  (void)context;
  if (!dbus_message_is_method_call(message, "org.todoku.Echo", "Empty")) return DBUS_HANDLER_RESULT_NOT_YET_HANDLED;
  DBusMessage *reply = dbus_message_new_method_return(message);
  dbus_connection_send(connection, reply, NULL);
  dbus_message_unref(reply);
  return DBUS_HANDLER_RESULT_HANDLED;
}

int main(void) {
  DBusError error;
  dbus_error_init(&error);
  DBusConnection *connection = dbus_bus_get(DBUS_BUS_SESSION, &error);
  if (!connection) return fprintf(stderr, "echo: %s\n", error.message), 1;
  dbus_connection_add_filter(connection, handle, NULL, NULL);
  if (dbus_bus_request_name(connection, "org.todoku.Echo", DBUS_NAME_FLAG_DO_NOT_QUEUE, &error) < 0)
    return fprintf(stderr, "echo: %s\n", error.message), 1;
  while (dbus_connection_read_write_dispatch(connection, -1)) {}
  return 0;
}
