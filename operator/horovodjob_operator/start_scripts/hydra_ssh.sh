#!/bin/sh
# Hydra starts this instead of ssh. Hydra does not notice that a connection has ended, and would wait for that worker
# without limit. When Hydra itself ends, its proxies on the other workers end their ranks.
code=0
ssh -F /run/horovodjob/ssh_config "$@" || code=$?
# ssh returns 255 for its own errors; other codes are those of the proxy.
if [ "$code" = 255 ]; then
    for host; do
        case $host in -*) ;; *) break ;; esac
    done
    echo "the connection to worker $host has ended" >&2
    kill -KILL "$PPID"
fi
exit "$code"
