"""The servers behind the routers: a fleet of nodes that can be killed and come back."""

import contextlib
import socket

from measure import server, tiers

DRAM_MIB = 4
TIER_MIB = 128


class Fleet:
    """Nodes of one kind. Terrace's have little DRAM and a tier; memcached's are all DRAM."""

    def __init__(self, kind, count):
        self.kind = kind
        with contextlib.ExitStack() as stack:
            self.nodes = [stack.enter_context(self._node()) for _ in range(count)]
            self._stack = stack.pop_all()

    def _node(self):
        if self.kind == "memcached":
            return server.memcached("-m", "64", "-t", "1")
        tier = ["--tier", f"ssd:DIR/tier:{TIER_MIB}m"]
        return server.terrace("-m", str(DRAM_MIB), "-t", "1", *tier)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    @property
    def ports(self):
        return [node.port for node in self.nodes]

    def kill(self, at):
        """As `kill -9` does."""
        self.nodes[at].child.kill()
        self.nodes[at].child.wait()

    def bring_back(self, at):
        """Starts a killed node with the same port and files; seconds until it answers."""
        return self.nodes[at].restart(0)

    def holders(self, at, keys):
        """Those of `keys` that node `at` has, asked without a router between."""
        with socket.create_connection(("127.0.0.1", self.ports[at]), 20) as connection:
            replies = connection.makefile("rb")
            held = set()
            for start in range(0, len(keys), 100):
                part = keys[start : start + 100]
                connection.sendall(b"".join(b"mg %s u\r\n" % key.encode() for key in part))
                held.update(key for key in part if replies.readline().startswith(b"HD"))
            return held

    def flash_reads(self):
        """Reads of the drives for requests, all nodes together."""
        return sum(tiers.flash(node)["reads"] for node in self.nodes)
