#!/bin/sh
# The command of a pod: `sh -c START DIGEST SCRIPT ARGUMENTS...` runs the script if all scripts beside it are the operator's.
refuse() {
    printf 'horovodjob: %s\n' "$*" >&2
    exit 1
}
command -v sha256sum >/dev/null || refuse 'the image has no sha256sum, which verifies the start scripts: install coreutils'
found=$(cd "${1%/*}" && sha256sum -- *.sh *.py | LC_ALL=C sort | sha256sum)
[ "${found%% *}" = "$0" ] ||
    refuse "the Secret horovodjob-scripts-$0 does not have the start scripts of the operator: delete it, and restart the job"
exec /bin/sh "$@"
