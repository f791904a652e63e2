#!/bin/sh
# What mpirun starts as a rank: runs the program, whose words the launcher has marked, and ends as it ended.
#
# When one rank has ended with an error, mpirun kills the others within two seconds. Ranks that were told to end need
# each their own time to save what they have, so the end of one is kept from mpirun until mpirun itself is ended.
run=/run/horovodjob
over=
# mpirun tells the whole process group. This one stays as long as the program, or mpirun would lose sight of that.
trap 'over=1' TERM
words='' number=0
while [ "$number" -lt $# ]; do
    number=$((number + 1))
    words="$words \"\${$number#+}\""
done
# Only Open MPI gives each rank an empty input.
(eval "exec $words" </dev/null)
code=$?
while [ -z "$over" ] && [ -e "$run/told" ]; do sleep 0.1; done
trap - TERM
signal=
if [ "$code" -gt 128 ] && [ "$code" -le 192 ]; then signal=$((code - 128)); fi
if [ -n "${PMI_FD:-}" ]; then
    # Hydra takes no notice of a rank that fails before MPI_Init, and adds the codes of those that it kills to that of
    # the one that failed. It ends the job, with this code, for a rank that asks for that as MPI_Abort does.
    if [ "$code" != 0 ] && [ -z "$over" ]; then
        echo "rank $PMI_RANK on $HOROVODJOB_POD ended with exit code $code${signal:+, killed by signal $signal}" >&2
        # Other shells know no file descriptor of two digits.
        bash -c 'printf "cmd=abort exitcode=%s\n" "$1" >&"$PMI_FD"' bash "$code"
    fi
# mpirun tells a rank that was killed by a signal from one that failed. A core would only be this shell's.
elif [ -n "$signal" ]; then
    # shellcheck disable=SC3045 # every shell has it, POSIX or not
    ulimit -c 0
    kill "-$signal" $$
fi
exit "$code"
