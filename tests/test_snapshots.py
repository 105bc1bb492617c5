"""Snapshots through the command line and NBD: what they hold, what becomes of their space, and file systems on them."""

import calendar
import os
import random
import subprocess
import threading
import time

import pytest

from tools.harness.cluster import CliError
from tools.harness.filesystems import CHECK, MAKE, Attached, kernel_mounts, tree_digests
from tools.harness.nbd import Client, NbdError
from tools.harness.process import wait_until
from tools.harness.run import run

BLOCK, MIB, GIB = 4096, 2**20, 2**30


@pytest.fixture(scope="module")
def cluster(module_cluster):
    return module_cluster(device_size="2GiB")


@pytest.fixture
def make_volume(cluster):
    made = []

    def make(size="256MiB", *options):
        name = f"s{len(made)}-{time.monotonic_ns() % 10**9}"
        cluster.cli("volume", "create", name, size, *options)
        made.append(name)
        return name

    yield make
    for volume in cluster.json("volume", "list"):
        if volume["name"] in made or volume["name"].startswith("clone-of-"):
            cluster.delete_volume(volume["name"])


def noise(number, length=BLOCK):
    return random.Random(number).randbytes(length)


def clone(cluster, source, name):
    """A clone that every node serves: nodes hear of a volume a moment after it is made."""
    cluster.cli("volume", "clone", source, name)
    cluster.wait_healthy()


def refused(cluster, *arguments):
    with pytest.raises(CliError) as error:
        cluster.cli(*arguments)
    assert "panicked" not in error.value.stderr
    return error.value.stderr


def snapshots_of(cluster, volume):
    return [snapshot["name"] for snapshot in cluster.json("snapshot", "list", volume)]


def unused(cluster, volume):
    """Waits until nobody has the volume."""
    wait_until(lambda: not cluster.json("volume", "show", volume)["attachments"], 20, f"{volume} to be given back")


def test_a_snapshot_stays_what_it_was(cluster, make_volume):
    volume = make_volume()
    one, two, three = cluster.nodes
    with Client(one.uri(volume)) as client:
        client.write(0, noise(1))
        client.write(100 * MIB, noise(2))
        cluster.cli("snapshot", "create", f"{volume}@first", node=two)
        client.write(0, noise(3))
        client.trim(100 * MIB, BLOCK)
        cluster.cli("snapshot", "create", f"{volume}@second")
        client.write(0, noise(4))
        for uri in (one.uri, lambda name: three.uri(name, tcp=True)):
            with Client(uri(f"{volume}@first")) as old:
                assert old.read(0, BLOCK) == noise(1) and old.read(100 * MIB, BLOCK) == noise(2)
                with pytest.raises(NbdError):
                    old.write(0, noise(9))
                assert old.read(0, BLOCK) == noise(1)
            with Client(uri(f"{volume}@second")) as old:
                assert old.read(0, BLOCK) == noise(3) and old.read(100 * MIB, BLOCK) == bytes(BLOCK)
        assert client.read(0, BLOCK) == noise(4)
    shown = cluster.json("snapshot", "show", f"{volume}@first")
    assert shown["size_bytes"] == 256 * MIB and any(at["uri"].endswith(f"/{volume}@first") for at in shown["endpoints"])
    assert snapshots_of(cluster, volume) == ["first", "second"]
    assert "first" in cluster.cli("snapshot", "list") and "snapshots 2" in cluster.cli("volume", "show", volume)
    assert "exists already" in refused(cluster, "snapshot", "create", f"{volume}@first")
    assert "snapshot list" in refused(cluster, "snapshot", "show", f"{volume}@third")
    assert "--snapshots" in refused(cluster, "volume", "delete", volume, "--yes", "--force")


def test_reverts_and_clones(cluster, make_volume):
    volume = make_volume()
    with Client(cluster.first.uri(volume)) as client:
        client.write(MIB, noise(1))
        cluster.cli("snapshot", "create", f"{volume}@good")
        client.write(MIB, noise(2))
        assert "--force" in refused(cluster, "snapshot", "revert", f"{volume}@good")
        assert "--force" in refused(cluster, "volume", "delete", volume, "--yes", "--snapshots")
        clone(cluster, volume, "clone-of-present")
        cluster.cli("volume", "create", "clone-of-good", "512MiB", "--from", f"{volume}@good")
        client.write(MIB, noise(3))
    unused(cluster, volume)
    kept = cluster.json("snapshot", "revert", f"{volume}@good")["kept"]["name"]
    for name, expected in ((volume, 1), ("clone-of-good", 1), ("clone-of-present", 2), (f"{volume}@{kept}", 3)):
        with Client(cluster.nodes[1].uri(name)) as client:
            assert client.read(MIB, BLOCK) == noise(expected), name
    # Clones need their source no more, and are written by themselves.
    unused(cluster, volume)
    cluster.cli("volume", "delete", volume, "--yes", "--snapshots")
    for name, expected in (("clone-of-good", 1), ("clone-of-present", 2)):
        with Client(cluster.nodes[2].uri(name)) as client:
            assert client.read(MIB, BLOCK) == noise(expected)
            client.write(MIB, noise(expected + 10))
            assert client.read(MIB, BLOCK) == noise(expected + 10)
    with Client(cluster.first.uri("clone-of-good")) as client:
        assert client.size == 512 * MIB and client.read(500 * MIB, BLOCK) == bytes(BLOCK)


def test_two_volumes_at_one_instant(cluster, make_volume):
    """A write to the second volume begins when that to the first is acknowledged: no snapshot has the second alone."""
    one, two = make_volume("64MiB"), make_volume("64MiB")
    stop, started = threading.Event(), threading.Event()

    def work():
        with Client(cluster.first.uri(one)) as first, Client(cluster.nodes[1].uri(two)) as second:
            number = 0
            while not stop.is_set():
                number += 1
                first.write(0, number.to_bytes(8, "big") * 512)
                second.write(32 * MIB, number.to_bytes(8, "big") * 512)
                started.set()

    worker = threading.Thread(target=work)
    worker.start()
    assert started.wait(30)
    try:
        names = []
        for number in range(8):
            cluster.cli("snapshot", "create", f"{one}@{number}", "--with", two)
            names.append(str(number))
    finally:
        stop.set()
        worker.join()
    seen = []
    for name in names:
        with Client(cluster.nodes[2].uri(f"{one}@{name}")) as first:
            a = int.from_bytes(first.read(0, 8), "big")
        with Client(cluster.nodes[2].uri(f"{two}@{name}")) as second:
            b = int.from_bytes(second.read(32 * MIB, 8), "big")
        assert a - 1 <= b <= a, f"snapshot {name} has write {b} of the second volume and {a} of the first"
        seen.append(a)
    assert seen == sorted(seen) and seen[-1] > seen[0] > 0


def test_snapshots_under_a_verified_load(cluster, make_volume):
    volume = make_volume()
    command = ["fio", "--name=load", "--ioengine=nbd", f"--uri={cluster.first.uri(volume)}", "--rw=randwrite"]
    command += ["--bs=4k", "--iodepth=16", "--size=64m", "--io_size=256m", "--time_based=0", "--runtime=15"]
    command += ["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--randrepeat=0", "--verify_state_save=0"]
    load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    count = 0
    while load.poll() is None and count < 20:
        cluster.cli("snapshot", "create", f"{volume}@{count}")
        if count >= 3:
            cluster.cli("snapshot", "delete", f"{volume}@{count - 2}")
        count += 1
        time.sleep(0.2)
    output = load.communicate(timeout=60)[0]
    assert load.returncode == 0, output
    assert count >= 3, "the load was over at once"
    with Client(cluster.nodes[1].uri(f"{volume}@0")) as client:
        assert len(client.read(0, MIB)) == MIB


def test_deleting_in_any_order_gives_back_what_only_that_held(make_cluster):
    cluster = make_cluster()
    cluster.create_volume("v", "256MiB")
    copies = 2
    # Snapshot n holds MiB n as it was, which the next one has overwritten: 1 MiB a snapshot that only it has.
    count = 6
    with Client(cluster.first.uri("v")) as client:
        for number in range(count):
            client.write(number * MIB, noise(number, MIB))
        for number in range(count):
            cluster.cli("snapshot", "create", f"v@{number}")
            client.write(number * MIB, noise(100 + number, MIB))
    full = 2 * count * MIB * copies
    wait_until(lambda: cluster.used_bytes() == full, 30, "the use of what was written")
    # MiB n of before is in snapshots 0 to n: it ends with the last of those.
    left = set(range(count))
    for number in (3, 0, 5, 1, 4, 2):
        before, freed = cluster.used_bytes(), freed_by(cluster, f"v@{number}")
        told = f"{freed // MIB}MiB will come back" if freed else "still needed"
        assert told in cluster.cli("snapshot", "delete", f"v@{number}")
        left.remove(number)
        held = sum(1 for piece in range(count) if any(snapshot <= piece for snapshot in left))
        # And MiB n of afterwards is in the volume.
        expected = (count + held) * MIB * copies
        wait_until(lambda: cluster.used_bytes() == expected, 120, f"space after snapshot {number}")
        assert before - expected == freed, "what was foretold"
        for snapshot in left:
            with Client(cluster.nodes[1].uri(f"v@{snapshot}")) as client:
                for piece in range(count):
                    expected_noise = noise(piece if piece >= snapshot else 100 + piece, MIB)
                    assert client.read(piece * MIB, MIB) == expected_noise, f"MiB {piece} of snapshot {snapshot}"
    with Client(cluster.nodes[1].uri("v")) as client:
        for piece in range(count):
            assert client.read(piece * MIB, MIB) == noise(100 + piece, MIB)
    cluster.stop()
    assert cluster.unsound() == 0


def test_what_a_deletion_gives_back_is_foretold(make_cluster):
    """Random writes and trims, a revert and a clone: each deletion gives back exactly what was measured before."""
    cluster = make_cluster()
    cluster.create_volume("v", "32MiB")
    draw = random.Random(11)
    images = {"now": bytearray(32 * MIB)}
    with Client(cluster.first.uri("v")) as client:
        for number in range(4):
            change(draw, client, images["now"], 30)
            cluster.cli("snapshot", "create", f"v@{number}")
        change(draw, client, images["now"], 30)
    unused(cluster, "v")
    kept = cluster.json("snapshot", "revert", "v@1")["kept"]["name"]
    with Client(cluster.first.uri("v")) as client:
        change(draw, client, bytearray(32 * MIB), 20)
    clone(cluster, "v@2", "c")
    with Client(cluster.first.uri("c")) as client:
        change(draw, client, bytearray(32 * MIB), 20)
    settle(cluster)
    # Two lie on snapshot 1 (snapshot 2 and the volume) and on snapshot 2 (snapshot 3 and the clone).
    assert freed_by(cluster, "v@1") == 0 and "frees    0B" in cluster.cli("snapshot", "show", "v@1")
    total = cluster.used_bytes()
    given_back = 0
    for name in ("0", "2", "3", "1", kept):
        before, freed = cluster.used_bytes(), freed_by(cluster, f"v@{name}")
        assert cluster.json("snapshot", "delete", f"v@{name}")["freed_bytes"] == [freed]
        wait_until(lambda: cluster.used_bytes() == before - freed, 120, f"{freed} bytes of {name} to come back")
        settle(cluster)
        assert cluster.used_bytes() == before - freed, f"the deletion of {name} gave back something else"
        given_back += freed
    assert 0 < given_back < total
    cluster.stop()
    assert cluster.unsound() == 0


def change(draw, client, image, count):
    """Random writes, zeros and trims, on a volume and on an image of it."""
    for _ in range(count):
        offset = draw.randrange(len(image))
        length = min(draw.choice((100, BLOCK, 3 * BLOCK, 20_000, 200_000)), len(image) - offset)
        kind = draw.randrange(4)
        if kind == 0:
            offset, length = offset // BLOCK * BLOCK, max(length // BLOCK, 1) * BLOCK
            client.trim(offset, length)
            image[offset : offset + length] = bytes(length)
        elif kind == 1:
            client.write_zeroes(offset, length)
            image[offset : offset + length] = bytes(length)
        else:
            data = draw.randbytes(length)
            client.write(offset, data)
            image[offset : offset + length] = data
    client.flush()


def freed_by(cluster, snapshot):
    shown = cluster.json("snapshot", "show", snapshot)
    assert "freed_missing" not in shown, shown
    return shown["freed_bytes"]


def settle(cluster):
    """Waits until what was deleted is gone: no space comes back any more."""
    wait_until(lambda: cluster.json("space")["cluster"]["leaving_bytes"] == 0, 120, "deleted layers to go")
    used = None
    while used != (used := cluster.used_bytes()):
        time.sleep(2)


def read_range(client, offset, length):
    return b"".join(client.read(at, min(MIB, offset + length - at)) for at in range(offset, offset + length, MIB))


def applied(cluster, image, before, after):
    """What an incremental copy makes of an image of `before`: it reads from `after` only what the ranges say."""
    diff = cluster.json("snapshot", "diff", before, after)
    image = bytearray(image[: diff["size_bytes"]].ljust(diff["size_bytes"], b"\0"))
    end = 0
    with Client(cluster.first.uri(after)) as client:
        for part in diff["ranges"]:
            offset, length = part["offset_bytes"], part["length_bytes"]
            assert offset >= end and length > 0 and offset % BLOCK == length % BLOCK == 0, part
            end = offset + length
            image[offset:end] = read_range(client, offset, length) if part["kind"] == "data" else bytes(length)
    assert end <= diff["size_bytes"]
    lengths = {kind: sum(r["length_bytes"] for r in diff["ranges"] if r["kind"] == kind) for kind in ("data", "zero")}
    assert (diff["data_bytes"], diff["zero_bytes"]) == (lengths["data"], lengths["zero"])
    return bytes(image)


def check_diffs(cluster, images, pairs):
    for before, after in pairs:
        assert applied(cluster, images[before], before, after) == images[after], f"from {before} to {after}"


def test_a_diff_names_all_that_an_incremental_copy_needs(cluster, make_volume):
    volume = make_volume("32MiB")
    draw = random.Random(7)
    now = bytearray(32 * MIB)
    images = {}

    def snap(name):
        cluster.cli("snapshot", "create", f"{volume}@{name}")
        images[f"{volume}@{name}"] = bytes(now)

    with Client(cluster.first.uri(volume)) as client:
        for name in "abcd":
            change(draw, client, now, 25)
            snap(name)
        change(draw, client, now, 25)
        images[volume] = bytes(now)
        names = sorted(images)
        check_diffs(cluster, images, [(a, b) for a in names for b in names if a != volume])
        # One in between is deleted: right after that, and when its layer has been merged.
        cluster.cli("snapshot", "delete", f"{volume}@b")
        del images[f"{volume}@b"]
        pairs = [(f"{volume}@a", f"{volume}@c"), (f"{volume}@c", f"{volume}@a"), (f"{volume}@a", volume)]
        check_diffs(cluster, images, pairs)
        settle(cluster)
        check_diffs(cluster, images, pairs)
    unused(cluster, volume)
    # On another branch; the former present is a snapshot now.
    kept = cluster.json("snapshot", "revert", f"{volume}@c")["kept"]["name"]
    images[f"{volume}@{kept}"] = images[volume]
    now = bytearray(images[f"{volume}@c"])
    with Client(cluster.first.uri(volume)) as client:
        change(draw, client, now, 25)
        snap("e")
    images[volume] = bytes(now)
    names = [f"{volume}@{name}" for name in ("a", "c", "d", kept, "e")]
    check_diffs(cluster, images, [(a, b) for a in names for b in [*names, volume]])
    # Smaller, then larger again: what was cut off is zeros.
    unused(cluster, volume)
    cluster.cli("volume", "resize", volume, "16MiB", "--shrink")
    now = now[: 16 * MIB]
    snap("small")
    cluster.cli("volume", "resize", volume, "24MiB")
    now += bytes(8 * MIB)
    cluster.wait_healthy()
    with Client(cluster.first.uri(volume)) as client:
        change(draw, client, now, 10)
        snap("larger")
    names = [f"{volume}@{name}" for name in ("d", "e", "small", "larger")]
    check_diffs(cluster, images, [(a, b) for a in names for b in names])
    # Of a clone against its source, and back.
    clone(cluster, f"{volume}@e", "clone-of-e")
    with Client(cluster.first.uri("clone-of-e")) as client:
        change(draw, client, now := bytearray(images[f"{volume}@e"]), 10)
    cluster.cli("snapshot", "create", "clone-of-e@x")
    images["clone-of-e@x"] = bytes(now)
    pairs = [(f"{volume}@d", "clone-of-e@x"), ("clone-of-e@x", f"{volume}@larger"), (f"{volume}@e", "clone-of-e")]
    images["clone-of-e"] = images["clone-of-e@x"]
    check_diffs(cluster, images, pairs)


def test_a_diff_names_no_more_than_was_written(cluster, make_volume):
    volume = make_volume("8GiB")
    with Client(cluster.first.uri(volume)) as client:
        client.write(0, noise(1, 8 * MIB))
        cluster.cli("snapshot", "create", f"{volume}@a")
        client.write(MIB, noise(2, 3 * MIB))
        client.write(5 * GIB + BLOCK, noise(3))
        client.trim(7 * MIB, MIB)
        cluster.cli("snapshot", "create", f"{volume}@b")
    shown = cluster.cli("snapshot", "diff", f"{volume}@a", f"{volume}@b").splitlines()
    assert [line.split() for line in shown[:4]] == [
        ["OFFSET", "LENGTH", "KIND"],
        ["1MiB", "3MiB", "data"],
        ["7MiB", "1MiB", "zero"],
        ["5242884KiB", "4KiB", "data"],
    ]
    assert shown[4:] == [f"3 ranges from {volume}@a to {volume}@b: 3MiB of data, 1MiB of zeros"]
    assert cluster.json("snapshot", "diff", f"{volume}@b")["ranges"] == []
    now = cluster.json("snapshot", "diff", f"{volume}@a")
    assert (now["to"], now["data_bytes"], now["size_bytes"]) == (volume, 3 * MIB + BLOCK, 8 * GIB)
    # Times name snapshots here as well.
    assert cluster.json("snapshot", "diff", f"{volume}@now")["from"] == f"{volume}@b"
    other = make_volume("64MiB")
    cluster.cli("snapshot", "create", f"{other}@a")
    for arguments, expected in (
        ((volume,), "which snapshot"),
        ((f"{volume}@x",), "no snapshot 'x'"),
        ((f"{volume}@a", f"{volume}@x"), "no snapshot 'x'"),
        ((f"{volume}@a", "nothing"), "nothing"),
        ((f"{volume}@a", f"{other}@a"), "nothing in common"),
        ((f"{volume}@a", other), "nothing in common"),
    ):
        assert expected in refused(cluster, "snapshot", "diff", *arguments)


def test_a_diff_of_many_ranges_comes_in_pages(cluster, make_volume):
    volume = make_volume("1GiB")
    cluster.cli("snapshot", "create", f"{volume}@empty")
    command = ["fio", "--name=load", "--ioengine=nbd", f"--uri={cluster.first.uri(volume)}", "--rw=randwrite"]
    command += ["--bs=4k", "--iodepth=32", "--size=1g", "--io_size=96m", "--randrepeat=1"]
    run(*command)
    diff = cluster.json("snapshot", "diff", f"{volume}@empty")
    ranges = diff["ranges"]
    assert len(ranges) > 16_384, "more than a page"
    assert diff["data_bytes"] == sum(part["length_bytes"] for part in ranges) == 96 * MIB and diff["zero_bytes"] == 0
    ends = [part["offset_bytes"] + part["length_bytes"] for part in ranges]
    assert all(end < part["offset_bytes"] for end, part in zip(ends, ranges[1:], strict=False))
    shown = cluster.cli("snapshot", "diff", f"{volume}@empty").splitlines()
    assert len(shown) == len(ranges) + 2 and shown[-1].endswith("96MiB of data, 0B of zeros")


def made(cluster, snapshot):
    try:
        cluster.cli("snapshot", "create", snapshot)
    except CliError as error:
        assert "did not stop" in error.stderr
        return False
    return True


def test_a_diff_is_right_after_a_copy_was_away(make_cluster):
    cluster = make_cluster()
    cluster.create_volume("v", "32MiB")
    draw = random.Random(5)
    now = bytearray(32 * MIB)
    images = {}
    with Client(cluster.first.uri("v")) as client:
        for number, name in enumerate("abcdef"):
            if number in (1, 3):
                cluster.nodes[2].kill()
            change(draw, client, now, 25)
            wait_until(lambda name=name: made(cluster, f"v@{name}"), 30, "groups to have primaries again")
            images[f"v@{name}"] = bytes(now)
            if number in (2, 4):
                cluster.nodes[2].start()
                cluster.wait_healthy()
        # Copies that were away become primaries.
        cluster.nodes[1].kill()
        names = sorted(images)
        for before, after in [(a, b) for a in names for b in names if a != b]:
            diff = cluster.json("snapshot", "diff", before, after)
            ranges = [(part["offset_bytes"], part["length_bytes"], part["kind"]) for part in diff["ranges"]]
            image = bytearray(images[before])
            for offset, length, kind in ranges:
                told = images[after][offset : offset + length]
                assert kind == "data" or told == bytes(length), (before, after, offset)
                image[offset : offset + length] = told
            assert bytes(image) == images[after], f"from {before} to {after}"
        # What the node that is away holds is not in the figure, and that is said.
        assert "at least" in cluster.cli("snapshot", "show", "v@b")
        assert "n2" in cluster.json("snapshot", "show", "v@b")["freed_missing"][0]


def test_snapshots_outlive_a_crash(each_cluster):
    cluster = each_cluster
    with Client(cluster.first.uri()) as client:
        for number in range(4):
            client.write(number * MIB, noise(number))
            cluster.cli("snapshot", "create", f"vol1@{number}")
        client.write(0, noise(9))
    cluster.cli("snapshot", "delete", "vol1@1")
    cluster.kill_all()
    cluster.start()
    for number in (0, 2, 3):
        with Client(cluster.nodes[1].uri(f"vol1@{number}")) as client:
            for piece in range(4):
                expected = noise(piece) if piece <= number else bytes(BLOCK)
                assert client.read(piece * MIB, BLOCK) == expected
    with Client(cluster.nodes[2].uri()) as client:
        assert client.read(0, BLOCK) == noise(9)


def test_protection_makes_and_thins_snapshots(cluster, make_volume):
    volume = make_volume("64MiB")
    shown = cluster.cli("volume", "protect", volume, "--every", "1s", "--keep", "4s")
    assert "every 1s, kept 4s" in shown and "every 1s" in cluster.cli("volume", "show", volume)
    # When each number was written, and which was the last when a snapshot was first seen.
    written, last = [time.time()], {}
    with Client(cluster.first.uri(volume)) as client:

        def made_and_thinned():
            client.write(0, len(written).to_bytes(8, "big") * 512)
            written.append(time.time())
            there = snapshots_of(cluster, volume)
            for name in there:
                last.setdefault(name, len(written) - 1)
            return len(there) >= 2 and len(last) >= len(there) + 2

        wait_until(made_and_thinned, 120, "snapshots that come and go")
    unused(cluster, volume)
    # One more of what was written last; then nobody has the volume.
    quiet = snapshots_of(cluster, volume)
    time.sleep(2.5)
    there = snapshots_of(cluster, volume)
    assert len(set(there) - set(quiet)) <= 1, "snapshots of a volume that nobody has"
    assert "not protected any more" in cluster.cli("volume", "protect", volume, "--off")
    there = sorted(snapshots_of(cluster, volume))
    name = there[-2] if len(there) > 1 else there[-1]
    began = calendar.timegm(time.strptime(name, "%Y%m%dT%H%M%SZ"))
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began))
    clone(cluster, f"{volume}@{text}", "clone-of-then")
    with Client(cluster.first.uri("clone-of-then")) as client:
        seen = int.from_bytes(client.read(0, 8), "big")
    before = max(number for number, at in enumerate(written) if at < began)
    assert before <= seen <= last.get(name, len(written) - 1), "a snapshot of then shows what was then"
    cluster.cli("volume", "revert", volume, "--at", text)
    with Client(cluster.nodes[2].uri(volume)) as client:
        assert int.from_bytes(client.read(0, 8), "big") == seen
    unused(cluster, volume)
    assert "for example" in refused(cluster, "volume", "protect", volume, "--every", "10s", "--keep", "1s")
    assert "its oldest is of" in refused(cluster, "volume", "revert", volume, "--at", "2 hours ago")


def test_what_is_shown_adds_up(make_cluster):
    cluster = make_cluster()
    cluster.create_volume("v", "64MiB")
    with Client(cluster.first.uri("v")) as client:
        for number in range(8):
            client.write(number * MIB, noise(number, MIB))
        cluster.cli("snapshot", "create", "v@one")
        for number in range(3):
            client.write(number * MIB, noise(100 + number, MIB))
        cluster.cli("snapshot", "create", "v@two")
        client.write(8 * MIB, noise(8, MIB))
    clone(cluster, "v@one", "c")
    with Client(cluster.first.uri("c")) as client:
        client.write(0, noise(200, MIB))
    wait_until(lambda: cluster.used_bytes() == 2 * 13 * MIB, 60, "the use of what was written")
    held = {snapshot["name"]: snapshot["held_bytes"] for snapshot in cluster.json("snapshot", "list", "v")}
    assert held == {"one": 16 * MIB, "two": 6 * MIB}
    space = cluster.json("space")
    written = {volume["name"]: (volume["unique_bytes"], volume["shared_bytes"]) for volume in space["volumes"]}
    assert written == {"v": (2 * MIB, 22 * MIB), "c": (2 * MIB, 16 * MIB)}
    assert (space["cluster"]["unique_bytes"], space["cluster"]["snapshot_bytes"]) == (4 * MIB, 22 * MIB)
    assert (space["cluster"]["used_bytes"], space["cluster"]["leaving_bytes"]) == (26 * MIB, 0)


def test_a_smaller_volume_keeps_what_was_cut_off(cluster, make_volume):
    volume = make_volume("64MiB")
    with Client(cluster.first.uri(volume)) as client:
        for number in (0, 31, 32, 63):
            client.write(number * MIB, noise(number))
        assert "--shrink" in refused(cluster, "volume", "resize", volume, "32MiB")
        assert "--force" in refused(cluster, "volume", "resize", volume, "32MiB", "--shrink")
    unused(cluster, volume)
    done = cluster.json("volume", "resize", volume, "32MiB", "--shrink")
    kept = done["kept"]["name"]
    assert done["size_bytes"] == 32 * MIB
    with Client(cluster.nodes[1].uri(f"{volume}@{kept}")) as client:
        assert client.size == 64 * MIB and client.read(63 * MIB, BLOCK) == noise(63)
    unused(cluster, volume)
    cluster.cli("volume", "resize", volume, "64MiB")
    with Client(cluster.nodes[1].uri(volume)) as client:
        assert client.read(31 * MIB, BLOCK) == noise(31)
        for number in (32, 63):
            assert client.read(number * MIB, BLOCK) == bytes(BLOCK), "what was cut off came back"


def mountable(kind):
    if not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control"):
        pytest.skip("this machine has no FUSE or no loop devices")
    if not kernel_mounts(kind):
        pytest.skip(f"this kernel has no {kind}")


@pytest.mark.root
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_file_system_is_snapped_while_files_are_written(cluster, make_volume, folder, kind):
    mountable(kind)
    volume = make_volume("512MiB")
    disk = Attached(cluster.first.uri(volume), folder)
    stop = threading.Event()
    try:
        run(*MAKE[kind], disk.device)
        disk.mount()
        settled = disk.point / "settled"
        settled.mkdir()
        for number in range(40):
            (settled / str(number)).write_bytes(noise(number, 50_000))
        run("sync", "-f", disk.point)
        before = tree_digests(settled)

        def churn():
            number = 0
            while not stop.is_set():
                number += 1
                (disk.point / f"busy{number % 20}").write_bytes(noise(number, 200_000))

        worker = threading.Thread(target=churn)
        worker.start()
        try:
            time.sleep(0.5)
            cluster.cli("snapshot", "create", f"{volume}@busy")
            time.sleep(0.5)
        finally:
            stop.set()
            worker.join()
        run("rm", "-r", settled)
        run("sync", "-f", disk.point)
        # A file system as after a crash: its log is replayed at the first mount, so on a clone.
        clone(cluster, f"{volume}@busy", "clone-of-busy")
        place = folder / "clone"
        place.mkdir()
        copy = Attached(cluster.nodes[1].uri("clone-of-busy"), place)
        try:
            # While the original is mounted, xfs takes a second one of its identity only if told so.
            run("mount", *(["-o", "nouuid"] if kind == "xfs" else []), copy.device, copy.point)
            assert tree_digests(copy.point / "settled") == before, "a deleted folder comes back"
            copy.unmount()
            run(*CHECK[kind], copy.device)
        finally:
            subprocess.run(["umount", "--lazy", copy.point], check=False, stderr=subprocess.DEVNULL)
            copy.close()
        disk.unmount()
    finally:
        disk.close()
    unused(cluster, volume)
    cluster.cli("snapshot", "revert", f"{volume}@busy")
    again = Attached(cluster.nodes[2].uri(volume), folder)
    try:
        again.mount()
        assert tree_digests(again.point / "settled") == before
        again.unmount()
        run(*CHECK[kind], again.device)
    finally:
        again.close()


@pytest.mark.root
def test_a_snapshot_is_mounted_while_the_volume_is_written(cluster, make_volume, folder):
    mountable("ext4")
    volume = make_volume("256MiB")
    disk = Attached(cluster.first.uri(volume), folder)
    place = folder / "old"
    place.mkdir()
    try:
        run(*MAKE["ext4"], disk.device)
        disk.mount()
        (disk.point / "file").write_bytes(noise(1, 300_000))
        run("fsfreeze", "--freeze", disk.point)
        try:
            cluster.cli("snapshot", "create", f"{volume}@tidy")
        finally:
            run("fsfreeze", "--unfreeze", disk.point)
        (disk.point / "file").write_bytes(noise(2, 300_000))
        run("sync", "-f", disk.point)
        old = Attached(cluster.nodes[1].uri(f"{volume}@tidy"), place)
        try:
            run("mount", "-o", "ro", old.device, old.point)
            assert (old.point / "file").read_bytes() == noise(1, 300_000)
            run("umount", old.point)
            run(*CHECK["ext4"], old.device)
        finally:
            old.close()
        assert (disk.point / "file").read_bytes() == noise(2, 300_000)
        disk.unmount()
    finally:
        disk.close()
