# The part of a deployment with the runner that is carried out on the target: sent there as text, for a shell that knows
# POSIX, and the usual tools (busybox has them all). Called with an action, the folder of the deployments, the rig, and
# what the action needs. The last line of the output is a JSON object; an "error" in it is for the user. Files come as a
# tar archive on standard input, and leave as one on standard output.
#
# Folder: runners/RIG with releases/N (the packed rig, and release.json), current and previous (links to two of these),
# server.log, server.pid, and logs.

action=$1 root=$2 rig=$3
shift 3
trap '' HUP PIPE # what has begun is completed if the connection is lost, and the runner goes on
case $root in "~/"*) root=$HOME/${root#"~/"} ;; esac
place=$root/runners/$rig
runner=hilserver-runner
busy="somebody else is deploying there at the moment"

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

# The process of the runner; empty if it does not run. (Another process may have its number later.)
pid_of_runner() {
    [ -f "$place/server.pid" ] || return 0
    read -r pid <"$place/server.pid" || return 0
    case $(readlink "/proc/$pid/exe" 2>/dev/null) in "$(cd "$place" && pwd -P)"/releases/*) echo "$pid" ;; esac
}

next_release() {
    number=1
    while [ -e "$place/releases/$number" ]; do number=$((number + 1)); done
    echo $number
}

# One at a time: a link that names the process is made in one step. One whose process has ended is put aside, and is put
# back if it was another's by then. (The text of this script is among the arguments of a process that carries it out.)
lock() {
    mkdir -p "$root" || refuse "$root can't be written"
    link=$root/lock.runner
    if ! ln -s $$ "$link" 2>/dev/null; then
        other=$(readlink "$link") || refuse "$root can't be written, or the disk is full"
        case $(tr '\0' ' ' <"/proc/$other/cmdline") in *lock.runner*) refuse "$busy" ;; esac 2>/dev/null
        mv "$link" "$link.$$" 2>/dev/null
        [ "$(readlink "$link.$$")" = "$other" ] || mv "$link.$$" "$link" 2>/dev/null
        rm -f "$link.$$"
        ln -s $$ "$link" 2>/dev/null || refuse "$busy"
    fi
    trap 'rm -f "$link"' EXIT
    trap 'exit 1' INT TERM
}

# Let a link name another release.
point() { ln -sfn "releases/$2" "$place/$1" || refuse "the disk is full, or $place can't be written"; }

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
    [ ! -e "$place/releases/$1" ] || refuse "somebody else has deployed there meanwhile. Nothing was changed"
    rm -rf "$part"
    mkdir -p "$part" || refuse "the disk is full"
    if ! reason=$(tar -xf - -C "$part" 2>&1) || ! [ -f "$part/release.json" ]; then
        rm -rf "$part"
        case $reason in *"No space left"* | *"quota"*) refuse "the disk is full" ;; esac
        refuse "the transfer failed ($reason)"
    fi
    mv "$part" "$place/releases/$1" || refuse "$place can't be written"
}

# Remove a release that does not run, and did not before.
remove() {
    for name in current previous; do
        [ "$(readlink "$place/$name")" != "releases/$1" ] || refuse "release $1 is in use"
    done
    rm -rf "$place/releases/$1"
}

# Somebody may have armed the rig while the new release was on its way.
require_at_rest() {
    [ -n "$(pid_of_runner)" ] || return 0
    case $("$place/current/$runner" "$place/current" --status 2>/dev/null) in
    *'"mode": "ARMED"'* | *'"mode": "RUNNING"'*) refuse "$rig is armed or runs. Disarm it first" ;;
    esac
}

stop() {
    pid=$(pid_of_runner)
    [ -n "$pid" ] || return 0
    kill -TERM "$pid"
    count=0
    while [ -n "$(pid_of_runner)" ]; do
        count=$((count + 1))
        [ $count -le 300 ] || refuse "the running rig did not end within 30 s"
        sleep 0.1
    done
}

# Start the current release; fails, with its last words, if it does not run soon.
start() {
    mkdir -p "$place/logs"
    release=$(cd "$place/current" && pwd -P) || return 1
    begin=$(($(wc -c <"$place/server.log" 2>/dev/null || echo 0)))
    while rows=logs/$rig-$(date -u +%Y-%m-%dT%H-%M-%S).rows && [ -e "$place/$rows" ]; do sleep 0.2; done
    (
        cd "$place" && exec "$release/$runner" "$release" --rows "$rows" >>"$place/server.log" 2>&1 </dev/null
    ) &
    child=$!
    if ! echo $child >"$place/server.pid"; then
        kill -TERM $child
        wait $child
        words="the disk is full"
        return 1
    fi
    count=0
    while :; do # another process could run the same rig: it is this one that must answer
        case $("$release/$runner" "$release" --status 2>/dev/null) in *"\"pid\": $child,"*) return 0 ;; esac
        count=$((count + 1))
        if [ $count -gt 100 ] || [ -z "$(readlink /proc/$child/exe)" ]; then
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
    [ -d "$place/releases/$1" ] || refuse "there is no release $1"
    require_at_rest
    stop
    point current "$1"
    if ! start; then
        problem="the rig does not start: $words"
        rm -f "$place/current"
        if [ -n "$old" ]; then
            point current "${old#releases/}"
            [ -z "$was_running" ] || start || problem="$problem, and the one before neither: $words"
        fi
        refuse "$problem"
    fi
    [ -z "$old" ] || [ "$old" = "releases/$1" ] || point previous "${old#releases/}"
}

# Run the runner of a release; its output as JSON.
call() {
    release=$place/$1
    shift
    errors=$place/errors.$$
    true 2>/dev/null >"$errors" || errors=/dev/null # a full disk does not prevent commands
    output=$("$release/$runner" "$release" "$@" 2>"$errors")
    code=$?
    printf '{"code": %s, "output": "%s", "errors": "%s"}\n' $code "$(printf '%s' "$output" | quoted)" \
        "$(quoted <"$errors")"
    [ "$errors" = /dev/null ] || rm -f "$errors"
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
receive | activate | remove | stop) "$action" "$@" && echo '{}' ;;
call) call "$@" ;;
send) tar -C "$place/logs" -cf - -- "$@" || : ;; # one may have grown, or made room for others, meanwhile
esac
