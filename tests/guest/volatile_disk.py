"""A drive with a volatile write cache, which `cut` loses as a loss of power does."""

import os
import random
import socket
import struct
import threading

SECTOR = 512
# The network block device protocol of the emulator (fixed newstyle, simple replies).
MAGIC, OPTION_MAGIC, REPLY_MAGIC = 0x4E42444D41474943, 0x49484156454F5054, 0x0003E889045565A9
REQUEST_MAGIC, SIMPLE_REPLY_MAGIC = 0x25609513, 0x67446698
EXPORT_NAME, ABORT, INFO, GO = 1, 2, 6, 7
ACK, REPLY_INFO, UNSUPPORTED = 1, 3, 0x80000001
HAS_FLAGS, SEND_FLUSH, SEND_FUA = 1, 4, 8
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
FUA = 1


def read_exactly(connection, count):
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("the emulator has gone")
        data += piece
    return bytes(data)


class VolatileDisk:
    """A file behind a socket. Writes are in the file after a flush, or if they asked for that; until then in memory."""

    def __init__(self, folder, name, megabytes, seed=1):
        self.size = megabytes << 20
        self.file = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT, 0o600)
        os.truncate(self.file, self.size)
        self.path = os.path.join(folder, f"{name}.socket")
        # Sectors that were written and not flushed, by number.
        self.unflushed = {}
        self.lock = threading.Lock()
        self.random = random.Random(seed)
        self.flushes = self.lost = self.kept = 0
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen(1)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        """For a drive of a guest."""
        return f"nbd:unix:{self.path}"

    def close(self):
        self.server.close()

    def cut(self):
        """Loses about half of the sectors that were not flushed, chosen at random: a drive writes in any order. The
        guest must have ended before."""
        with self.lock:
            for number, data in self.unflushed.items():
                if self.random.random() < 0.5:
                    os.pwrite(self.file, data, number * SECTOR)
                    self.kept += 1
                else:
                    self.lost += 1
            self.unflushed.clear()

    # The protocol.

    def _accept(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                if self._negotiate(connection):
                    while self._request(connection):
                        pass
            except (ConnectionError, OSError):
                pass

    def _negotiate(self, connection):
        flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA
        connection.sendall(struct.pack(">QQH", MAGIC, OPTION_MAGIC, 3))
        read_exactly(connection, 4)
        while True:
            _, option, length = struct.unpack(">QII", read_exactly(connection, 16))
            read_exactly(connection, length)

            def reply(kind, data=b"", option=option):
                connection.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data)) + data)

            if option == EXPORT_NAME:
                connection.sendall(struct.pack(">QH", self.size, flags))
                return True
            if option in (INFO, GO):
                reply(REPLY_INFO, struct.pack(">HQH", 0, self.size, flags))
                reply(ACK)
                if option == GO:
                    return True
            elif option == ABORT:
                reply(ACK)
                return False
            else:
                reply(UNSUPPORTED)

    def _request(self, connection):
        magic, flags, kind, cookie, offset, length = struct.unpack(">IHHQQI", read_exactly(connection, 28))
        if magic != REQUEST_MAGIC or kind == DISCONNECT:
            return False
        data = b""
        if kind == READ:
            data = self._read(offset, length)
        elif kind == WRITE:
            self._write(offset, read_exactly(connection, length), flags & FUA)
        elif kind == FLUSH:
            self._flush()
        connection.sendall(struct.pack(">IIQ", SIMPLE_REPLY_MAGIC, 0, cookie) + data)
        return True

    def _read(self, offset, length):
        with self.lock:
            data = bytearray(os.pread(self.file, length, offset))
            first = offset // SECTOR
            for at in range(length // SECTOR):
                sector = self.unflushed.get(first + at)
                if sector is not None:
                    data[at * SECTOR : (at + 1) * SECTOR] = sector
        return data

    def _write(self, offset, data, through):
        first = offset // SECTOR
        with self.lock:
            for at in range(len(data) // SECTOR):
                self.unflushed[first + at] = data[at * SECTOR : (at + 1) * SECTOR]
            if through:
                os.pwrite(self.file, data, offset)
                for at in range(len(data) // SECTOR):
                    del self.unflushed[first + at]

    def _flush(self):
        with self.lock:
            self.flushes += 1
            for number, data in self.unflushed.items():
                os.pwrite(self.file, data, number * SECTOR)
            self.unflushed.clear()
