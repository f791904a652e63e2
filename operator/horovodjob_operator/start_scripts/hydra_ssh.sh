#!/bin/sh
# What Hydra starts in the place of ssh. It does not notice that a connection has ended, and would wait for that worker
# for ever; without Hydra, its proxies on the other workers end their ranks.
code=0
ssh -F /run/horovodjob/ssh_config "$@" || code=$?
# 255 is not the proxy's code but ssh's own.
if [ "$code" = 255 ]; then
    for host; do
        case $host in -*) ;; *) break ;; esac
    done
    echo "the connection to worker $host has ended" >&2
    kill -KILL "$PPID"
fi
exit "$code"
