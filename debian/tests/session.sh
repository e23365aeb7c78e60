# SPDX-License-Identifier: Apache-2.0
# For the tests beside this file, which read it: a private session with a home of its own, and a web server on the loopback interface.
# It starts the test anew in the session. Needs no root and no network.

if [ -z "${TODOKU_TEST_FOLDER:-}" ]; then
    # The bus passes its environment on to the service: a home and a state of its own, and no proxy.
    TODOKU_TEST_FOLDER=$(mktemp -d "${AUTOPKGTEST_TMP:-${TMPDIR:-/tmp}}/todoku-test.XXXXXX")
    export TODOKU_TEST_FOLDER
    export HOME="$TODOKU_TEST_FOLDER/home" XDG_STATE_HOME="$TODOKU_TEST_FOLDER/state" XDG_CONFIG_HOME="$TODOKU_TEST_FOLDER/config"
    export XDG_RUNTIME_DIR="$TODOKU_TEST_FOLDER/run" LC_ALL=C.UTF-8 no_proxy='*'
    mkdir -p "$HOME" "$XDG_STATE_HOME" "$XDG_CONFIG_HOME"
    mkdir -m 700 "$XDG_RUNTIME_DIR"
    exec dbus-run-session -- sh "$0"
fi

service=org.todoku.Downloader1
served=$TODOKU_TEST_FOLDER/served
into=$TODOKU_TEST_FOLDER/into
mkdir -p "$served" "$into"
server=
end_session() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
    # The service keeps running for half a minute, and would outlive its folder.
    kill -TERM "$(pid_of_service)" 2>/dev/null || true
}
trap end_session EXIT

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}
ask() { # METHOD [ARGUMENT]: one call to the bus itself
    dbus-send --session --print-reply=literal --dest=org.freedesktop.DBus / "org.freedesktop.DBus.$@"
}
is_running() { ask NameHasOwner "string:$service" | grep -q true; }
pid_of_service() { ask GetConnectionUnixProcessID "string:$service" 2>/dev/null | awk '{ print $2 }'; }
# Looks again every tenth of a second until COMMAND holds; fails after SECONDS.
within() { # SECONDS COMMAND…
    left=$(($1 * 10))
    shift
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.1
    done
}
is_gone() { ! kill -0 "$1" 2>/dev/null; }
# Serves the folder $served; sets $url.
serve() {
    python3 -u -m http.server --bind 127.0.0.1 --directory "$served" 0 >"$TODOKU_TEST_FOLDER/server.log" 2>&1 &
    server=$!
    within 20 grep -q ' port ' "$TODOKU_TEST_FOLDER/server.log" || fail "the web server did not start"
    url=http://127.0.0.1:$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$TODOKU_TEST_FOLDER/server.log" | head -n 1)
}
