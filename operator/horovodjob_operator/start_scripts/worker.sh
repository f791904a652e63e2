#!/bin/sh
# First process of a worker: an ssh server that knows the job's keys only, in the foreground, until the pod is deleted.
set -eu
# shellcheck source=SCRIPTDIR/environment.sh
. /etc/horovodjob/mpi/environment.sh

prepare_home
prepare_logs
save_environment
require_user WorkerLost
sshd=$(command -v sshd || command -v /usr/sbin/sshd) ||
    give_up WorkerLost "the image has no sshd: it needs an OpenSSH server (Debian: openssh-server)"

# Files of a Secret are root's; ssh wants its keys to be the user's own and nobody else's.
cp "$etc/ssh_host_ed25519_key" "$etc/authorized_keys" "$run/"
chmod 600 "$run/ssh_host_ed25519_key" "$run/authorized_keys"
if [ "$(id -u)" = 0 ]; then mkdir -p /run/sshd && chmod 755 "$run" && chmod 644 "$run/authorized_keys"; fi

cat >"$run/sshd_config" <<CONFIG
Port ${HOROVODJOB_SSH_PORT}
HostKey $run/ssh_host_ed25519_key
AuthorizedKeysFile $run/authorized_keys
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AcceptEnv HOROVODJOB_ATTEMPT
ForceCommand /bin/sh $etc/session.sh
AllowTcpForwarding no
AllowAgentForwarding no
X11Forwarding no
PermitTTY no
PrintMotd no
UsePAM no
UseDNS no
StrictModes no
PidFile none
LogLevel ERROR
MaxStartups 1024
MaxSessions 64
ClientAliveInterval 15
ClientAliveCountMax 4
CONFIG

say "worker starts: sshd on port ${HOROVODJOB_SSH_PORT} as $(id -un)"
"$sshd" -D -e -f "$run/sshd_config" &
sshd_pid=$!

# Ranks hear of the end before the container goes, and may use the grace period of the pod for a checkpoint.
end_ranks() {
    trap '' TERM INT
    while :; do
        ranks=
        for environ in /proc/[0-9]*/environ; do
            if grep -qz '^HOROVODJOB_SESSION=1$' "$environ"; then
                pid=${environ#/proc/}
                ranks="$ranks ${pid%/environ}"
            fi
        done 2>/dev/null
        [ -n "$ranks" ] || exit 0
        # shellcheck disable=SC2086 # a list of numbers
        if [ -z "${told:-}" ]; then kill -TERM $ranks 2>/dev/null || :; told=1; fi
        sleep 0.2
    done
}
trap end_ranks TERM INT

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

# The kernel may kill a rank and leave the container alone. A worker without its rank is lost all the same,
# and when the container ends now, Kubernetes reports it as OOMKilled.
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
