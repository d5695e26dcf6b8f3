#!/bin/sh
# Stop the Ray cluster of task grpo on node n0, and nothing else.
set -eu
read -r pid started < /var/tmp/libra-plan/7db3b0c2/n0.pid
if [ "$(cut -d " " -f 22 "/proc/$pid/stat" 2>/dev/null)" != "$started" ]; then
    echo "process $pid is not running any more" >&2; exit 0
fi
kill -TERM "$pid"
left=120
while [ "$(cut -d " " -f 22 "/proc/$pid/stat" 2>/dev/null)" = "$started" ]; do
    if [ "$left" -le 0 ]; then echo "process $pid still runs" >&2; exit 1; fi
    sleep 1; left=$((left - 1))
done
