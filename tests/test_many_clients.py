"""More requests than a gateway takes at a time, from several clients: some wait, none is lost, no node ends."""

from tools.harness.run import run

CLIENTS = 8
DEPTH = 512


def test_requests_beyond_the_gateways_limits_wait(make_cluster):
    """Together the clients of one node are over every limit of its gateway."""
    cluster = make_cluster(device_size="1GiB")
    cluster.create_volume("vol1", "1GiB")
    words = ["fio", "--name=many", "--ioengine=nbd", f"--uri={cluster.first.uri('vol1')}", "--rw=randwrite", "--bs=4k"]
    words += [f"--iodepth={DEPTH}", f"--numjobs={CLIENTS}", "--direct=1", "--group_reporting"]
    words += ["--size=64M", "--io_size=16M"]
    run(*words, within_s=300)
    assert all(node.alive for node in cluster.nodes)
