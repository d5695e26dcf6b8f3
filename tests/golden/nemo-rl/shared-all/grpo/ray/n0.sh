#!/bin/sh
# Ray cluster of task grpo, generation 1: node n0.
# It stays in the foreground; the head comes first. Nodes need one token (Ray 2.60 on).
set -eu
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export LIBRA_PLAN_TASK=grpo
export LIBRA_PLAN_NODE=n0
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
mkdir -p /var/tmp/libra-plan/7db3b0c2
state=$(sed 's/.*) //' /proc/$$/stat | cut -d ' ' -f 1,20)
echo "$$ ${state#* }" > /var/tmp/libra-plan/7db3b0c2/n0.pid
exec ray start --block --disable-usage-stats --head --port 10000 --ray-client-server-port 10001 --dashboard-host 127.0.0.1 --dashboard-port 10002 --node-ip-address 10.0.0.1 --num-gpus 8 --num-cpus 96 --node-manager-port 10003 --object-manager-port 10004 --runtime-env-agent-port 10005 --dashboard-agent-grpc-port 10006 --dashboard-agent-listen-port 10007 --metrics-export-port 10008 --min-worker-port 10012 --max-worker-port 10199 --temp-dir /var/tmp/libra-plan/7db3b0c2 --labels libra-plan.task=grpo,libra-plan.node=n0 --resources '{"libra-plan-n0": 1}' --object-store-memory 314572800000
