#!/bin/sh
# What mpirun starts as a rank: runs the program, and ends as it ended.
#
# When one rank has ended with an error, mpirun kills the others within two seconds. Ranks that were told to end need
# each their own time to save what they have, so the end of one is kept from mpirun until mpirun itself is ended.
run=/run/horovodjob
over=
# mpirun tells the whole process group. This one stays as long as the program, or mpirun would lose sight of that.
trap 'over=1' TERM
(exec "$@")
code=$?
while [ -z "$over" ] && [ -e "$run/told" ]; do sleep 0.1; done
trap - TERM
# mpirun tells a rank that was killed by a signal from one that failed. A core would only be this shell's.
if [ "$code" -gt 128 ] && [ "$code" -le 192 ]; then
    # shellcheck disable=SC3045 # every shell has it, POSIX or not
    ulimit -c 0
    kill "-$((code - 128))" $$
fi
exit "$code"
