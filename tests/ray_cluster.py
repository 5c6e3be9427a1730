"""A Ray cluster of several nodes on this machine: a head without CPUs and nodes of one CPU each; it ends with its input.

A process of its own, because Ray forks to start its nodes, which a process in which JAX has threads must not do.
It prints the address and the ids of the nodes, then takes ids on its input: each names a node to kill.
"""

from __future__ import annotations

import json
import sys

from ray.cluster_utils import Cluster

from beeline.bench import ray as bench_ray


def serve(nodes: int) -> None:
    with bench_ray.environment({"RAY_USAGE_STATS_ENABLED": "0"}), bench_ray.no_dashboard():
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": bench_ray.STORE})
        workers = [cluster.add_node(num_cpus=1, object_store_memory=bench_ray.STORE) for _ in range(nodes)]
        cluster.wait_for_nodes()
        by_id = {node.node_id: node for node in workers}
        print(json.dumps({"address": cluster.address, "nodes": list(by_id)}), flush=True)
        for line in sys.stdin:
            cluster.remove_node(by_id[line.strip()], allow_graceful=False)
            print(json.dumps({"killed": line.strip()}), flush=True)
        cluster.shutdown()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
