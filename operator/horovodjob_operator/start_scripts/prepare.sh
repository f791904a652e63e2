# shellcheck shell=sh disable=SC2154 # names are shared with the sourcing script
# Sourced by worker.sh, and by launcher.sh if the launcher hosts ranks: runs spec.preparation.

# any_runs PIDS: whether one of the processes runs. A single kill for all of them fails if one has ended.
any_runs() {
    for pid in $1; do
        if kill -0 "$pid" 2>/dev/null; then return 0; fi
    done
    return 1
}

# prepare COMMAND: runs spec.preparation, and copies its output to the log of the container and to files.
prepare() {
    logs=${HOROVODJOB_LOGS:-$AZ_BATCHAI_JOB_TEMP}
    out=$logs/stdout-job_prep-$HOROVODJOB_POD.txt
    err=$logs/stderr-job_prep-$HOROVODJOB_POD.txt
    begin_files "$out" "$err" || say "the preparation has no log files"
    say "preparation starts"
    mkfifo "$run/prepare-out" "$run/prepare-err"
    (umask 022 && exec tee -a "$out") <"$run/prepare-out" &
    copies=$!
    (umask 022 && exec tee -a "$err") <"$run/prepare-err" >&2 &
    copies="$copies $!"
    (umask "$HOROVODJOB_UMASK" && exec /bin/sh -c "$1") </dev/null >"$run/prepare-out" 2>"$run/prepare-err" &
    prepare_pid=$!
    (sleep "$HOROVODJOB_PREPARATION_TIMEOUT" && : >"$run/prepare-late" && kill -KILL "$prepare_pid") 2>/dev/null &
    watchdog=$!
    code=0
    wait "$prepare_pid" || code=$?
    kill "$watchdog" 2>/dev/null || :
    # Background processes of the preparation can keep its output open without limit. After a failure the last lines
    # justify a longer wait: on a busy node their copy can take seconds.
    turns=0
    most=10
    [ "$code" = 0 ] || most=100
    while [ "$turns" -lt "$most" ] && any_runs "$copies"; do
        sleep 0.1
        turns=$((turns + 1))
    done
    last=$(tail -q -n 5 "$err" "$out" 2>/dev/null | grep -v '^--- attempt ' || :)
    if [ -e "$run/prepare-late" ]; then
        give_up PreparationFailed "the preparation did not end within $HOROVODJOB_PREPARATION_TIMEOUT s: $last"
    fi
    if [ "$code" != 0 ]; then give_up PreparationFailed "the preparation ended with exit code $code: $last"; fi
    say "preparation ended"
}
