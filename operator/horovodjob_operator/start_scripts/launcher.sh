#!/bin/sh
# First process of the launcher: waits for its hosts, runs mpirun with the arguments given, ends with its exit code.
set -eu
# shellcheck source=SCRIPTDIR/environment.sh
. /etc/horovodjob/mpi/environment.sh

prepare_home
prepare_logs
prepare_outputs
require_user LauncherFailed
for program in ssh mpirun; do
    if [ "$program" = mpirun ] && [ -n "${HOROVODJOB_ELASTIC:-}" ]; then program=python3; fi
    command -v "$program" >/dev/null ||
        give_up LauncherFailed "the image has no $program: it needs an OpenSSH client and MPI (Debian: openssh-client, openmpi-bin), for elastic jobs Python and Horovod"
done

# With launcher.asWorker ranks run here too: what is a worker's to do before and after them is done here.
if [ -n "${HOROVODJOB_AS_WORKER:-}" ]; then
    prepare_nccl
    # shellcheck source=SCRIPTDIR/ranks.sh
    . "$etc/ranks.sh"
fi
if [ -n "${HOROVODJOB_PREPARATION_TIMEOUT:-}" ]; then
    # shellcheck source=SCRIPTDIR/prepare.sh
    . "$etc/prepare.sh"
    prepare "$1"
    shift
fi

cp "$etc/id_ed25519" "$etc/known_hosts" "$run/"
chmod 600 "$run/id_ed25519"
# One host key for the job whatever the address is, so a worker that comes back elsewhere is still known.
cat >"$run/ssh_config" <<CONFIG
Host *
    Port ${HOROVODJOB_SSH_PORT}
    IdentityFile $run/id_ed25519
    IdentitiesOnly yes
    BatchMode yes
    UserKnownHostsFile $run/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    HostKeyAlias horovodjob
    HostKeyAlgorithms ssh-ed25519
    CheckHostIP no
    ConnectTimeout 5
    ServerAliveInterval 5
    ServerAliveCountMax 3
    SendEnv HOROVODJOB_ATTEMPT
    LogLevel ERROR
CONFIG

if [ -n "$execution_log" ]; then
    umask 022
    for file in stdout.txt stderr.txt; do
        printf -- '--- attempt %s, %s ---\n' "$HOROVODJOB_ATTEMPT" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >>"$HOROVODJOB_LOGS/$file"
    done
    umask 077
fi

# The hosts as they are now; those of an elastic job come and go.
hosts=/etc/horovodjob/hosts/hosts
say "launcher starts: attempt $HOROVODJOB_ATTEMPT, waits for the addresses of its workers"
until [ -s "$hosts" ]; do sleep 0.1; done
(umask 022 && cp "$hosts" "$HOROVODJOB_HOSTFILE")

# join HOST: until the worker answers over ssh, or not within the limit; its last words are kept in a file.
join() {
    tries=0
    while :; do
        code=0
        ssh -F "$run/ssh_config" "$1" horovodjob-join <"$HOROVODJOB_HOSTFILE" >"$run/join-$1" 2>&1 || code=$?
        if [ "$code" = 0 ]; then rm "$run/join-$1"; return 0; fi
        if [ "$code" = 66 ]; then return 0; fi
        if ! grep -q "^$1 " "$hosts"; then rm "$run/join-$1"; return 0; fi
        tries=$((tries + 1))
        if [ "$(date +%s)" -ge "$join_until" ]; then return 0; fi
        if [ "$tries" -lt 50 ]; then sleep 0.1; else sleep 1; fi
    done
}

join_until=$(($(date +%s) + HOROVODJOB_SSH_TIMEOUT))
joining=
workers=0
while read -r host _; do
    workers=$((workers + 1))
    if [ "$host" = "$HOROVODJOB_ADDRESS" ]; then
        if [ -z "${HOROVODJOB_AS_WORKER:-}" ]; then
            give_up LauncherFailed "a worker has the launcher's own address, $host, and mpirun would start its ranks here: set hostNetwork for workers only"
        fi
        if [ -n "${HOROVODJOB_SCRIPT:-}" ] && [ ! -e "$HOROVODJOB_SCRIPT" ]; then
            give_up ScriptNotFound "there is no file $HOROVODJOB_SCRIPT on the launcher, which hosts ranks"
        fi
        continue
    fi
    join "$host" &
    joining="$joining $!"
done <"$HOROVODJOB_HOSTFILE"
for pid in $joining; do wait "$pid"; done
for answer in "$run"/join-*; do
    [ -e "$answer" ] || continue
    host=${answer#"$run"/join-}
    words=$(tail -n 1 "$answer")
    case $words in
    "there is no file "*) give_up ScriptNotFound "worker $host: $words" ;;
    *) give_up SshUnavailable "worker $host did not answer over ssh within $HOROVODJOB_SSH_TIMEOUT s: ${words:-no answer}" ;;
    esac
done

# MPI must not try other interfaces, such as a bridge that leads nowhere.
default_route

# OpenMPI 4 reads OMPI_MCA_*, OpenMPI 5 reads PRTE_MCA_* for its runtime part; each ignores the other's.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent=ssh OMPI_MCA_plm_rsh_args="-F $run/ssh_config"
export PRTE_MCA_plm_ssh_agent=ssh PRTE_MCA_plm_ssh_args="-F $run/ssh_config"
# The launcher alone has the private key, so it starts every worker itself.
export OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_plm_rsh_num_concurrent=256
export PRTE_MCA_plm_ssh_no_tree_spawn=1 PRTE_MCA_plm_ssh_num_concurrent=256
export OMPI_MCA_oob_tcp_if_include="$interface" OMPI_MCA_btl_tcp_if_include="$interface"
export PRTE_MCA_oob_tcp_if_include="$interface"
# The daemon that mpirun starts on a worker leaves its ssh session, so ssh cannot notice that the worker is out of reach;
# by default the daemon's own connection would take eight minutes.
export OMPI_MCA_oob_tcp_keepalive_time=10 OMPI_MCA_oob_tcp_keepalive_intvl=5 OMPI_MCA_oob_tcp_keepalive_probes=3
export PRTE_MCA_oob_tcp_keepalive_time=10 PRTE_MCA_oob_tcp_keepalive_intvl=5 PRTE_MCA_oob_tcp_keepalive_probes=3
export OMPI_MCA_orte_keep_fqdn_hostnames=1 PRTE_MCA_prte_keep_fqdn_hostnames=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=^openib
# Ranks that wait give the core away: MPI polls, and on shared cores that costs a third of the speed.
if [ "${AZ_BATCHAI_NUM_GPUS:-0}" = 0 ]; then export OMPI_MCA_mpi_yield_when_idle=1; fi

# shellcheck disable=SC2153 # set in the pod
ranks=$((workers * HOROVODJOB_SLOTS))

# The arguments are mpirun's own options and what it starts, or a command that starts the ranks itself.
if [ -n "${HOROVODJOB_ELASTIC:-}" ]; then
    what="Horovod's elastic driver"
    export HOROVODJOB_INTERFACE="$interface"
    say "$what starts, with $ranks ranks on $workers workers"
elif [ -z "${HOROVODJOB_LAUNCHER_COMMAND:-}" ]; then
    what=mpirun
    set -- mpirun -np "$ranks" --hostfile "$HOROVODJOB_HOSTFILE" --bind-to none --map-by slot \
        --wdir "$HOROVODJOB_WORKDIR" "$@"
    say "mpirun starts $ranks ranks on $workers workers"
else
    what="the launcher's command"
    say "$what starts, for $ranks ranks on $workers workers"
fi
: >"$run/started"
umask "$HOROVODJOB_UMASK"

# A file that cannot be written any more costs its lines, never the job: tee goes on with the container's log.
if [ -n "$execution_log" ]; then
    mkfifo "$run/stdout" "$run/stderr"
    tee -a "$HOROVODJOB_LOGS/stdout.txt" <"$run/stdout" &
    copies=$!
    tee -a "$HOROVODJOB_LOGS/stderr.txt" <"$run/stderr" >&2 &
    copies="$copies $!"
    "$@" </dev/null >"$run/stdout" 2>"$run/stderr" &
else
    copies=
    "$@" </dev/null &
fi
mpirun_pid=$!

# mpirun would kill the ranks a second after it told them. So each worker tells its own, which have the pod's grace
# period to save what they have; when none is left that listens, mpirun ends the others.
told=
# shellcheck disable=SC2329 # called by the trap
end_job() {
    trap '' TERM INT
    told=1
    say "the launcher is told to end: ranks that handle TERM have until the end of the grace period"
    mkfifo "$run/hold"
    exec 9<>"$run/hold"
    ending=
    while read -r host _; do
        ending="$ending $host"
        if [ "$host" = "$HOROVODJOB_ADDRESS" ]; then
            { let_ranks_save; echo gone; } >"$run/end-$host" &
            continue
        fi
        { ssh -F "$run/ssh_config" "$host" horovodjob-end <&9 || :; echo gone; } >"$run/end-$host" 2>/dev/null &
    done <"$hosts"
    for host in $ending; do
        until [ -s "$run/end-$host" ]; do sleep 0.1; done
    done
    kill -TERM "$mpirun_pid" 2>/dev/null || :
}
trap end_job TERM INT

code=0
wait "$mpirun_pid" || code=$?
# A trapped signal ends the first wait early; mpirun's own code comes with a second one.
while kill -0 "$mpirun_pid" 2>/dev/null; do
    code=0
    wait "$mpirun_pid" || code=$?
done
for pid in $copies; do wait "$pid" || :; done
say "$what ended with exit code $code (attempt $HOROVODJOB_ATTEMPT)"
# Ranks that were told to end have not done all of their work, even where they end with 0.
if [ -n "$told" ] && [ "$code" = 0 ]; then code=143; fi
if [ "$code" = 0 ]; then printf '%s ended with exit code 0' "$what" >/dev/termination-log || :; fi
exit "$code"
