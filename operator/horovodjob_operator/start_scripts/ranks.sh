# shellcheck shell=sh
# Sourced by worker.sh and session.sh: how the ranks of this worker hear that they are to end.
#
# TERM goes to those processes of ranks that have a handler for it, each once. The others have nothing to save: they go
# on, because others may wait for them, until mpirun is ended.

# find_listening: sets `listening` to the processes of ranks that have a handler for TERM.
find_listening() {
    listening=
    # Open MPI numbers its ranks in the first variable, Hydra in the second, Horovod's elastic driver in the third.
    # shellcheck disable=SC2013 # these names have no spaces
    for environ in $(grep -lzE '^(OMPI_COMM_WORLD_RANK|PMI_RANK|HOROVOD_RANK)=' /proc/[0-9]*/environ 2>/dev/null); do
        pid=${environ#/proc/}
        pid=${pid%/environ}
        while read -r name value; do
            # TERM is bit 14 of the mask of caught signals: the third bit of the fourth digit from the right.
            case $name$value in
            SigCgt:*[4-7c-f]???) grep -qzx /etc/horovodjob/mpi/rank.sh "/proc/$pid/cmdline" || listening="$listening $pid" ;;
            esac
        done 2>/dev/null <"/proc/$pid/status" || continue
    done
}

# let_ranks_save: tells the ranks, and returns when none is left that listens. There is no limit: the kubelet has one.
let_ranks_save() {
    # shellcheck disable=SC2154 # set where this is sourced
    mkdir -p "$run/told"
    while find_listening && [ -n "$listening" ]; do
        for pid in $listening; do
            if [ ! -e "$run/told/$pid" ] && mkdir "$run/told/$pid" 2>/dev/null; then kill -TERM "$pid" || :; fi
        done 2>/dev/null
        sleep 0.2
    done
}
