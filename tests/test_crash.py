"""Every node killed in the middle of writes: whatever was acknowledged is there afterwards, and nothing is torn."""

import subprocess
import time

import pytest

from tools.harness.acked_writer import Ledger, Writer
from tools.harness.process import wait_until
from tools.harness.run import run


def test_acknowledged_writes_survive_the_death_of_all_nodes(each_cluster):
    """Rounds on the same blocks, each through another gateway, so that later rounds recover what earlier ones left."""
    ledger = Ledger(blocks=2000)
    for node in each_cluster.nodes:
        writer = Writer(node.uri(), ledger, seed=node.number)
        writer.start()
        enough = 1500 + 250 * node.number
        wait_until(lambda: writer.acks >= enough or not writer.is_alive(), 180, f"{enough} acknowledged writes")
        assert writer.acks >= enough, writer.error
        each_cluster.kill_all()
        writer.join_cut_off()
        each_cluster.start()
        for reader in each_cluster.nodes:
            faults = ledger.check(reader.uri())
            assert not faults, f"after killing under {node.name}, read through {reader.name}: {faults[:5]}"
    assert ledger.acks > 5000


@pytest.mark.slow
def test_fio_verifies_after_the_death_of_all_nodes(cluster, folder):
    """fio, a writer that is not ours: a full pass, then rewrites cut off by SIGKILL. Every block verifies."""
    uri = cluster.first.uri()
    base = ["fio", "--name=v", "--ioengine=nbd", "--size=128M", "--bs=4k", "--iodepth=32", "--verify=crc32c"]
    run(*base, f"--uri={uri}", "--rw=write", "--do_verify=0", cwd=folder)
    for seed in (11, 12):
        words = [*base, f"--uri={uri}", "--rw=randwrite", "--do_verify=0", "--time_based", "--runtime=600"]
        words += [f"--randseed={seed}", "--status-interval=1"]
        rewriting = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        try:
            time.sleep(3)
            assert rewriting.poll() is None, "fio ended before the kill"
            cluster.kill_all()
            try:
                rewriting.wait(5)
            except subprocess.TimeoutExpired:
                pass  # some versions of fio wait for ever on a connection that is gone
        finally:
            rewriting.kill()
            rewriting.wait()
        cluster.start()
        for node in cluster.nodes:
            run(*base, f"--uri={node.uri()}", "--rw=read", "--verify_fatal=1", cwd=folder)


def test_kill_during_the_first_start_leaves_nothing_broken(make_cluster):
    """A node that dies while it makes its device starts over, or says why not; it never serves half a device."""
    cluster = make_cluster(device_size="4GiB")
    cluster.create_volume()
    for pause_s in (0.0, 0.05, 0.2):
        cluster.kill_all()
        for node in cluster.nodes:
            node.start()
        time.sleep(pause_s)
    cluster.wait_healthy()
    run("qemu-io", "-f", "raw", "-c", "write -P 9 0 1M", "-c", "read -P 9 0 1M", cluster.first.uri())
