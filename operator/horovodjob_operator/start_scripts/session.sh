#!/bin/sh
# ForceCommand of sshd on a worker: sets the environment of the container, then runs the request of the launcher.
attempt=${HOROVODJOB_ATTEMPT:-}
request=${SSH_ORIGINAL_COMMAND:-}
run=/run/horovodjob
# shellcheck disable=SC1091
. "$run/environment"
other=$(cat "$run/other_variables" 2>/dev/null)
HOROVODJOB_ATTEMPT=$attempt
HOROVODJOB_SESSION=1
export HOROVODJOB_ATTEMPT HOROVODJOB_SESSION
cd "$HOROVODJOB_WORKDIR" || exit 1

# Remaining processes of earlier ssh sessions have HOROVODJOB_SESSION and another attempt in their environment.
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
    # The launcher connects first with this request: the worker ends old ranks and stores the hostfile of the attempt.
    end_earlier_attempts
    rm -rf "$run/signaled" "$run/ending" "$run/ranks"
    mkdir "$run/ranks"
    umask 022
    cat >"$run/hostfile.new" && mv "$run/hostfile.new" "$run/hostfile" || exit 1
    # shellcheck source=SCRIPTDIR/script.sh
    . /etc/horovodjob/mpi/script.sh
    require_script || exit 66
    ;;
horovodjob-ranks)
    # mpirun has ended: which ranks of this worker have run to their end.
    cat "$run"/ranks/*
    ;;
horovodjob-end)
    # The launcher is being deleted. It ends mpirun when the ranks of every worker have saved their state.
    : >"$run/ending"
    # shellcheck source=SCRIPTDIR/ranks.sh
    . /etc/horovodjob/mpi/ranks.sh
    let_ranks_save
    echo saved
    # The launcher ends mpirun, so this session stays open until the launcher has ended.
    cat >/dev/null
    rm "$run/ending"
    ;;
"horovodjob-rank "*)
    # A rank of an elastic job. The driver closes the connection to end the rank, and also when the driver itself ends.
    # Horovod aborts a rank that leaves, which must not cause a core dump; a program can still enable core dumps.
    # shellcheck disable=SC3045 # every shell has it, POSIX or not
    ulimit -S -c 0
    umask "$HOROVODJOB_UMASK"
    exec 3<&0
    setsid /bin/sh -c "exec ${other:+env $other }${request#horovodjob-rank }" </dev/null 3<&- &
    rank=$!
    { cat <&3 >/dev/null; kill -KILL "-$rank"; } 2>/dev/null &
    code=0
    wait "$rank" || code=$?
    kill "$!" 2>/dev/null || :
    exit "$code"
    ;;
*)
    umask "$HOROVODJOB_UMASK"
    # Only bash keeps them for the daemon of mpirun, and so for the ranks of a launcherCommand.
    if [ -n "$other" ] && command -v bash >/dev/null; then eval "exec env $other bash -c \"\$request\""; fi
    exec /bin/sh -c "$request"
    ;;
esac
