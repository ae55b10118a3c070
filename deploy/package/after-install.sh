#!/bin/sh
# Runs after the files are in place. dpkg says `configure` and the version before, rpm how many versions there are now.
set -e

case "$1" in
    configure) before=$2 ;;
    1) before= ;;
    [2-9]) before=some ;;
    *) exit 0 ;;
esac

if ! getent passwd terrace >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir /var/lib/terrace --shell /usr/sbin/nologin terrace
fi

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ -z "$before" ]; then
    echo "terrace: not started yet; its settings are in /etc/terrace.toml, and it reserves 32 GiB of /var/lib/terrace unless they say"
    echo "otherwise. To start it now and with the machine: systemctl enable --now terrace"
elif [ -d /run/systemd/system ]; then
    # A stop writes out what is in DRAM, so that the new version starts warm.
    systemctl try-restart terrace.service ||
        echo "terrace: the new version did not start, and changed nothing: journalctl -u terrace says why" >&2
fi
