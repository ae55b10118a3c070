"""What lies between a host and a target, and does harm: delays, resets, cuts within a PDU, silence, flipped bits."""

import contextlib
import random
import socket
import struct
import threading
import time


class Relay:
    """Passes bytes on between connections to its `address` and `to`."""

    def __init__(self, to, listen="127.0.0.1", seed=1):
        self.to = to
        self.random = random.Random(seed)
        self.server = socket.create_server((listen, 0))
        host, port = self.server.getsockname()
        self.address = f"{host}:{port}"
        # Seconds by which all bytes are late.
        self.delay = 0
        # Whether nothing passes, while connections stay.
        self.is_silent = False
        # Whether a new connection is closed at once.
        self.refuses = False
        # After how many more bytes from the target one bit is flipped; `None` for never.
        self.flip_after = None
        self.pairs = []
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.server.close()
        self.reset()

    def reset(self):
        """Resets all connections, at whatever byte they are: within a PDU, mostly, where there is load."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        return len(pairs)

    def _accept(self):
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            if self.refuses:
                near.close()
                continue
            try:
                far = socket.create_connection(self.to, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.pairs.append((near, far))
            for source, sink, is_answer in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._pass, args=(source, sink, is_answer), daemon=True).start()

    def _damage(self, piece):
        with self.lock:
            if self.flip_after is not None:
                at, self.flip_after = self.flip_after, self.flip_after - len(piece)
                if at < len(piece):
                    self.flip_after = None
                    piece = bytearray(piece)
                    piece[at] ^= 1 << self.random.randrange(8)
        return piece

    def _pass(self, source, sink, is_answer):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if self.delay:
                    time.sleep(self.delay)
                while self.is_silent:
                    time.sleep(0.05)
                sink.sendall(self._damage(piece) if is_answer else piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
