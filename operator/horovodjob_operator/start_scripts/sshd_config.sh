# shellcheck shell=sh disable=SC2154 # names are shared with worker.sh
# Sourced by worker.sh: the keys and the options of the ssh server.

# Root owns the files of a Secret, but ssh requires that its user owns the keys and nobody else can read them.
cp "$etc/ssh_host_ed25519_key" "$etc/authorized_keys" "$run/"
chmod 600 "$run/ssh_host_ed25519_key" "$run/authorized_keys"
if [ "$(id -u)" = 0 ]; then mkdir -p /run/sshd && chmod 755 "$run" && chmod 644 "$run/authorized_keys"; fi

cat >"$run/sshd_config" <<CONFIG
Port ${HOROVODJOB_SSH_PORT}
HostKey $run/ssh_host_ed25519_key
AuthorizedKeysFile $run/authorized_keys
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AcceptEnv HOROVODJOB_ATTEMPT
ForceCommand /bin/sh $etc/session.sh
AllowTcpForwarding no
AllowAgentForwarding no
X11Forwarding no
PermitTTY no
PrintMotd no
UsePAM no
UseDNS no
StrictModes no
PidFile none
LogLevel ERROR
MaxStartups 1024
MaxSessions 64
ClientAliveInterval 15
ClientAliveCountMax 4
CONFIG
