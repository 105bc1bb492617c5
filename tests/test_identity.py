"""Who a node is: the key that it makes at its first start is in its record, and with another one it is not let in."""

import hashlib

from tests.test_permissions import mode
from tests.test_start import start_that_fails
from tools.harness.run import run

# SubjectPublicKeyInfo of a P-256 key (RFC 5480), up to the point.
PUBLIC_KEY = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")


def key_file(node):
    return node.data / "identity" / "node.key"


def name_of(key):
    """What a key is known by. A PKCS#8 file of such a key ends with its point (RFC 5915)."""
    assert key[-65] == 4, key.hex()
    return hashlib.sha256(PUBLIC_KEY + key[-65:]).hexdigest()


def test_a_node_is_known_by_the_key_that_it_has_made(make_cluster):
    cluster = make_cluster()
    cluster.create_volume()
    run("qemu-io", "-f", "raw", "-c", "write -P 9 0 1M", cluster.first.uri())
    assert len({key_file(node).read_bytes() for node in cluster.nodes}) == 3
    node = cluster.nodes[2]
    file = key_file(node)
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    first = file.read_bytes()
    node.stop()
    node.start()
    cluster.wait_healthy()
    assert file.read_bytes() == first, "a start makes no other"

    # Its key is lost: a new one is made, and nobody knows it.
    node.stop()
    file.unlink()
    for _ in range(2):
        said = start_that_fails(node)
        assert name_of(file.read_bytes()) in said and "n3" in said and "--replace-key" in said, said
    lost = file.read_bytes()
    file.write_bytes(first)
    node.start()
    cluster.wait_healthy()

    # Lost for good: the new one takes the place of the old one, which is nobody's any more.
    node.stop()
    file.write_bytes(lost)
    node.options = ["--replace-key"]
    node.start()
    cluster.wait_healthy()
    node.stop()
    node.options = []
    file.write_bytes(first)
    assert name_of(first) in start_that_fails(node)
    file.write_bytes(lost)
    node.start()
    cluster.wait_healthy()
    run("qemu-io", "-f", "raw", "-c", "read -P 9 0 1M", node.uri())


def test_a_key_that_others_can_read_is_closed_and_what_is_none_stays(make_cluster):
    cluster = make_cluster(nodes=1)
    node = cluster.first
    file = key_file(node)
    key = file.read_bytes()
    node.stop()
    file.chmod(0o644)
    node.start()
    cluster.wait_healthy()
    assert mode(file) == 0o600 and "had mode 0644" in node.log()
    node.stop()
    file.write_bytes(key[:-1])
    said = start_that_fails(node)
    assert "node.key is damaged" in said, said
    assert file.read_bytes() == key[:-1]
    file.write_bytes(key)
    node.start()
    cluster.wait_healthy()
