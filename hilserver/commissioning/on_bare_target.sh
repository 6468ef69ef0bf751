# The part of a deployment with the runner that is carried out on the target: sent there as text, for a shell that knows
# POSIX, and the usual tools (busybox has them all). Called with an action, the folder of the deployments, the rig, and
# what the action needs. The last line of the output is a JSON object; an "error" in it is for the user. Files come as a
# tar archive on standard input, and leave as one on standard output.
#
# Folder: runners/RIG with releases/N (the packed rig, and release.json), current and previous (links to two of these),
# server.log, server.pid, and logs.

action=$1 root=$2 rig=$3
shift 3
case $root in "~/"*) root=$HOME/${root#"~/"} ;; esac
place=$root/runners/$rig
runner=hilserver-runner

# A text as JSON has it.
quoted() { sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e '$!s/$/\\n/' | tr '\t' ' ' | tr -d '\000-\037'; }

refuse() {
    printf '{"error": "%s"}\n' "$(printf '%s' "$1" | quoted)"
    exit 0
}

# The release that a link names, as JSON; null without one.
described() {
    if [ -f "$place/$1/release.json" ]; then
        printf '{"name": "%s", %s' "$(basename "$(readlink "$place/$1")")" "$(sed 's/^{//' "$place/$1/release.json")"
    else
        printf null
    fi
}

# The process of the runner; empty if it does not run.
pid_of_runner() {
    [ -f "$place/server.pid" ] || return 0
    read -r pid <"$place/server.pid" || return 0
    case $(readlink "/proc/$pid/exe" 2>/dev/null) in */"$runner") echo "$pid" ;; esac
}

next_release() {
    number=1
    while [ -e "$place/releases/$number" ]; do number=$((number + 1)); done
    echo $number
}

lock() {
    mkdir -p "$root" || refuse "$root can't be written"
    if ! mkdir "$root/lock.runner" 2>/dev/null; then
        read -r other <"$root/lock.runner/pid" && kill -0 "$other" 2>/dev/null &&
            refuse "somebody else is deploying there at the moment"
    fi
    mkdir -p "$root/lock.runner" && echo $$ >"$root/lock.runner/pid" || refuse "the disk is full"
    trap 'rm -rf "$root/lock.runner"' EXIT
}

free_bytes() { df -Pk "$root" | { read -r _; read -r _ _ _ free _; echo $((free * 1024)); }; }

facts() {
    mkdir -p "$place" || refuse "$place can't be written"
    is_running=false
    [ -n "$(pid_of_runner)" ] && is_running=true
    printf '{"machine": "%s", "free": %s, "running": %s, "next": "%s", "current": %s, "previous": %s}\n' \
        "$(uname -m)" "$(free_bytes)" $is_running "$(next_release)" "$(described current)" "$(described previous)"
}

receive() {
    part=$place/releases/$1.part
    rm -rf "$part"
    mkdir -p "$part" || refuse "the disk is full"
    if ! reason=$(tar -xf - -C "$part" 2>&1) || ! [ -f "$part/release.json" ]; then
        rm -rf "$part"
        case $reason in *"No space left"* | *"quota"*) refuse "the disk is full" ;; esac
        refuse "the transfer has failed ($reason)"
    fi
    mv "$part" "$place/releases/$1"
}

stop() {
    pid=$(pid_of_runner)
    [ -n "$pid" ] || return 0
    kill -TERM "$pid"
    count=0
    while [ -n "$(pid_of_runner)" ]; do
        count=$((count + 1))
        [ $count -le 300 ] || refuse "the running rig does not end within 30 s"
        sleep 0.1
    done
}

# Start the current release; fails, with its last words, if it does not run soon.
start() {
    mkdir -p "$place/logs"
    release=$(cd "$place/current" && pwd -P) || return 1
    begin=$(wc -c <"$place/server.log" 2>/dev/null || echo 0)
    # the runner goes on when this connection ends
    (
        trap '' HUP
        cd "$place" && exec "$release/$runner" "$release" --rows "logs/$rig-$(date -u +%Y-%m-%dT%H-%M-%S).rows" \
            >>"$place/server.log" 2>&1 </dev/null
    ) &
    echo $! >"$place/server.pid"
    count=0
    while ! "$release/$runner" "$release" --status >/dev/null 2>&1; do
        count=$((count + 1))
        if [ $count -gt 100 ] || { [ $count -gt 5 ] && [ -z "$(pid_of_runner)" ]; }; then
            stop
            words=$(tail -c "+$((begin + 1))" "$place/server.log" | tail -n 15)
            return 1
        fi
        sleep 0.1
    done
}

# Let a release run in place of the current one, which runs again if the new one does not start.
activate() {
    old=$(readlink "$place/current" 2>/dev/null)
    was_running=$(pid_of_runner)
    stop
    ln -sfn "releases/$1" "$place/current"
    if ! start; then
        problem="the rig does not start: $words"
        rm -f "$place/current"
        if [ -n "$old" ]; then
            ln -sfn "$old" "$place/current"
            [ -z "$was_running" ] || start
        fi
        refuse "$problem"
    fi
    [ -z "$old" ] || [ "$old" = "releases/$1" ] || ln -sfn "$old" "$place/previous"
}

# Run the runner of a release; its output as JSON.
call() {
    release=$place/$1
    shift
    output=$("$release/$runner" "$release" "$@" 2>"$place/errors")
    code=$?
    printf '{"code": %s, "output": "%s", "errors": "%s"}\n' $code "$(printf '%s' "$output" | quoted)" \
        "$(quoted <"$place/errors")"
    rm -f "$place/errors"
}

recordings() {
    list=
    for file in "$place"/logs/*; do
        [ -f "$file" ] || continue
        list="$list${list:+, }\"${file##*/}\": $(($(wc -c <"$file")))"
    done
    printf '{"files": {%s}}\n' "$list"
}

case $action in receive | activate | remove | stop) lock ;; esac
case $action in
facts | recordings) $action ;;
receive | activate | stop) "$action" "$@" && echo '{}' ;;
remove) rm -rf "$place/releases/$1" && echo '{}' ;;
call) call "$@" ;;
send) tar -C "$place/logs" -cf - -- "$@" || : ;; # one may have grown, or made room for others, meanwhile
esac
