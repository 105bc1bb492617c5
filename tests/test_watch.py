"""Watching: what is told of volumes and nodes as they change, to readers that stay, come again, or come elsewhere."""

import contextlib
import http.client
import json
import subprocess
import threading
import time

import pytest

from tools.harness.cluster import HOST, binary
from tools.harness.process import wait_until

GIB = 2**30
SOON_S = 60


def ask(node, of, last=None):
    """An answer that has begun, and its connection."""
    connection = http.client.HTTPConnection(HOST, node.api_port, timeout=SOON_S)
    headers = {} if last is None else {"Last-Event-ID": last}
    connection.request("GET", f"/v1/watch?of={of}", headers=headers)
    return connection, connection.getresponse()


class Reader:
    """Reads a stream in a thread of its own until it is closed."""

    def __init__(self, node, of="volumes,nodes", last=None):
        self.connection, self.answer = ask(node, of, last)
        assert self.answer.status == 200, self.answer.read()
        assert self.answer.getheader("Content-Type") == "text/event-stream"
        # Each is (id, event, data).
        self.events = []
        # The id that came last, also without an event.
        self.last = last
        self.ended = False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        fields = {}
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            while line := self.answer.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                    continue
                self.last = fields.get("id", self.last)
                if "data" in fields:
                    self.events.append((fields["id"], fields["event"], json.loads(fields["data"])))
                fields = {}
        self.ended = True

    def close(self):
        self.connection.sock.shutdown(2)
        self.thread.join(SOON_S)
        self.connection.close()

    def state(self):
        """What is there, by kind and name, after all that was told."""
        state = {}
        for _, event, data in list(self.events):
            if event == "reset":
                state = {}
                continue
            kind, change = event.split(".")
            if change == "deleted":
                del state[kind, data["name"]]
            else:
                state[kind, data["name"]] = data
        return state

    def told(self, name):
        """The events of one thing."""
        return [event for _, event, data in list(self.events) if data.get("name") == name]

    def wait(self, condition, what):
        wait_until(lambda: condition(self), SOON_S, what)


def has(event, name):
    return lambda reader: event in reader.told(name)


def whole(reader):
    """The state that stands at the beginning has come."""
    return reader.events and len(reader.events) > reader.events[0][2]["things"]


@pytest.fixture
def watched(make_cluster):
    # The configuration is not to go with a node.
    return make_cluster(config="etcd", device_size="512MiB")


def test_two_readers_see_the_same(watched):
    first, second, third = watched.nodes
    readers = [Reader(first), Reader(second)]
    for reader in readers:
        reader.wait(whole, "the whole state")
        assert reader.events[0][1] == "reset"
        assert {name for _, name in reader.state()} >= {"n1", "n2", "n3"}
    watched.create_volume("vol1", "128MiB")
    watched.cli("volume", "resize", "vol1", "256MiB")
    watched.cli("snapshot", "create", "vol1@s")
    for reader in readers:
        reader.wait(
            lambda reader: reader.state().get(("volume", "vol1"), {}).get("snapshots") == 1, "the volume's snapshot"
        )
        volume = reader.state()["volume", "vol1"]
        shown = watched.json("volume", "show", "vol1")
        for field in ("name", "id", "uuid", "size_bytes", "copies", "snapshots", "attachments", "created"):
            assert volume[field] == shown[field], field
        assert volume["size_bytes"] == 256 * 2**20
        told = reader.told("vol1")
        assert told[0] == "volume.created" and set(told[1:]) == {"volume.changed"}
        # One of the size, one of the snapshot: not a word of what happens inside. What attaches it tells more.
        assert 2 <= len(told) - 1 <= 4, told
    watched.delete_volume("vol1")
    third.kill()
    for reader in readers:
        reader.wait(has("volume.deleted", "vol1"), "the volume's end")
        reader.wait(lambda reader: not reader.state()["node", "n3"]["alive"], "the node's death")
    third.start()
    for reader in readers:
        reader.wait(lambda reader: reader.state()["node", "n3"]["alive"], "the node's return")
    wait_until(lambda: readers[0].state() == readers[1].state(), SOON_S, "one state")
    for reader in readers:
        positions = [int(id) for id, _, _ in reader.events if id != "0"]
        assert positions == sorted(positions)
        reader.close()


def test_whoever_comes_again_has_missed_nothing(watched):
    staying = Reader(watched.first, "volumes")
    staying.wait(whole, "the beginning")
    coming = Reader(watched.first, "volumes")
    coming.wait(whole, "the beginning")
    seen = [event for event in coming.events if event[1] != "reset"]
    for number in range(6):
        coming.close()
        watched.cli("volume", "create", f"a{number}", "64MiB", "--copies", "2")
        if number % 2:
            watched.delete_volume(f"a{number - 1}")
        coming = Reader(watched.first, "volumes", coming.last)
        coming.wait(has("volume.created", f"a{number}"), "what was missed")
        if number % 2:
            coming.wait(has("volume.deleted", f"a{number - 1}"), "what was missed")
        seen += coming.events
    staying.wait(has("volume.created", "a5"), "the last one")
    staying.wait(has("volume.deleted", "a4"), "the last one's end")
    assert "reset" not in [event for _, event, _ in seen]
    told = [(event, data["name"]) for _, event, data in seen]
    expected = [(event, data["name"]) for _, event, data in staying.events if event != "reset"]
    # Who was told half of a step is told it again, and nothing is missing.
    assert set(told) == set(expected)
    assert [(event, name) for event, name in told if event != "volume.changed"] == [
        (event, name) for event, name in expected if event != "volume.changed"
    ]
    coming.close()
    # Another node may know the position, or tell the whole state; in the end both know the same.
    elsewhere = Reader(watched.nodes[1], "volumes", coming.last)
    watched.delete_volume("a5")
    for reader in (staying, elsewhere):
        reader.wait(has("volume.deleted", "a5"), "the end of another one")
        reader.close()


def test_a_position_that_nobody_knows_is_answered_with_the_whole_state(watched):
    watched.create_volume("vol1", "64MiB")
    before = Reader(watched.first, "volumes")
    before.wait(whole, "the beginning")
    node = watched.nodes[1]
    before.close()
    node.stop()
    node.start()
    watched.wait_healthy()
    # A node that was started anew has nothing of the time before; a position of the future is another cluster's.
    for last in (str(int(before.last) - 1), "0", "999999999"):
        reader = Reader(node, "volumes", last)
        reader.wait(whole, "the whole state")
        reset = reader.events[0]
        assert reset[1] == "reset" and reset[2]["things"] == 1
        assert reset[0] == "0" and reader.events[-1][0] == str(reset[2]["revision"]), "the last one has the position"
        assert reader.state() and reader.told("vol1") == ["volume.created"]
        reader.close()
    for of, last in (("", None), ("volumes,moons", None), ("volumes", "x")):
        connection, answer = ask(watched.first, of, last)
        body = json.loads(answer.read())
        assert answer.status in (400, 422) and body["hint"], body
        connection.close()


def test_a_reader_that_reads_nothing_costs_nobody_anything(watched):
    """And whoever sits on all the places is told so, until he goes."""
    connections = []
    while True:
        connection, answer = ask(watched.first, "volumes")
        connections.append(connection)
        if answer.status != 200:
            break
        assert len(connections) <= 256
    body = json.loads(answer.read())
    assert answer.status == 503 and body["code"] == "unavailable" and body["hint"], body
    for number in range(3):
        watched.cli("volume", "create", f"b{number}", "64MiB", "--copies", "2")
    for connection in connections:
        connection.close()

    def there_is_room():
        connection, answer = ask(watched.first, "volumes")
        connection.close()
        return answer.status == 200

    wait_until(there_is_room, SOON_S, "a place")


def test_a_job_is_told_from_its_beginning_to_its_end(watched):
    watched.cli("volume", "create", "vol1", "64MiB", "--copies", "2")
    watched.wait_healthy()
    wait_until(lambda: watched.json("jobs") == [], SOON_S, "a cluster at rest")
    assert watched.cli("jobs") == "Nothing is at work.\n"
    reader = Reader(watched.first, "jobs")
    reader.wait(whole, "the whole state")
    device = next(device for device in watched.json("device", "list") if device["node_name"] == "n3")
    job = f"drain/{device['id']}"
    watched.cli("node", "drain", "n3")

    def told():
        return [(event, data["left"]) for _, event, data in list(reader.events) if data.get("id") == job]

    wait_until(lambda: told() and told()[-1][0] == "job.deleted", SOON_S, "the end of the job")
    assert told()[0][0] == "job.created" and told()[0][1] <= device["groups"], told()
    left = [left for _, left in told()]
    assert left == sorted(left, reverse=True), told()
    wait_until(lambda: watched.json("jobs") == [], SOON_S, "an end of all jobs")
    reader.close()


class Command:
    """`azekura watch --json` as it runs."""

    def __init__(self, node, *words):
        command = [binary(), "watch", "--json", "--api", node.api, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def has(self, event, name):
        return any(line["event"] == event and line["data"].get("name") == name for line in list(self.lines))


def test_the_command_goes_on_after_a_break(watched):
    node = watched.nodes[1]
    command = Command(node, "volumes")
    wait_until(lambda: command.lines, SOON_S, "the beginning")
    watched.cli("volume", "create", "c1", "64MiB", "--copies", "2")
    wait_until(lambda: command.has("volume.created", "c1"), SOON_S, "a volume")
    node.kill()
    watched.cli("volume", "create", "c2", "64MiB", "--copies", "2")
    time.sleep(1)
    node.start()
    wait_until(lambda: command.has("volume.created", "c2"), SOON_S, "the volume that was made meanwhile")
    command.process.terminate()
    command.process.wait(SOON_S)
    command.thread.join(SOON_S)
    said = command.process.stderr.read()
    assert "asked again" in said and "panicked" not in said, said
    refused = subprocess.run([binary(), "watch", "moons"], capture_output=True, text=True, timeout=SOON_S)
    assert refused.returncode != 0 and "volumes" in refused.stderr, refused.stderr


def test_a_grant_that_is_revoked_watches_no_more(make_cluster):
    cluster = make_cluster(nodes=1, device_size="512MiB", api_access="grants")
    token = cluster.cli("token", "create", "ann", "--role", "user").strip()

    def watch(of):
        connection = http.client.HTTPConnection(HOST, cluster.first.api_port, timeout=SOON_S)
        connection.request("GET", f"/v1/watch?of={of}", headers={"Authorization": f"Bearer {token}"})
        return connection, connection.getresponse()

    connection, answer = watch("volumes,nodes")
    assert answer.status == 403 and json.loads(answer.read())["code"] == "forbidden"
    connection.close()
    connection, answer = watch("volumes")
    assert answer.status == 200 and answer.readline().startswith(b"id: ")
    cluster.cli("token", "revoke", "ann")
    rest = answer.read()
    assert b"event: reset" in rest, rest
    connection.close()
    connection, answer = watch("volumes")
    assert answer.status == 401
    connection.close()
