# shellcheck shell=sh
# Sourced by session.sh and launcher.sh: checks that spec.script exists.

# require_script: fails if the script does not exist, with a sentence that lists the nearest existing directory.
require_script() {
    if [ -z "${HOROVODJOB_SCRIPT:-}" ] || [ -e "$HOROVODJOB_SCRIPT" ]; then return 0; fi
    directory=$(dirname "$HOROVODJOB_SCRIPT") missing=
    while [ ! -d "$directory" ]; do
        missing="$directory does not exist, and "
        directory=$(dirname "$directory")
    done
    # shellcheck disable=SC2012 # for people to read
    entries=$(ls -Aq "$directory" 2>/dev/null | wc -l)
    # shellcheck disable=SC2012
    contents=$(ls -Aqp "$directory" 2>/dev/null | head -n 20 | tr "\n" " " | cut -c 1-1500)
    if [ "$entries" -gt 20 ]; then contents="$contents... ($entries entries)"; fi
    echo "there is no file $HOROVODJOB_SCRIPT: $missing$directory contains ${contents:-nothing}"
    return 1
}
