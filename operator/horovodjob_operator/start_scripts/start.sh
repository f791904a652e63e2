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
# Most shells drop variables with names that they cannot have, such as train.lr from a ConfigMap. The ranks get them from
# this file, as words for env. No line of the environment has a line end here.
(
    umask 077
    {
        tr '\n\000' '\001\n' | sed -n "/^[A-Za-z_][A-Za-z0-9_]*=/!{s/'/'\\\\''/g;s/^/'/;s/\$/'/;p;}" | tr '\n\001' ' \n'
    } </proc/self/environ >/run/horovodjob/other_variables
) 2>/dev/null || :
exec /bin/sh "$@"
