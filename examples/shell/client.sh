#!/bin/sh
# SPDX-License-Identifier: CC0-1.0
# A client of Todoku in shell. gdbus calls the methods, because it prints the names of errors; busctl reads the properties.
#
#   client.sh [--again | --cancel] URL [FOLDER]
#
# It queues a download, shows its progress, and waits for its end. If the script is killed, the download continues, and --again waits for
# it; --cancel cancels it. The exit status is 0 if the download finished or was cancelled by --cancel, 1 if it failed, and 69 if Todoku is
# missing. An existing file of the same name is replaced.
set -u
export LC_ALL=C.UTF-8 LANGUAGE=  # gdbus in English

service=org.todoku.Downloader1
manager=/org/todoku/Downloader1
download=org.todoku.Download1
app=org.example.ShellClient

# call TIME-LIMIT OBJECT METHOD [ARGUMENT…]: puts the answer into $answer or, with the status 1, the error into $name and $message.
call() {
    limit=$1 object=$2
    shift 2
    answer=$(gdbus call -e --timeout "$limit" -d "$service" -o "$object" -m "$@" 2>&1) && return
    case $answer in
        *GDBus.Error:*) name=${answer#*GDBus.Error:} name=${name%%: *} message=${answer#*"$name: "} ;;
        *"Timeout was reached"*) name=Timeout message=$answer ;;
        *) name=gdbus message=$answer ;;
    esac
    return 1
}

# Repeats the call once if the service exits before it answers. Each call here has the same effect when it is repeated.
call_again() { call "$@" || { [ "$name" = org.freedesktop.DBus.Error.NoReply ] && call "$@"; }; }

# Removes the download from the list. If the first answer is lost with the service, the repeated call may find nothing to remove.
remove() { call_again 60 "$path" "$download.Remove" false || [ "$name" = org.freedesktop.DBus.Error.UnknownObject ]; }

fail() {
    status=1
    case $name in
        org.freedesktop.DBus.Error.ServiceUnknown | org.freedesktop.DBus.Error.Spawn.* | org.freedesktop.systemd1.*)
            status=69 message="Todoku is not installed, or cannot be started: $message"
            ;;
    esac
    printf 'failed %s: %s\n' "${name##*.}" "$message"
    exit "$status"
}

usage() {
    printf '%s\n' "$1" >&2
    exit 64
}

property() { busctl --user get-property "$service" "$path" "$download" "$@" 2>/dev/null; }

# A text in quotes, as gdbus reads it.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/[\\\\']/\\\\&/g")"; }

# Prints the reason of a wait, if the reason has changed: busctl gives s "retry". Then prints the properties Received and Total, if they
# have changed: busctl gives "t 400000" and "x 1000000". The total is -1 while it is not known.
last= last_reason='s ""'
show_progress() {
    reason=$(property WaitReason)
    case $reason in
        "$last_reason" | "") ;;
        *)
            last_reason=$reason
            reason=${reason#s \"}
            [ "$reason" = '"' ] || printf 'waiting %s\n' "${reason%\"}"
            ;;
    esac
    now=$(property Received Total | tr '\n' ' ')
    case $now in "$last" | "" | "t 0 "*) return ;; esac
    last=$now
    printf 'progress %s\n' "$now" | sed 's/t \([0-9]*\) x \(-*[0-9]*\) /\1 of \2/'
}

what=
case ${1-} in --again | --cancel) what=$1 && shift ;; esac
[ $# -eq 1 ] || [ $# -eq 2 ] || usage "usage: $0 [--again | --cancel] URL [FOLDER]"
url=$1
case ${2-} in
    "" | /*) folder=${2-} ;;
    *) folder=$PWD/$2 ;;
esac
printf %s "$url$folder" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>&1 || usage "$0: D-Bus carries only text in UTF-8"
# A letter, then letters and digits: such a token needs no escaping in the object path.
token=url$(printf %s "$url" | sha256sum | cut -c 1-32)
path=$manager/download/by_token/$(printf %s "$app" | sed 's/\./_2e/g')/$token

if [ "$what" = --cancel ]; then
    call 60 "$path" "$download.Cancel" || fail
    printf 'cancelled %s\n' "$path"
    exit
fi
if [ -z "$what" ]; then
    # An ended download of an earlier run still has the token: the call Download would return it.
    case $(property State) in
        *finished* | *failed* | *cancelled*) remove || fail ;;
    esac
    options="'app': <'$app'>, 'token': <'$token'>, 'if-exists': <'replace'>"
    [ -z "$folder" ] || options="$options, 'directory': <$(quoted "$folder")>"
    # After the answer, the download is on disk. The token makes a repeated call return the same download.
    call_again 60 "$manager" "$service.Download" "$(quoted "$url")" "{$options}" || fail
    printf 'queued %s\n' "$path"
fi

# A call of Wait that gives up after a second does no harm. In between, the script shows the progress.
show_progress
pause=0
until call 1 "$path" "$download.Wait" '@a{sv} {}'; do
    case $name in
        Timeout) pause=0 ;;
        org.freedesktop.DBus.Error.NoReply)
            # The service exited or crashed. The next call starts it, and the download resumes.
            [ "$pause" -le 16 ] || fail
            sleep "$pause"
            pause=$((pause == 0 ? 1 : pause * 2))
            ;;
        *) fail ;;
    esac
    show_progress
done
# The answer is ('/home/me/a.iso',), with a backslash before a quote or a backslash of the name.
file=${answer#??}
printf 'finished %s\n' "$(printf %s "${file%???}" | sed 's/\\\(.\)/\1/g')"
