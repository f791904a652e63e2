#!/bin/sh
# What every ssh session of a worker runs (ForceCommand): the container's environment, then what the launcher asked for.
attempt=${HOROVODJOB_ATTEMPT:-}
request=${SSH_ORIGINAL_COMMAND:-}
run=/run/horovodjob
# shellcheck disable=SC1091
. "$run/environment"
HOROVODJOB_ATTEMPT=$attempt
HOROVODJOB_SESSION=1
export HOROVODJOB_ATTEMPT HOROVODJOB_SESSION
cd "$HOROVODJOB_WORKDIR" || exit 1

# Processes that an ssh session of an earlier attempt left behind carry HOROVODJOB_SESSION and another attempt.
end_earlier_attempts() {
    for environ in /proc/[0-9]*/environ; do
        if grep -qz '^HOROVODJOB_SESSION=1$' "$environ" && ! grep -qzx "HOROVODJOB_ATTEMPT=$attempt" "$environ"; then
            pid=${environ#/proc/}
            kill -KILL "${pid%/environ}"
        fi
    done 2>/dev/null
}

case $request in
horovodjob-join)
    # The launcher calls: a clean worker answers, with the hostfile of this attempt on its disk.
    end_earlier_attempts
    rm -rf "$run/told" "$run/ending"
    umask 022
    cat >"$run/hostfile.new" && mv "$run/hostfile.new" "$run/hostfile" || exit 1
    # shellcheck source=SCRIPTDIR/script.sh
    . /etc/horovodjob/mpi/script.sh
    require_script || exit 66
    ;;
horovodjob-end)
    # The launcher is to go and calls: it ends mpirun when every worker has said that its ranks have saved what they had.
    : >"$run/ending"
    # shellcheck source=SCRIPTDIR/ranks.sh
    . /etc/horovodjob/mpi/ranks.sh
    let_ranks_save
    echo saved
    # Until the launcher is gone, the end of mpirun is its business.
    cat >/dev/null
    rm "$run/ending"
    ;;
"horovodjob-rank "*)
    # A rank of an elastic job. Its driver closes the connection when the rank is to go, or is gone itself.
    # One that leaves is aborted by Horovod; that is no reason for a core, though a program can ask for one.
    # shellcheck disable=SC3045 # every shell has it, POSIX or not
    ulimit -S -c 0
    umask "$HOROVODJOB_UMASK"
    exec 3<&0
    setsid /bin/sh -c "exec ${request#horovodjob-rank }" </dev/null 3<&- &
    rank=$!
    { cat <&3 >/dev/null; kill -KILL "-$rank"; } 2>/dev/null &
    code=0
    wait "$rank" || code=$?
    kill "$!" 2>/dev/null || :
    exit "$code"
    ;;
*)
    umask "$HOROVODJOB_UMASK"
    exec /bin/sh -c "$request"
    ;;
esac
