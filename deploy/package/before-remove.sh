#!/bin/sh
# Runs before the files go. dpkg says `remove` or `upgrade`, rpm how many versions are left.
set -e

case "$1" in
    remove | 0)
        if [ -d /run/systemd/system ]; then
            systemctl disable --now terrace.service
        fi
        ;;
esac
