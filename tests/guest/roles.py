"""What guests are: Linux' NVMe/TCP target, and its initiator."""

import json
import os
import re

from guest import Guest, expect

TARGET_NQN = "nqn.2014-08.org.nvmexpress:uuid:7ac3e0f4-0000-4000-8000-000000000001"
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:7ac3e0f4-0000-4000-8000-0000000000a1"
HOST_ID = "7ac3e0f4-0000-4000-8000-0000000000a1"
# Namespaces of the kernel's target by what is behind them, the last one a drive that survives the guest.
MEMORY, NULL, DRIVE = 1, 2, 3
BLOCK_BYTES = {MEMORY: 512, NULL: 4096, DRIVE: 512}
SERVICE = 4420

CONFIGURE = """set -e
load nvmet-tcp
load brd rd_nr=1 rd_size={kilobytes} max_part=0
load null_blk nr_devices=0
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config
mkdir nullb/nullb0
echo {megabytes} >nullb/nullb0/size
echo 4096 >nullb/nullb0/blocksize
echo 1 >nullb/nullb0/memory_backed
echo 1 >nullb/nullb0/power
cd nvmet
mkdir subsystems/{nqn}
echo 7ac3e0f4 >subsystems/{nqn}/attr_serial
add() {{
    at=subsystems/{nqn}/namespaces/$1
    mkdir $at
    echo -n $2 >$at/device_path
    echo 7ac3e0f4-0000-4000-8000-{identity:08x}000$1 >$at/device_nguid
    echo 7ac3e0f4-0000-4000-8000-{identity:08x}000$1 >$at/device_uuid
    [ ! -e $at/resv_enable ] || echo 1 >$at/resv_enable
    echo 1 >$at/enable
}}
add {memory} /dev/ram0
add {null} /dev/nullb0
drive=$(drive drive || true)
[ -z "$drive" ] || add {drive} /dev/$drive
mkdir ports/1
echo tcp >ports/1/addr_trtype
echo ipv4 >ports/1/addr_adrfam
echo {address} >ports/1/addr_traddr
echo {service} >ports/1/addr_trsvcid
mkdir ports/2
echo tcp >ports/2/addr_trtype
echo ipv6 >ports/2/addr_adrfam
echo {address6} >ports/2/addr_traddr
echo {service} >ports/2/addr_trsvcid
"""


class KernelTarget:
    """A guest that exports three namespaces, or two where `drive` is not given. `hosts` may connect; `None` is all."""

    nqn = TARGET_NQN

    def __init__(self, parts, drive=None, megabytes=128, hosts=None, name="target"):
        self.megabytes, self.hosts, self.identity = megabytes, hosts, 1
        drives = {"drive": drive} if drive else {}
        self.guest = Guest(parts, name, drives, megabytes=2 * megabytes + 512)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.guest.close()

    @property
    def address(self):
        return f"{self.guest.address}:{SERVICE}"

    @property
    def address6(self):
        return f"[{self.guest.address6}]:{SERVICE}"

    def start(self):
        self.guest.boot()
        self.guest.run(CONFIGURE.format(
            nqn=self.nqn, kilobytes=self.megabytes * 1024, megabytes=self.megabytes, memory=MEMORY, null=NULL,
            drive=DRIVE, service=SERVICE, identity=self.identity, address=self.guest.address,
            address6=self.guest.address6))  # fmt: skip
        self.allow(self.hosts)
        self.publish()
        return self

    def restart(self):
        """Loses its power, and starts again: what was in its memory is gone."""
        self.guest.kill()
        self.start()

    def allow(self, hosts):
        """Lets hosts of these names connect, or all."""
        subsystem = f"/sys/kernel/config/nvmet/subsystems/{self.nqn}"
        # Linux takes a list only where not all are allowed, and that only without a list.
        lines = [f"rm -f {subsystem}/allowed_hosts/*", f"echo {int(hosts is None)} >{subsystem}/attr_allow_any_host"]
        for host in hosts or []:
            there = f"/sys/kernel/config/nvmet/hosts/{host}"
            lines.append(f"mkdir -p {there} && ln -s {there} {subsystem}/allowed_hosts/{host}")
        self.guest.run("\n".join(["set -e", *lines]))

    def publish(self):
        """Serves the subsystem at its ports."""
        nvmet = "/sys/kernel/config/nvmet"
        for port in (1, 2):
            self.guest.run(f"ln -s {nvmet}/subsystems/{self.nqn} {nvmet}/ports/{port}/subsystems/{self.nqn}")

    def withdraw(self):
        """Ends all connections and takes no new one, until `publish`. Namespaces keep their contents."""
        self.guest.run(f"rm /sys/kernel/config/nvmet/ports/[12]/subsystems/{self.nqn}")

    def resize(self, size):
        """Changes the size in bytes of the namespace that is a drive."""
        self.guest.resize("drive", size)
        at = f"/sys/kernel/config/nvmet/subsystems/{self.nqn}/namespaces/{DRIVE}"
        # The driver of the drive learns of it a moment later.
        self.guest.run(f"""size=/sys/block/$(drive drive)/size
            until [ $(cat $size) = {size // 512} ]; do sleep 0.02; done
            echo 1 >{at}/revalidate_size""")

    def wipe(self, nsid):
        """Writes zeros where a namespace says what it holds."""
        at = f"/sys/kernel/config/nvmet/subsystems/{self.nqn}/namespaces/{nsid}"
        self.guest.run(f"dd if=/dev/zero of=$(cat {at}/device_path) bs=1M count=4 oflag=direct")

    @property
    def has_reservations(self):
        at = f"/sys/kernel/config/nvmet/subsystems/{self.nqn}/namespaces/{MEMORY}/resv_enable"
        return self.guest.ran(f"[ -e {at} ]")[0] == 0


class KernelInitiator:
    """A guest that connects to targets, by `(address, port)`."""

    def __init__(self, parts, name="initiator"):
        self.guest = Guest(parts, name, megabytes=768)

    def __enter__(self):
        self.guest.boot()
        self.guest.run("load nvme-tcp")
        return self

    def __exit__(self, *_):
        self.guest.close()

    def run(self, script, **options):
        return self.guest.run(script, **options)

    @staticmethod
    def _to(to, host=HOST_NQN):
        address, port = to
        return f"-t tcp -a {address} -s {port} --hostnqn={host} --hostid={HOST_ID}"

    def discover(self, to):
        """Names of the subsystems that a discovery service tells."""
        told = self.run(f"nvme discover {self._to(to)} -o json")
        return [record["subnqn"] for record in json.loads(told)["records"]]

    def connect(self, to, nqn, digests=False, queues=2, loss_seconds=120):
        """Connects, with short times: keep-alive 5 s, a try each second."""
        options = f"-i {queues} --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo={loss_seconds}"
        if digests:
            options += " --hdr-digest --data-digest"
        self.run(f"nvme connect {self._to(to)} -n {nqn} {options}")

    def connect_all(self, to):
        """Connects to what a discovery service tells."""
        self.run(f"nvme connect-all {self._to(to)} -i 1")

    def may_connect(self, to, nqn, host):
        """Whether the target lets a host of this name connect. It is not connected afterwards."""
        code, _ = self.guest.ran(f"nvme connect {self._to(to, host)} -n {nqn} -i 1")
        if code == 0:
            self.disconnect(nqn)
        return code == 0

    def device(self, nqn, nsid=1):
        """The device of a namespace, which comes a moment after the connection."""
        script = f"""for at in $(seq 200); do
            for block in /sys/block/nvme*n*; do
                [ "$(cat $block/device/subsysnqn 2>/dev/null)" = {nqn} ] || continue
                [ "$(cat $block/nsid)" = {nsid} ] || continue
                name=$(basename $block)
                [ -b /dev/$name ] && [ "$(cat $block/size)" != 0 ] && echo /dev/$name && exit
            done
            sleep 0.1
        done
        ls /sys/block; dmesg | tail -20; exit 1"""
        return self.run(script).strip()

    def controller(self, nqn):
        """The device of the controller."""
        script = f'for at in /sys/class/nvme/nvme*; do [ "$(cat $at/subsysnqn)" = {nqn} ] && basename $at; done'
        return "/dev/" + self.run(script).split()[0]

    def state(self, nqn):
        """`live`, `connecting` and so on; nothing where there is no controller."""
        script = f"""for at in /sys/class/nvme/nvme*; do
            [ "$(cat $at/subsysnqn 2>/dev/null)" = {nqn} ] && cat $at/state
        done
        true"""
        return self.run(script).strip()

    def identify(self, nqn, device):
        """The structures of Identify, of the controller and of the namespace, as nvme-cli reads them."""
        controller = json.loads(self.run(f"nvme id-ctrl {self.controller(nqn)} -o json"))
        namespace = json.loads(self.run(f"nvme id-ns {device} -o json"))
        return controller, namespace

    def disconnect(self, nqn):
        told = self.run(f"nvme disconnect -n {nqn}")
        expect(re.search(r"disconnected [1-9]", told), f"disconnect: {told.strip()}")

    def fio(self, file, megabytes, seconds=None, depth=16, sizes="4k-64k"):
        """The command of a load that verifies what it wrote, on a device or a file; with `seconds`, for that long."""
        options = [
            "fio", "--name=verify", f"--filename={file}", "--rw=randwrite", f"--bsrange={sizes}",
            f"--size={megabytes}m", "--ioengine=libaio", "--direct=1", f"--iodepth={depth}", "--verify=crc32c",
            "--verify_fatal=1", "--do_verify=1", "--fallocate=none", "--output-format=json", "--output=/tmp/fio.json",
        ]  # fmt: skip
        if seconds:
            options += ["--time_based", f"--runtime={seconds}", "--verify_backlog=64"]
        return f"""cd /tmp
            rm -f fio.json
            {" ".join(options)}
            code=$?
            [ $code = 0 ] || dmesg | tail -5
            cat fio.json
            exit $code"""

    def verify(self, file, megabytes, **options):
        """Runs such a load: bytes written, bytes read, errors."""
        return self.fio_result(self.run(self.fio(file, megabytes, **options), seconds=180))

    @staticmethod
    def fio_result(output):
        """What a load did: bytes written and read, and errors."""
        job = json.loads(output[output.index("{") :])["jobs"][0]
        return job["write"]["io_bytes"], job["read"]["io_bytes"], job["error"]


def sparse_file(folder, name, megabytes):
    """A file of this machine that a guest has as a drive."""
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.truncate(megabytes << 20)
    return path
