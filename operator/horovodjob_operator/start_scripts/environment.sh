# shellcheck shell=sh
# Sourced by launcher.sh and worker.sh: where things are, and a home and working directory that can be written.

# shellcheck disable=SC2034 # for the scripts that source this
etc=/etc/horovodjob/mpi
run=/run/horovodjob
# Keys are nobody else's business; what the user's programs write is as readable as the image has it.
HOROVODJOB_UMASK=$(umask)
export HOROVODJOB_UMASK
umask 077
# The shell is the container's first process, and the kernel gives those no default action for TERM.
trap 'exit 143' TERM INT

# say TEXT...: one line with the time, for the container's log and, with spec.logs, for execution-<pod>.log.
say() {
    line="$(date -u +%Y-%m-%dT%H:%M:%SZ) horovodjob: $*"
    printf '%s\n' "$line" >&2
    if [ -n "${execution_log:-}" ] && ! printf '%s\n' "$line" 2>/dev/null >>"$execution_log"; then lose_logs; fi
}

# lose_logs: says, once, that there are no log files from here on; a share that cannot be written never stops a job.
lose_logs() {
    execution_log=
    say "cannot write to $HOROVODJOB_LOGS: what follows is only in the logs of the containers"
    HOROVODJOB_LOGS=
}

# give_up REASON TEXT...: ends the container; the operator reads reason and sentence from the termination message.
# Quotes, backslashes and control characters of the sentence are replaced: it has to fit into a JSON string.
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
    # The image's WORKDIR where it can be written, so that relative paths in the image work.
    if [ ! -w . ]; then cd "$AZ_BATCHAI_JOB_TEMP" || exit 1; fi
    HOROVODJOB_WORKDIR=$(pwd)
    export HOROVODJOB_WORKDIR
}

# Directories for logs and outputs are the user's and the group's of the pod, 0770, where the mount does not decide.
directories_umask=007

# Output goes where spec.logs says.
prepare_logs() {
    execution_log=
    if [ -n "${HOROVODJOB_LOGS:-}" ]; then
        file=$HOROVODJOB_LOGS/execution-$HOROVODJOB_POD.log
        # A subshell, as some shells end where they cannot open a file.
        if (umask "$directories_umask" && mkdir -p "$HOROVODJOB_LOGS") && (umask 022 && : >>"$file"); then
            execution_log=$file
        else
            lose_logs
        fi
    else
        mkdir -p "$AZ_BATCHAI_STDOUTERR_DIR"
    fi
}

# begin_files FILE...: adds the line with which the output of an attempt begins.
begin_files() (
    umask 022
    for file; do
        printf -- '--- attempt %s, %s ---\n' "$HOROVODJOB_ATTEMPT" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >>"$file"
    done
)

# Directories of spec.outputs; one that cannot be made is said, and the program will say the rest.
prepare_outputs() {
    for id in ${HOROVODJOB_OUTPUTS:-}; do
        eval "output=\$AZ_BATCHAI_OUTPUT_$id"
        # shellcheck disable=SC2154 # set by eval
        (umask "$directories_umask" && mkdir -p "$output") || say "cannot make the directory of output $id: $output"
    done
}

# default_route: sets `interface` to that of the default route, the pod's own; others may be bridges that lead nowhere.
default_route() {
    interface=eth0
    while read -r name destination _; do
        if [ "$destination" = 00000000 ]; then
            interface=$name
            break
        fi
    done </proc/net/route
}

# What NCCL needs to know on a node without InfiniBand; whatever the user, a ConfigMap or the image says comes first.
prepare_nccl() {
    if [ "${AZ_BATCHAI_NUM_GPUS:-0}" = 0 ]; then return 0; fi
    default_route
    export NCCL_DEBUG="${NCCL_DEBUG-WARN}" NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME-=$interface}"
    # A pod that asked for an rdma/ resource has its devices.
    if [ ! -e /dev/infiniband ]; then export NCCL_IB_DISABLE="${NCCL_IB_DISABLE-1}"; fi
}

# The whole environment in a form that the shell reads back byte for byte; ssh sessions would not have it otherwise.
save_environment() {
    export -p >"$run/environment"
}

require_user() {
    id -un >/dev/null 2>&1 || give_up "$1" "user id $(id -u) has no entry in /etc/passwd of the image, and ssh needs one"
}
