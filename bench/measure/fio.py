"""What a drive does without a server, on the file of a server's tier."""

import dataclasses
import json
import subprocess


@dataclasses.dataclass(frozen=True)
class Fio:
    """Rates per second, times in microseconds, of reads."""

    iops: float
    bytes_per_second: float
    cpu_us: float
    p99_us: float
    mean_us: float


def reads(
    path, seconds, cpus, span, rw="randread", size="4k", depth=128, jobs=1, rate=None, writes=None
):
    """Reads of the first `span` bytes of a file, with direct I/O through io_uring, `depth` in flight for each of
    the `jobs`; no more than `rate` per second if given. What lies behind what was written needs no drive. A `size`
    of several is as for fio's `bssplit`. `writes` is a file and the bytes per second that another job, elsewhere,
    writes to it meanwhile."""
    common = ["--ioengine=io_uring", "--direct=1", "--registerfiles=1", "--fixedbufs=1"]
    common += ["--time_based", f"--runtime={round(1000 * seconds)}ms"]
    command = ["fio", "--output-format=json", *common]
    command += ["--name=reads", f"--filename={path}", "--readonly", f"--rw={rw}"]
    command += [f"--bssplit={size}" if "/" in size else f"--bs={size}"]
    command += [f"--size={span >> 20 << 20}", "--norandommap", "--randrepeat=0", f"--iodepth={depth}"]
    command += [f"--cpus_allowed={','.join(map(str, cpus))}"]
    if jobs > 1:
        command += [f"--numjobs={jobs}", "--group_reporting"]
    if rate:
        command.append(f"--rate_iops={round(rate)}")
    if writes and writes[1] >= 1:
        other, bytes_per_second = writes
        # Options before the first name count for all jobs; those of a job end at the next name.
        command.remove("--readonly")
        command += ["--name=writes", f"--filename={other}", "--rw=write", "--bs=256k", "--size=256m"]
        command += ["--iodepth=2", f"--rate={round(bytes_per_second)}"]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds + 120, check=True
    )
    job = json.loads(result.stdout)["jobs"][0]
    read, ios = job["read"], max(job["read"]["total_ios"], 1)
    # Of several jobs these are the mean.
    cpu = jobs * (job["usr_cpu"] + job["sys_cpu"]) / 100 * read["runtime"] * 1000
    return Fio(
        iops=read["iops"],
        bytes_per_second=read["bw_bytes"],
        cpu_us=cpu / ios,
        p99_us=read["clat_ns"]["percentile"]["99.000000"] / 1000,
        mean_us=read["lat_ns"]["mean"] / 1000,
    )
