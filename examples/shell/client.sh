#!/bin/sh
# SPDX-License-Identifier: CC0-1.0
# A client of Todoku in shell. gdbus calls the methods, because it prints the names of errors; busctl reads the properties.
#
#   client.sh [--again] URL [FOLDER]
#
# It queues a download, shows its progress, and waits for its end. If the script is killed, the download continues, and --again waits for
# it. The exit status is 0 if the download finished, and 1 if it failed.
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

fail() {
    printf 'failed %s: %s\n' "${name##*.}" "$message"
    exit 1
}

property() { busctl --user get-property "$service" "$path" "$download" "$@" 2>/dev/null; }

# A text in quotes, as gdbus reads it.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/[\\\\']/\\\\&/g")"; }

# Prints the properties Received and Total if they have changed: "t 400000" and "x 1000000". The total is -1 while it is not known.
last=
show_progress() {
    now=$(property Received Total | tr '\n' ' ')
    case $now in "$last" | "" | "t 0 "*) return ;; esac
    last=$now
    printf 'progress %s\n' "$now" | sed 's/t \([0-9]*\) x \(-*[0-9]*\) /\1 of \2/'
}

again=
[ "${1-}" = --again ] && again=yes && shift
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: $0 [--again] URL [FOLDER]" >&2
    exit 64
fi
url=$1
# A letter, then letters and digits: such a token needs no escaping in the object path.
token=url$(printf %s "$url" | sha256sum | cut -c 1-32)
path=$manager/download/by_token/$(printf %s "$app" | sed 's/\./_2e/g')/$token

if [ -z "$again" ]; then
    # An ended download of an earlier run still has the token: the call Download would return it.
    case $(property State) in
        *finished* | *failed* | *cancelled*) call_again 60 "$path" "$download.Remove" false || fail ;;
    esac
    options="'app': <'$app'>, 'token': <'$token'>"
    case ${2-} in
        "") ;;
        /*) options="$options, 'directory': <$(quoted "$2")>" ;;
        *) options="$options, 'directory': <$(quoted "$PWD/$2")>" ;;
    esac
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
