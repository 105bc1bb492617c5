"""A host that has a path by each node of a cluster: nodes stop under it, one after the other, and come back."""

import time

from tools.harness.process import wait_until


def writer(cluster, stopped=None):
    """The node that carries out what the host writes, as one says that is not `stopped`; `None` where none does now."""
    asked = next(node for node in cluster.nodes if node is not stopped)
    entries = cluster.json("volume", "show", "vol1", node=asked)["attachments"]
    names = [entry["node_name"] for entry in entries if entry["in_use"] and not entry["reads_only"]]
    return next((node for node in cluster.nodes if node.name in names), None)


def stop_writers(cluster, within_s):
    """Stops the node that writes, waits for another one to write, and brings the former back: killed, then standing
    still, then killed. Yields after each."""
    for stop in ("kill", "pause", "kill"):
        node = wait_until(lambda: writer(cluster), 30, "a node that writes")
        node.kill() if stop == "kill" else node.process.pause()
        started = time.monotonic()
        others = lambda node=node: writer(cluster, node) not in (None, node)  # noqa: E731
        wait_until(others, within_s, "another node to write")
        print(f"{stop} of {node.name}: another node writes after {time.monotonic() - started:.1f} s")
        time.sleep(2)
        node.start() if stop == "kill" else node.process.resume()
        yield
