# shellcheck shell=sh disable=SC2154 # names are shared with launcher.sh
# Sourced by launcher.sh: the keys and the options of the ssh client.

cp "$etc/id_ed25519" "$etc/known_hosts" "$run/"
chmod 600 "$run/id_ed25519"
# sntrup761, the key exchange of ssh 9.0 to 9.8, takes a tenth of a second of a processor for each connection, and the
# launcher makes two to each worker. ML-KEM of later releases is fast.
case $(ssh -Q kex 2>/dev/null) in *sntrup761*) exchange='KexAlgorithms -sntrup761*' ;; *) exchange='' ;; esac
# All workers have the same host key, so a worker that is recreated with another address is known.
cat >"$run/ssh_config" <<CONFIG
Host *
    Port ${HOROVODJOB_SSH_PORT}
    IdentityFile $run/id_ed25519
    IdentitiesOnly yes
    BatchMode yes
    UserKnownHostsFile $run/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    HostKeyAlias horovodjob
    HostKeyAlgorithms ssh-ed25519
    CheckHostIP no
    ConnectTimeout 15
    ServerAliveInterval 5
    ServerAliveCountMax 3
    SendEnv HOROVODJOB_ATTEMPT
    LogLevel ERROR
    $exchange
CONFIG
