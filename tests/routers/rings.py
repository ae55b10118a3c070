"""Ways from a key to one of several servers, each as its users set it up.

Each has `get(key)`, which gives back a value or None, and `set(key, value)`, which says whether it
was stored. An error of the router is counted, and is a miss: the application asks its back end.
"""

import os
import shutil
import subprocess
import tempfile
import time

# Long enough for a machine that is busy: a living node that answers late would be ejected too.
TIMEOUT_SECONDS = 10
RETRY_SECONDS = 1


class Unavailable(Exception):
    """A router that is not installed here."""


class Ring:
    """One client; errors of the library in question are counted."""

    name = ""
    errors_known = ()

    def __init__(self):
        self.errors = 0

    def get(self, key):
        try:
            return self.cache.get(key)
        except self.errors_known:
            self.errors += 1
            return None

    def set(self, key, value):
        try:
            return bool(self.store(key, value))
        except self.errors_known:
            self.errors += 1
            return False

    def store(self, key, value):
        return self.cache.set(key, value)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Twemproxy(Ring):
    """pymemcache through Debian's nutcracker with ketama, which ejects a server that fails."""

    name = "twemproxy"

    def __init__(self, ports):
        super().__init__()
        # Debian keeps it where only root's path leads.
        program = shutil.which("nutcracker", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if not program:
            raise Unavailable("nutcracker is not installed; make tools")
        from pymemcache.client.base import Client
        from pymemcache.exceptions import MemcacheError

        self.errors_known = (MemcacheError, OSError)
        self.dir = tempfile.mkdtemp(prefix="terrace-router-")
        # A socket that is a file: no port has to be found for it.
        self.socket = os.path.join(self.dir, "socket")
        with open(os.path.join(self.dir, "pools.yml"), "w") as file:
            file.write(self._pools(ports))
        command = [program, "-c", file.name, "-a", _own_address(), "-s", "22222", "-v", "0"]
        command += ["-o", os.path.join(self.dir, "log"), "-p", os.path.join(self.dir, "pid")]
        self.child = subprocess.Popen(command, cwd=self.dir)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        self.cache = Client(f"unix:{self.socket}", timeout=2 * TIMEOUT_SECONDS, default_noreply=False)

    def _pools(self, ports):
        # Named servers: where a key lies does not hang on ports.
        servers = [f"    - 127.0.0.1:{port}:1 node{at}\n" for at, port in enumerate(ports)]
        return "".join([
            "fleet:\n",
            f"  listen: {self.socket}\n",
            "  hash: fnv1a_64\n",
            "  distribution: ketama\n",
            f"  timeout: {int(TIMEOUT_SECONDS * 1000)}\n",
            "  auto_eject_hosts: true\n",
            f"  server_retry_timeout: {RETRY_SECONDS * 1000}\n",
            "  server_failure_limit: 1\n",
            "  servers:\n",
            *servers,
        ])  # fmt: skip

    def _wait(self):
        end = time.monotonic() + 60
        while not os.path.exists(self.socket):
            if self.child.poll() is not None or time.monotonic() > end:
                raise RuntimeError("nutcracker does not start")
            time.sleep(0.01)

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def _own_address():
    """An address for nutcracker's statistics, which it insists on: every process has its own, so
    that no port has to be found."""
    high, low = divmod(os.getpid(), 250)
    return f"127.{100 + high // 250 % 100}.{1 + high % 250}.{1 + low}"


class HashClient(Ring):
    """pymemcache's own ring, which takes a server out that fails, and tries it again."""

    name = "pymemcache HashClient"

    def __init__(self, ports):
        super().__init__()
        try:
            from pymemcache.client.hash import HashClient as Client
        except ImportError as error:
            raise Unavailable(f"{error}; make tools") from error
        self.errors_known = (OSError,)
        self.cache = Client(
            [("127.0.0.1", port) for port in ports],
            timeout=TIMEOUT_SECONDS,
            connect_timeout=TIMEOUT_SECONDS,
            retry_attempts=1,
            retry_timeout=0.1,
            dead_timeout=RETRY_SECONDS,
            ignore_exc=True,
            default_noreply=False,
        )


class Ketama(Ring):
    """libmemcached's ketama, through pylibmc."""

    name = "pylibmc ketama"

    def __init__(self, ports):
        super().__init__()
        try:
            import pylibmc
        except ImportError as error:
            raise Unavailable(f"{error}; make tools") from error
        self.errors_known = (pylibmc.Error,)
        behaviors = {
            "ketama": True,
            "tcp_nodelay": True,
            "connect_timeout": int(TIMEOUT_SECONDS * 1000),
            "remove_failed": 1,
            "retry_timeout": RETRY_SECONDS,
            "dead_timeout": RETRY_SECONDS,
        }
        servers = [f"127.0.0.1:{port}" for port in ports]
        self.cache = pylibmc.Client(servers, behaviors=behaviors)


class MetaRing(Ring):
    """meta-memcache's own ring."""

    name = "meta-memcache"

    def __init__(self, ports):
        super().__init__()
        try:
            import meta_memcache as meta
        except ImportError as error:
            raise Unavailable(f"{error}; make tools") from error
        self.errors_known = (meta.MemcacheError,)
        self._key = meta.Key
        self.cache = meta.CacheClient.cache_client_from_servers(
            servers=[meta.ServerAddress("127.0.0.1", port) for port in ports],
            connection_pool_factory_fn=meta.connection_pool_factory_builder(),
        )

    def get(self, key):
        return super().get(self._key(key))

    def store(self, key, value):
        return self.cache.set(self._key(key), value, ttl=None)
