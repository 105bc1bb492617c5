"""Lists a page at a time, also while things come and go."""

import http.client
import json

from tools.harness.cluster import HOST


def ask(node, path):
    connection = http.client.HTTPConnection(HOST, node.api_port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    status, following, body = answer.status, answer.getheader("azekura-next"), json.loads(answer.read())
    connection.close()
    return status, following, body


def pages(node, path, limit, between=None):
    """All pages, with what is done after the first."""
    after, found = "", []
    while True:
        status, following, page = ask(node, f"{path}?limit={limit}{after}")
        assert status == 200 and len(page) <= limit, page
        found.append(page)
        if between is not None and len(found) == 1:
            between()
        if following is None:
            return found
        after = f"&after={following}"


def test_volumes_snapshots_and_nodes_come_in_pages(make_cluster):
    cluster = make_cluster(device_size="512MiB")
    node = cluster.nodes[1]
    names = [f"v{number}" for number in range(7)]
    for name in names:
        cluster.cli("volume", "create", name, "64MiB", "--copies", "2")
    for name in ("s1", "s0", "s2"):
        for volume in names[:2]:
            cluster.cli("snapshot", "create", f"{volume}@{name}")
    for path in ("/v1/volumes", "/v1/nodes", "/v1/snapshots", "/v1/volumes/v0/snapshots"):
        _, following, whole = ask(node, path)
        assert following is None and len(whole) >= 3

        def named(things):
            return [(thing.get("volume"), thing["name"]) for thing in things]

        for limit in (1, 2, 3, 1000):
            found = pages(node, path, limit)
            assert named(sum(found, [])) == named(whole), (path, limit)
            assert all(len(page) == limit for page in found[:-1]), "pages are full, but for the last"
        for query in ("limit=0", "limit=1001", "limit=x", "pages=1"):
            status, _, body = ask(node, f"{path}?{query}")
            assert status in (400, 422) and body["message"], (path, query, body)
    assert ask(node, "/v1/nodes?after=x")[2]["code"] == "refused"

    def change():
        cluster.delete_volume("v2")
        cluster.delete_volume("v5")
        cluster.cli("volume", "create", "v9", "64MiB", "--copies", "2")

    # The page begins behind v2, which is gone by then.
    found = [volume["name"] for volume in sum(pages(node, "/v1/volumes", 3, change), [])]
    assert found == ["v0", "v1", "v2", "v3", "v4", "v6", "v9"]
    assert [volume["name"] for volume in cluster.json("volume", "list")] == ["v0", "v1", "v3", "v4", "v6", "v9"]
