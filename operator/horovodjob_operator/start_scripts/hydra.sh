# shellcheck shell=sh disable=SC2034,SC2154 # names are shared with launcher.sh
# Sourced by launcher.sh: starts ranks with Hydra. That of MPICH reads HYDRA_*, that of Intel MPI reads I_MPI_*.

# The mpirun of Intel MPI is a shell script, which does not forward signals to Hydra.
mpirun=mpiexec.hydra package=mpich

cp "$etc/hydra_ssh.sh" "$run/ssh"
chmod 700 "$run/ssh"
export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC="$run/ssh"
export I_MPI_HYDRA_BOOTSTRAP=ssh I_MPI_HYDRA_BOOTSTRAP_EXEC="$run/ssh"
export HYDRA_IFACE="$interface" I_MPI_HYDRA_IFACE="$interface"
# Intel MPI reads only the addresses from the hostfile, and by default starts a rank for each core.
export HYDRA_HOST_FILE="$HOROVODJOB_HOSTFILE" I_MPI_HYDRA_HOST_FILE="$HOROVODJOB_HOSTFILE" I_MPI_PERHOST="$HOROVODJOB_SLOTS"
# Only the launcher has the private key, so it starts the proxies of all workers itself: no tree.
export I_MPI_HYDRA_BRANCH_COUNT=10000
# Each worker has its own environment and does not need that of the launcher. Intel MPI has only an option for this.
export HYDRA_ENV=none

# hostfile: converts lines `address slots=n` to lines `address:n`.
hostfile() {
    while read -r host slots; do echo "$host:${slots#slots=}"; done
}

# start_ranks ARGS...: replaces the shell by mpiexec, with its other options and the program.
start_ranks() {
    if [ "$HOROVODJOB_MPI" = IntelMPI ]; then
        # With more arguments, Intel MPI allocates memory without limit.
        if [ $# -gt 1000 ]; then
            give_up LauncherFailed "the program and mpi.args have $# words, and Intel MPI takes 1000: put them into a file"
        fi
        # No binding to cores, as with the other implementations.
        set -- -genv I_MPI_PIN "${I_MPI_PIN-0}" "$@"
    fi
    exec mpiexec.hydra -genvnone -n "$ranks" "$@"
}

# end_mpirun: Hydra forwards TERM and waits for its ranks. Ranks that ignore it are killed, as Open MPI does.
end_mpirun() {
    kill -TERM "$mpirun_pid" 2>/dev/null || :
    sleep 1
    kill -KILL "$mpirun_pid" 2>/dev/null || :
}

# loses_workers: Hydra ends with an error if it has lost a worker.
loses_workers() {
    return 1
}
