#!/bin/sh
# mpirun starts this as a rank: it runs the program, with the prefix of its arguments removed, and ends as it ended.
#
# When one rank has ended with an error, mpirun kills the others within two seconds. After TERM each rank needs its own
# time to save its state, so mpirun does not see the end of one until mpirun itself is ended.
run=/run/horovodjob
mark=$run/ranks/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
mpirun_has_ended=
# mpirun sends TERM to the whole process group. This shell must outlive the program, or mpirun would lose track of it.
trap 'mpirun_has_ended=1' TERM
words='' number=0
while [ "$number" -lt $# ]; do
    number=$((number + 1))
    words="$words \"\${$number#+}\""
done
other=$(cat "$run/other_variables" 2>/dev/null)
{ echo running >"$mark"; } 2>/dev/null
# Only Open MPI gives each rank an empty input.
(eval "exec ${other:+env $other} $words" </dev/null)
code=$?
if [ "$code" = 0 ]; then { echo ended >"$mark"; } 2>/dev/null; fi
while [ -z "$mpirun_has_ended" ] && [ -e "$run/signaled" ]; do sleep 0.1; done
trap - TERM
signal=
if [ "$code" -gt 128 ] && [ "$code" -le 192 ]; then signal=$((code - 128)); fi
if [ -n "${PMI_FD:-}" ]; then
    # Hydra ignores a rank that fails before MPI_Init, and adds the codes of the ranks that it kills to that of the
    # failed one. It ends the job with this code if a rank requests it in the way of MPI_Abort.
    if [ "$code" != 0 ] && [ -z "$mpirun_has_ended" ]; then
        echo "rank $PMI_RANK on $HOROVODJOB_POD ended with exit code $code${signal:+, killed by signal $signal}" >&2
        # Other shells do not support file descriptors of two digits.
        bash -c 'printf "cmd=abort exitcode=%s\n" "$1" >&"$PMI_FD"' bash "$code"
    fi
# mpirun distinguishes a rank that was killed by a signal from one that failed. A core dump would be that of this shell.
elif [ -n "$signal" ]; then
    # shellcheck disable=SC3045 # every shell has it, POSIX or not
    ulimit -c 0
    kill "-$signal" $$
fi
exit "$code"
