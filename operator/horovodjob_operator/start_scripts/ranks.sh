# shellcheck shell=sh
# Sourced by worker.sh, session.sh and launcher.sh: sends TERM to the ranks of this pod.
#
# Only processes of ranks with a handler for TERM receive it, each once. The others have no state to save and continue
# until mpirun is ended, because other ranks can wait for them.

# find_listening: sets `listening` to the processes of ranks that have a handler for TERM.
find_listening() {
    listening=
    # The variables of Open MPI, of Hydra, and of the elastic driver of Horovod.
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

# let_ranks_save: sends TERM to the ranks, and returns when none with a handler is left. The kubelet limits the time.
let_ranks_save() {
    # shellcheck disable=SC2154 # set by the sourcing script
    mkdir -p "$run/signaled"
    while find_listening && [ -n "$listening" ]; do
        for pid in $listening; do
            if [ ! -e "$run/signaled/$pid" ] && mkdir "$run/signaled/$pid" 2>/dev/null; then kill -TERM "$pid" || :; fi
        done 2>/dev/null
        sleep 0.2
    done
}
