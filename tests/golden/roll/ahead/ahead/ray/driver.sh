#!/bin/sh
# Run a command in the cluster of task ahead, on node n0: driver.sh COMMAND ...
set -eu
export RAY_ADDRESS=10.0.0.1:10000
python3 -c 'import sys, time, ray
wanted, last = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
ray.init(address=sys.argv[3], log_to_driver=False)
while (there := ray.cluster_resources().get("GPU", 0)) != wanted:
    if time.monotonic() > last:
        sys.exit(f"the cluster has {there:g} GPUs, {wanted} are planned")
    time.sleep(1)
' 8 300 10.0.0.1:10000
exec "$@"
