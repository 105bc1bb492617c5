"""More in flight than a node takes at once: clients wait for room, and all of them are answered."""

import pytest

from tools.harness.run import run

pytestmark = pytest.mark.alone

# 64 clients with 1 MiB each are more than the 32 MiB that one volume may have under way.
CLIENTS, REQUESTS_EACH = 64, 4
DONE_WITHIN_S = 120


@pytest.mark.parametrize("kind", ["write", "read"])
def test_clients_that_wait_for_room_are_answered(shared_cluster, volume, kind):
    def fio(kind, **options):
        words = [f"--{name}={value}" for name, value in options.items()]
        uri = shared_cluster.first.uri(volume)
        run("fio", "--name=t", "--ioengine=nbd", f"--uri={uri}", f"--rw={kind}", *words, within_s=DONE_WITHIN_S)

    if kind == "read":
        # What was never written is answered without room being taken for long.
        fio("write", bs="1M", size="256M", iodepth=4)
    fio(f"rand{kind}", bs="1M", size="256M", numjobs=CLIENTS, number_ios=REQUESTS_EACH, group_reporting=1)
