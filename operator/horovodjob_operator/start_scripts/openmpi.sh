# shellcheck shell=sh disable=SC2034,SC2154 # names are shared with launcher.sh
# Sourced by launcher.sh: starts ranks with Open MPI.
#
# Release 4 reads OMPI_MCA_*, release 5 reads PRTE_MCA_* for its runtime part; each ignores the other's.

mpirun=mpirun package=openmpi-bin

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent=ssh OMPI_MCA_plm_rsh_args="-F $run/ssh_config"
export PRTE_MCA_plm_ssh_agent=ssh PRTE_MCA_plm_ssh_args="-F $run/ssh_config"
# Only the launcher has the private key, so it starts the daemons of all workers itself.
export OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_plm_rsh_num_concurrent=256
export PRTE_MCA_plm_ssh_no_tree_spawn=1 PRTE_MCA_plm_ssh_num_concurrent=256
export OMPI_MCA_oob_tcp_if_include="$interface" OMPI_MCA_btl_tcp_if_include="$interface"
export PRTE_MCA_prte_if_include="$interface"
# The daemon of release 4 on a worker leaves its ssh session, so ssh does not notice that the worker is unreachable;
# by default the connection of the daemon would take eight minutes.
export OMPI_MCA_oob_tcp_keepalive_time=10 OMPI_MCA_oob_tcp_keepalive_intvl=5 OMPI_MCA_oob_tcp_keepalive_probes=3
export PRTE_MCA_oob_tcp_keepalive_time=10 PRTE_MCA_oob_tcp_keepalive_intvl=5 PRTE_MCA_oob_tcp_keepalive_probes=3
export OMPI_MCA_orte_keep_fqdn_hostnames=1 PRTE_MCA_prte_keep_fqdn_hostnames=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=^openib
# Ranks that wait yield the core: MPI polls, and on shared cores that costs a third of the speed.
if [ "${AZ_BATCHAI_NUM_GPUS:-0}" = 0 ]; then export OMPI_MCA_mpi_yield_when_idle=1; fi

# hostfile: Open MPI reads lines `address slots=n`.
hostfile() {
    cat
}

# start_ranks ARGS...: replaces the shell by mpirun, with its other options and the program.
start_ranks() {
    exec mpirun -np "$ranks" --hostfile "$HOROVODJOB_HOSTFILE" --bind-to none --map-by slot \
        --wdir "$HOROVODJOB_WORKDIR" "$@"
}

# end_mpirun: Open MPI forwards TERM to its ranks, and kills them one second later.
end_mpirun() {
    kill -TERM "$mpirun_pid" 2>/dev/null || :
}

# loses_workers: whether mpirun can end with exit code 0 although it has lost the daemon of a worker and its ranks.
loses_workers() {
    case $(mpirun --version) in *"(Open MPI) 5."*) ;; *) return 1 ;; esac
}
