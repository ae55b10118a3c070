#!/bin/sh
# Runs after the files are gone. dpkg says `remove`, then `purge` where settings are to go too; rpm how many versions
# are left. Tiers are never removed: they may be a drive, or be wanted by the next version.
set -e

reload() {
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
    fi
}

# The tiers that the settings name, and the service's own folder.
stays() {
    {
        sed -n '/^[[:space:]]*#/!s/"ssd:\([^":,]*\)/\n\1\n/gp' /etc/terrace.toml 2>/dev/null | grep '^/' || true
        [ ! -e /var/lib/terrace ] || echo /var/lib/terrace
    } | sort -u | while read -r path; do
        [ ! -e "$path" ] || echo "terrace: what the cache holds is left in $path"
    done
}

case "$1" in
    remove | 0)
        reload
        stays
        ;;
    purge)
        if getent passwd terrace >/dev/null; then
            userdel terrace
        fi
        stays
        ;;
esac
