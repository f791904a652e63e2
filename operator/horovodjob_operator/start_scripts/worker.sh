#!/bin/sh
# First process of a worker: runs an ssh server that accepts only the keys of the job, until the pod is deleted.
set -eu
# shellcheck source=SCRIPTDIR/environment.sh
. /etc/horovodjob/mpi/environment.sh
# shellcheck source=SCRIPTDIR/ranks.sh
. /etc/horovodjob/mpi/ranks.sh

prepare_home
prepare_logs
prepare_outputs
prepare_nccl
save_environment
require_user WorkerLost

if [ $# -gt 0 ]; then
    # shellcheck source=SCRIPTDIR/prepare.sh
    . "$etc/prepare.sh"
    prepare "$1"
fi

# The preparation can have installed it.
sshd=$(command -v sshd || command -v /usr/sbin/sshd) ||
    give_up WorkerLost "the image has no sshd: it needs an OpenSSH server (Debian: openssh-server)"

# shellcheck source=SCRIPTDIR/sshd_config.sh
. "$etc/sshd_config.sh"

say "worker starts: sshd on port ${HOROVODJOB_SSH_PORT} as $(id -un)"
"$sshd" -D -e -f "$run/sshd_config" &
sshd_pid=$!

# find_sessions: sets `sessions` to all processes of ssh sessions: ranks and the daemons of mpirun.
find_sessions() {
    sessions=
    # shellcheck disable=SC2013 # these names have no spaces
    for environ in $(grep -lzx 'HOROVODJOB_SESSION=1' /proc/[0-9]*/environ 2>/dev/null); do
        pid=${environ#/proc/}
        sessions="$sessions ${pid%/environ}"
    done
}

# The pod is being deleted: its ranks have the grace period to save their state. If the launcher is deleted too, it ends
# mpirun when no rank of the job handles TERM any more. Otherwise the worker ends its own ranks.
end_sessions() {
    trap '' TERM INT
    say "the worker receives TERM"
    # Horovod ends ranks of an elastic job that leave, and the others continue; to end all, the launcher sends TERM.
    if [ -n "${HOROVODJOB_ELASTIC:-}" ]; then
        while find_sessions && [ -n "$sessions" ]; do sleep 0.2; done
        exit 0
    fi
    let_ranks_save
    # The launcher connects within seconds, or later on a busy node. Until then the daemon of mpirun must run here, or
    # mpirun kills ranks on other workers that are still saving.
    turns=0
    while find_sessions && [ -n "$sessions" ] && [ "$turns" -lt 90 ]; do
        if [ ! -e "$run/ending" ]; then turns=$((turns + 1)); fi
        # shellcheck disable=SC2086 # a list of numbers
        if [ "$turns" = 75 ]; then kill -TERM $sessions 2>/dev/null || :; fi
        sleep 0.2
    done
    exit 0
}
trap end_sessions TERM INT

# oom_kills: how many processes of this container the kernel has killed for lack of memory (cgroup v2, then v1).
oom_kills() {
    kills=0
    for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        if [ -r "$file" ]; then
            while read -r name value; do if [ "$name" = oom_kill ]; then kills=$value; fi; done <"$file"
            return 0
        fi
    done
}

# The kernel can kill a rank without ending the container. The worker is lost without its rank, so the container ends,
# and Kubernetes reports it as OOMKilled.
while kill -0 "$sshd_pid" 2>/dev/null; do
    oom_kills
    if [ "$kills" -gt 0 ]; then
        printf '{"reason":"WorkerOutOfMemory","message":"a process of this worker was killed: its memory limit is reached"}' \
            >/dev/termination-log || :
        say "a process of this worker was killed: its memory limit is reached"
        exit 137
    fi
    sleep 1 &
    wait $! || :
done
wait "$sshd_pid" || give_up WorkerLost "sshd ended with exit code $?"
