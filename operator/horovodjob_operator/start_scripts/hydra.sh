# shellcheck shell=sh disable=SC2034,SC2154 # names are shared with launcher.sh
# Sourced by launcher.sh: how Hydra starts the ranks of MPICH, which reads HYDRA_*, and of Intel MPI, which reads I_MPI_*.

# What Intel MPI calls mpirun is a shell script around it, and would keep signals to itself.
mpirun=mpiexec.hydra package=mpich

cp "$etc/hydra_ssh.sh" "$run/ssh"
chmod 700 "$run/ssh"
export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC="$run/ssh"
export I_MPI_HYDRA_BOOTSTRAP=ssh I_MPI_HYDRA_BOOTSTRAP_EXEC="$run/ssh"
export HYDRA_IFACE="$interface" I_MPI_HYDRA_IFACE="$interface"
# Intel MPI takes only the addresses from that file, and a rank for each core where nothing else is said.
export HYDRA_HOST_FILE="$HOROVODJOB_HOSTFILE" I_MPI_HYDRA_HOST_FILE="$HOROVODJOB_HOSTFILE" I_MPI_PERHOST="$HOROVODJOB_SLOTS"
# The launcher alone has the private key, so it starts every worker itself: no tree.
export I_MPI_HYDRA_BRANCH_COUNT=10000
# Each worker has its own environment, and no need of the launcher's. Intel MPI knows this as an option only.
export HYDRA_ENV=none

# hostfile: from lines `address slots=n`, lines `address:n`.
hostfile() {
    while read -r host slots; do echo "$host:${slots#slots=}"; done
}

# start_ranks ARGS...: becomes mpiexec with its other options and the program.
start_ranks() {
    if [ "$HOROVODJOB_MPI" = IntelMPI ]; then
        # With more it takes memory without end.
        if [ $# -gt 1000 ]; then
            give_up LauncherFailed "the program and mpi.args have $# words, and Intel MPI takes 1000: put them into a file"
        fi
        # The others bind no rank to a core either.
        set -- -genv I_MPI_PIN "${I_MPI_PIN-0}" "$@"
    fi
    exec mpiexec.hydra -genvnone -n "$ranks" "$@"
}

# end_mpirun: it tells its ranks and waits for them, so those that do not listen are killed, as Open MPI does.
end_mpirun() {
    kill -TERM "$mpirun_pid" 2>/dev/null || :
    sleep 1
    kill -KILL "$mpirun_pid" 2>/dev/null || :
}

# workers_answer: its exit code can be believed.
workers_answer() {
    :
}
