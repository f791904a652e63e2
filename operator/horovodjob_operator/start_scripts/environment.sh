# shellcheck shell=sh
# Sourced by launcher.sh and worker.sh: paths, logs, and a writable home and working directory.

# shellcheck disable=SC2034 # for the scripts that source this
etc=/etc/horovodjob/mpi
run=/run/horovodjob
# Only the user can read the keys. Files of the user's programs have the umask of the image.
HOROVODJOB_UMASK=$(umask)
export HOROVODJOB_UMASK
umask 077
# The shell is the first process of the container, for which the kernel has no default action for TERM.
trap 'exit 143' TERM INT

# The daemons of mpirun on the workers need spec.mpi.prefix too: sessions of ssh have the environment saved below.
if [ -n "${HOROVODJOB_MPI_PREFIX:-}" ]; then
    PATH=$HOROVODJOB_MPI_PREFIX/bin:$PATH
    LD_LIBRARY_PATH=$HOROVODJOB_MPI_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export PATH LD_LIBRARY_PATH
fi

# say TEXT...: writes one line with the time to the log of the container and, with spec.logs, to execution-<pod>.log.
say() {
    line="$(date -u +%Y-%m-%dT%H:%M:%SZ) horovodjob: $*"
    printf '%s\n' "$line" >&2
    if [ -n "${execution_log:-}" ] && ! printf '%s\n' "$line" 2>/dev/null >>"$execution_log"; then lose_logs; fi
}

# lose_logs: reports once that the log files end here. A share that is not writable does not stop a job.
lose_logs() {
    execution_log=
    say "cannot write to $HOROVODJOB_LOGS: only the logs of the containers continue"
    HOROVODJOB_LOGS=
}

# last_lines BYTES: the last lines of standard input, without the states of progress bars, which ranks that still run
# write behind the error of another one. A line without an end is read in parts, so that it takes no memory.
last_lines() {
    tr '\r' '\n' | fold -b -w 4096 |
        LC_ALL=C sed -e '/[0-9]%|/s/.*\(Traceback (most\)/\1/' -e '/[0-9]%|/d' -e '/━/d' -e '/^$/d' | tail -c "$1"
}

# give_up REASON TEXT...: ends the container with a termination message, from which the operator reads both.
# It replaces quotes, backslashes and control characters, which a JSON string cannot contain.
give_up() {
    reason=$1
    shift
    say "$*"
    printf '{"reason":"%s","message":"%s"}' "$reason" \
        "$(printf '%s' "$*" | tr '"\\\n\t\r' "'/   " | tr -d '\000-\037')" >/dev/termination-log || :
    exit 1
}

prepare_home() {
    if [ -z "${HOME:-}" ] || [ ! -w "$HOME" ]; then
        HOME=$AZ_BATCHAI_JOB_TEMP/home
        mkdir -p "$HOME"
        export HOME
    fi
    # The WORKDIR of the image if it is writable, so that relative paths in the image work.
    if [ ! -w . ]; then cd "$AZ_BATCHAI_JOB_TEMP" || exit 1; fi
    HOROVODJOB_WORKDIR=$(pwd)
    export HOROVODJOB_WORKDIR
}

# Directories for logs and outputs have mode 0770, unless the mount determines it.
directories_umask=007

# prepare_logs: creates the directory of spec.logs.
prepare_logs() {
    execution_log=
    if [ -n "${HOROVODJOB_LOGS:-}" ]; then
        file=$HOROVODJOB_LOGS/execution-$HOROVODJOB_POD.log
        # A subshell, because some shells end if they cannot open a file.
        if (umask "$directories_umask" && mkdir -p "$HOROVODJOB_LOGS") && (umask 022 && : >>"$file"); then
            execution_log=$file
        else
            lose_logs
        fi
    else
        mkdir -p "$AZ_BATCHAI_STDOUTERR_DIR"
    fi
}

# begin_files FILE...: appends the first line of the output of an attempt.
begin_files() (
    umask 022
    for file; do
        printf -- '--- attempt %s, %s ---\n' "$HOROVODJOB_ATTEMPT" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >>"$file"
    done
)

# prepare_outputs: creates the directories of spec.outputs. A failure is only logged: the program may not need it.
prepare_outputs() {
    for id in ${HOROVODJOB_OUTPUTS:-}; do
        eval "output=\$AZ_BATCHAI_OUTPUT_$id"
        # shellcheck disable=SC2154 # set by eval
        (umask "$directories_umask" && mkdir -p "$output") || say "cannot create the directory of output $id: $output"
    done
}

# default_route: sets `interface` to that of the default route. Others can be bridges without a route to other pods.
default_route() {
    interface=eth0
    while read -r name destination _; do
        if [ "$destination" = 00000000 ]; then
            interface=$name
            break
        fi
    done </proc/net/route
}

# prepare_nccl: variables for nodes without InfiniBand. Values of the user, a ConfigMap or the image take precedence.
prepare_nccl() {
    if [ "${AZ_BATCHAI_NUM_GPUS:-0}" = 0 ]; then return 0; fi
    default_route
    export NCCL_DEBUG="${NCCL_DEBUG-WARN}" NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME-=$interface}"
    # A pod that requests an rdma/ resource has its devices.
    if [ ! -e /dev/infiniband ]; then export NCCL_IB_DISABLE="${NCCL_IB_DISABLE-1}"; fi
}

# save_environment: writes the whole environment to a file for ssh sessions, which do not inherit it.
save_environment() {
    export -p >"$run/environment"
}

require_user() {
    id -un >/dev/null 2>&1 || give_up "$1" "user id $(id -u) has no entry in /etc/passwd of the image, and ssh needs one"
}
