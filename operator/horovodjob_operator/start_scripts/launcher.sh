#!/bin/sh
# First process of the launcher: waits for its hosts, runs mpirun with the arguments, and ends with its exit code.
set -eu
# shellcheck source=SCRIPTDIR/environment.sh
. /etc/horovodjob/mpi/environment.sh

prepare_home
prepare_logs
prepare_outputs
require_user LauncherFailed
# MPI must not try other interfaces, such as a bridge without a route to other pods.
default_route
case $HOROVODJOB_MPI in
OpenMPI)
    # shellcheck source=SCRIPTDIR/openmpi.sh
    . "$etc/openmpi.sh"
    ;;
*)
    # shellcheck source=SCRIPTDIR/hydra.sh
    . "$etc/hydra.sh"
    ;;
esac

# With launcher.asWorker ranks run here too, so the launcher prepares and ends them as a worker does. The
# preparation can install what is searched for next.
if [ -n "${HOROVODJOB_AS_WORKER:-}" ]; then
    prepare_nccl
    mkdir -p "$run/ranks"
    # shellcheck source=SCRIPTDIR/ranks.sh
    . "$etc/ranks.sh"
fi
if [ -n "${HOROVODJOB_PREPARATION_TIMEOUT:-}" ]; then
    # shellcheck source=SCRIPTDIR/prepare.sh
    . "$etc/prepare.sh"
    prepare "$1"
    shift
fi

# installed_mpi: the MPI implementation of the image, if its version shows it.
installed_mpi() {
    # shellcheck disable=SC2154 # set by the sourced script
    for program in "$mpirun" mpirun; do
        case $("$program" --version 2>&1 || :) in
        *"Open MPI"*) echo OpenMPI ;;
        *Intel*) echo IntelMPI ;;
        *HYDRA*) echo MPICH ;;
        *) continue ;;
        esac
        break
    done
}

starter=$mpirun
if [ -n "${HOROVODJOB_ELASTIC:-}" ]; then
    starter=python3
else
    installed=$(installed_mpi)
    if [ "${installed:-$HOROVODJOB_MPI}" != "$HOROVODJOB_MPI" ]; then
        give_up LauncherFailed "the mpirun of the image is $installed's and spec.mpi.implementation is $HOROVODJOB_MPI: set it to $installed"
    fi
fi
for program in ssh "$starter"; do
    # shellcheck disable=SC2154 # set by the sourced script
    command -v "$program" >/dev/null ||
        give_up LauncherFailed "the image has no $program: it needs an OpenSSH client and MPI (Debian: openssh-client, $package), for elastic jobs Python and Horovod"
done

# shellcheck source=SCRIPTDIR/ssh_config.sh
. "$etc/ssh_config.sh"

if [ -n "$execution_log" ]; then
    begin_files "$HOROVODJOB_LOGS/stdout.txt" "$HOROVODJOB_LOGS/stderr.txt" 2>/dev/null || :
fi

# The current hosts; those of an elastic job change.
hosts=/etc/horovodjob/hosts/hosts
say "launcher starts: attempt $HOROVODJOB_ATTEMPT, waiting for the addresses of its workers"
turns=0
until [ -s "$hosts" ]; do
    turns=$((turns + 1))
    # Nodes can take minutes to come, and each turn starts a process.
    if [ "$turns" -le 100 ]; then sleep 0.1; else sleep 0.5; fi
done
cp "$hosts" "$run/hosts"
(umask 022 && hostfile <"$run/hosts" >"$HOROVODJOB_HOSTFILE")

# join HOST: tries until the worker answers over ssh or the time limit is reached, and keeps its last output in a file.
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
        # shellcheck source=SCRIPTDIR/script.sh
        . "$etc/script.sh"
        words=$(require_script) || give_up ScriptNotFound "launcher, which hosts ranks: $words"
        continue
    fi
    join "$host" &
    joining="$joining $!"
done <"$run/hosts"
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

# shellcheck disable=SC2153 # set in the pod
ranks=$((workers * HOROVODJOB_SLOTS))

# The arguments are options of mpirun and the program, or a command that starts the ranks itself.
if [ -n "${HOROVODJOB_ELASTIC:-}" ]; then
    what="Horovod's elastic driver"
    export HOROVODJOB_INTERFACE="$interface"
    say "$what starts, with $ranks ranks on $workers workers"
elif [ -z "${HOROVODJOB_LAUNCHER_COMMAND:-}" ]; then
    what=mpirun
    # mpirun reads a single colon as the end of a program, so the arguments of this program get a prefix.
    mark='' marked='' number=0
    for word; do
        number=$((number + 1))
        marked="$marked \"$mark\${$number}\""
        if [ "$word" = "$etc/rank.sh" ]; then mark=+; fi
    done
    eval "set -- start_ranks $marked"
    say "mpirun starts $ranks ranks on $workers workers"
else
    what="the launcher's command"
    other=$(cat "$run/other_variables" 2>/dev/null || :)
    if [ -n "$other" ]; then
        eval "set -- env $other \"\$@\""
        command -v bash >/dev/null ||
            say "without bash in the image, ranks do not get variables whose names have dots or dashes: $other"
    fi
    say "$what starts, for $ranks ranks on $workers workers"
fi
: >"$run/started"
umask "$HOROVODJOB_UMASK"

# The termination message gets the last lines of both streams: the log of the container can end with a progress bar that
# fills all the room of the message. If a file becomes read-only, only its lines are lost: tee continues with the others.
mkfifo "$run/stdout" "$run/stderr" "$run/end_of_stdout" "$run/end_of_stderr"
last_lines 1023 <"$run/end_of_stdout" >"$run/last_of_stdout" &
copies=$!
last_lines 3072 <"$run/end_of_stderr" >"$run/last_of_stderr" &
copies="$copies $!"
if [ -n "$execution_log" ]; then
    tee -a "$HOROVODJOB_LOGS/stdout.txt" "$run/end_of_stdout" <"$run/stdout" &
    copies="$copies $!"
    tee -a "$HOROVODJOB_LOGS/stderr.txt" "$run/end_of_stderr" <"$run/stderr" >&2 &
else
    tee "$run/end_of_stdout" <"$run/stdout" &
    copies="$copies $!"
    tee "$run/end_of_stderr" <"$run/stderr" >&2 &
fi
copies="$copies $!"
"$@" </dev/null >"$run/stdout" 2>"$run/stderr" &
mpirun_pid=$!

# mpirun would kill the ranks a second after TERM. So each worker sends TERM to its ranks, which have the grace period
# of the pod to save their state. When no rank handles TERM any more, mpirun ends the others.
is_ending=
# shellcheck disable=SC2317,SC2329 # called by the trap
end_job() {
    trap '' TERM INT
    is_ending=1
    say "the launcher receives TERM: ranks that handle TERM can run until the end of the grace period"
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
    end_mpirun
}
trap end_job TERM INT

# call_workers REQUEST <HOSTS: sends the request to each worker over ssh, keeps the answers and what ssh says about workers
# that do not answer, and sets `codes` to all exit codes.
call_workers() {
    calls='' codes=' '
    while read -r host _; do
        if [ "$host" = "$HOROVODJOB_ADDRESS" ]; then continue; fi
        ssh -F "$run/ssh_config" "$host" "$1" </dev/null >"$run/ranks-$host" 2>"$run/answer-$host" &
        calls="$calls $!"
    done
    for pid in $calls; do
        answer=0
        wait "$pid" || answer=$?
        codes="$codes$answer "
    done
}

# workers_with WORDS: the addresses of workers with such an answer, as many as a termination message can contain.
workers_with() {
    grep -lE "$1" "$run"/answer-* 2>/dev/null | sed 's/.*answer-//' | head -n 64 | tr '\n' ' '
}

# find_lost_ranks: sets `lost` to what contradicts the exit code 0 of mpirun, if anything does. Open MPI ends with it
# although no rank has run if it cannot start them, for example because it forwards a signal meanwhile.
find_lost_ranks() {
    lost=
    call_workers horovodjob-ranks <"$run/hosts"
    # ssh ends with 255 for its own errors.
    case $codes in *" 255 "*) if loses_workers; then lost="a worker does not answer"; fi ;; esac
    if has_ranks running; then lost="ranks have not run to their end"; fi
    # A worker that an earlier version of the operator has created does not know the request, and ends with 127.
    case $codes in *" 127 "*) ;; *) if ! has_ranks ended; then lost="no rank has run to its end"; fi ;; esac
}

# has_ranks STATE: whether a rank of a worker, or of this launcher, is in this state.
has_ranks() {
    grep -qs "$1" "$run"/ranks-* "$run"/ranks/*
}

code=0
wait "$mpirun_pid" || code=$?
# A trapped signal interrupts the first wait; a second one returns the exit code of mpirun.
while kill -0 "$mpirun_pid" 2>/dev/null; do
    code=0
    wait "$mpirun_pid" || code=$?
done
# A process that the program has left behind can hold its output open. tee has reported its own error.
# shellcheck disable=SC2086 # pids
{ sleep 10; kill $copies; } 2>/dev/null &
limit=$!
for pid in $copies; do wait "$pid" || execution_log=; done
kill "$limit" 2>/dev/null || :
say "$what ended with exit code $code (attempt $HOROVODJOB_ATTEMPT)"
if [ "$code" = 0 ] && [ -z "$is_ending" ] && [ "$what" = mpirun ]; then
    find_lost_ranks
    if [ -n "$lost" ]; then
        code=1
        say "$lost, so the exit code is $code"
        echo "mpirun ended with exit code 0, but $lost" >>"$run/last_of_stderr"
    fi
fi
if [ "$code" != 0 ] && [ ! -s /dev/termination-log ]; then
    {
        tail -n 5 "$run/last_of_stdout"
        if [ -s "$run/last_of_stdout" ]; then echo; fi # it can be without an end of its line
        cat "$run/last_of_stderr"
    } >/dev/termination-log || :
fi
# If ssh cannot connect to a worker, its node or the network has failed, and not the program. If a worker has no ssh
# server any more, its container has ended, and its kubelet will report why. The operator reads the addresses.
if [ "$code" != 0 ] && [ -z "$is_ending" ]; then
    call_workers true <"$hosts"
    # The messages of glibc and of musl.
    unreachable=$(workers_with 'timed out|No route to host|unreachable')
    ended=$(workers_with 'Connection (refused|reset|closed)|closed by remote host')
    if [ -n "$unreachable$ended" ]; then
        say "workers that cannot be reached: ${unreachable:-none}; workers that have ended: ${ended:-none}"
        printf '{"unreachable":"%s","ended":"%s"}' "$unreachable" "$ended" >/dev/termination-log || :
    fi
fi
# Ranks that end after TERM have not completed their work, even if their exit code is 0.
if [ -n "$is_ending" ] && [ "$code" = 0 ]; then code=143; fi
if [ "$code" = 0 ]; then printf '%s ended with exit code 0' "$what" >/dev/termination-log || :; fi
exit "$code"
