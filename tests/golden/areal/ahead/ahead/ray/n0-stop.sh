#!/bin/sh
# Stop the Ray cluster of task ahead on node n0, and nothing else.
set -eu
read -r pid started < /var/tmp/libra-plan/563629f6/n0.pid
runs() {
    state=$(sed 's/.*) //' /proc/$pid/stat | cut -d ' ' -f 1,20 2>/dev/null) || return 1
    [ "${state#* }" = "$started" ] && [ "${state%% *}" != Z ]
}
if ! runs; then echo "process $pid is not running any more" >&2; exit 0; fi
kill -TERM "$pid"
left=300
while runs; do
    if [ "$left" -le 0 ]; then echo "process $pid still runs" >&2; exit 1; fi
    sleep 1; left=$((left - 1))
done
