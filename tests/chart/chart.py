"""The chart in deploy/chart: what helm, kubeconform and promtool say of it, and its pod run. See `run`."""

import base64
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback

import pod

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
CHART = os.path.join(ROOT, "deploy", "chart")
TOOLS = os.path.join(ROOT, ".cache")
# Of Kubernetes: the oldest that the chart asks for, one in between, and the newest that schemas are there for.
VERSIONS = ["1.25.0", "1.30.0", "1.37.0"]
ALL_ON = [
    "--set", "serviceMonitor.enabled=true", "--set", "prometheusRule.enabled=true", "--set", "dashboard.enabled=true",
    "--set", "auth.existingSecret=passwords", "--set", "tls.existingSecret=certificate", "--set", "replicas=3",
    "--set-json", 'tiers=[{"size":"100g","claim":"110Gi","storageClassName":"local-nvme"},'
    '{"size":"1t","claim":"1100Gi","below":true}]',
    "--set-json", 'extraArgs=["--write-budget","1dwpd"]',
]  # fmt: skip


class Skipped(Exception):
    """A part is missing; the text says which."""


def tool(name):
    for path in (os.path.join(TOOLS, name), shutil.which(name)):
        if path and os.access(path, os.X_OK):
            return path
    raise Skipped(f"no {name}")


def yaml():
    try:
        import yaml as module
    except ImportError as error:
        raise Skipped("no PyYAML") from error
    return module


def run(*command, expect=0, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    assert done.returncode == expect, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def template(*settings, version="1.30.0"):
    """The chart's objects as text."""
    return run(tool("helm"), "template", "cache", CHART, "--kube-version", version, *settings)


def objects(*settings):
    return [one for one in yaml().safe_load_all(template(*settings)) if one]


def lints():
    for settings in ([], ALL_ON):
        text = run(tool("helm"), "lint", "--strict", CHART, *settings)
        assert "0 chart(s) failed" in text, text


def validates():
    package = glob.glob(os.path.join(ROOT, ".venv/lib/python3*/site-packages/kubernetes_validate"))
    if not package:
        raise Skipped("no kubernetes-validate, which has the schemas")
    for version in VERSIONS:
        for settings in ([], ALL_ON):
            rendered = template(*settings, version=version)
            kinds = {one["kind"] for one in yaml().safe_load_all(rendered) if one}
            with tempfile.TemporaryDirectory() as schemas:
                copy_schemas(os.path.join(package[0], "kubernetes-json-schema", f"v{version}-local-strict"), kinds, schemas)
                text = run(
                    tool("kubeconform"), "-summary", "-skip", "ServiceMonitor,PrometheusRule",
                    "-schema-location", schemas + "/{{.ResourceKind}}{{.KindSuffix}}.json", input=rendered,
                )  # fmt: skip
            found = re.search(r"(\d+) resources? .* Valid: (\d+), Invalid: 0, Errors: 0, Skipped: (\d+)", text)
            assert found and int(found[2]) >= 4, text
    print("skipped: validation of ServiceMonitor and PrometheusRule (their schemas are not Kubernetes' own)")


def copy_schemas(source, kinds, folder):
    """Copies the schemas of `kinds`, which point to each other by file, not by addresses of a network."""
    for path in glob.glob(os.path.join(source, "*.json")):
        name = os.path.basename(path)
        if name == "_definitions.json" or any(name.startswith(f"{kind.lower()}-") for kind in kinds):
            with open(path) as file:
                schema = json.loads(file.read().replace('"/api/_definitions.json#', '"_definitions.json#'))
            for address in ("$schema", "$id"):
                schema.pop(address, None)
            with open(os.path.join(folder, name), "w") as file:
                json.dump(schema, file)


def refuses_wrong_values():
    for wrong in ("memory=512Mi", "tiers[0].size=32", "onMismatch=keep", "replica=2", "terminationGracePeriodSeconds=5"):
        text = run(tool("helm"), "template", "cache", CHART, "--kube-version", "1.30.0", "--set", wrong, expect=1)
        assert "values don't meet the specifications of the schema" in text, f"{wrong}: {text}"


def service_monitor_has_the_token():
    all_of = {one["kind"]: one for one in objects(*ALL_ON)}
    [endpoint] = all_of["ServiceMonitor"]["spec"]["endpoints"]
    credentials = endpoint["authorization"]["credentials"]
    secret = all_of["Secret"]
    assert credentials == {"name": secret["metadata"]["name"], "key": "token"}, endpoint
    assert len(base64.b64decode(secret["data"]["token"])) >= 16, "a token that the server takes"
    ports = {port["name"] for port in all_of["Service"]["spec"]["ports"]}
    assert endpoint["port"] in ports, ports
    assert all_of["PrometheusRule"]["spec"]["groups"], "the alerts"
    assert json.loads(all_of["ConfigMap"]["data"]["terrace.json"])["panels"], "the dashboard"


def alerts_fire():
    promtool = tool("promtool")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.join(CHART, "files", "alerts.yaml"), folder)
        shutil.copy(os.path.join(ROOT, "tests", "chart", "alerts_test.yaml"), folder)
        run(promtool, "check", "rules", os.path.join(folder, "alerts.yaml"))
        run(promtool, "test", "rules", os.path.join(folder, "alerts_test.yaml"))
    rules = alert_rules()
    with open(os.path.join(ROOT, "tests", "chart", "alerts_test.yaml")) as file:
        tested = file.read()
    with open(os.path.join(ROOT, "docs", "guide", "operate.md")) as file:
        guide = file.read()
    for rule in rules:
        assert f"alertname: {rule['alert']}\n" in tested, f"no test has {rule['alert']} fire"
        assert f"### {rule['alert']}\n" in guide, f"docs/guide/operate.md has no paragraph on {rule['alert']}"


def alert_rules():
    with open(os.path.join(CHART, "files", "alerts.yaml")) as file:
        [group] = yaml().safe_load(file)["groups"]
    return group["rules"]


def dashboard():
    with open(os.path.join(CHART, "files", "dashboard.json")) as file:
        return json.load(file)


def dashboard_queries():
    board = dashboard()
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    return queries + [one["expr"] for one in board["annotations"]["list"]]


def dashboard_is_sound():
    rules = [
        {"record": f"panel:{at}", "expr": query.replace("$__rate_interval", "5m")}
        for at, query in enumerate(dashboard_queries())
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml().safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        run(tool("promtool"), "check", "rules", file.name)
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in dashboard()["panels"]]
    for at, (x, y, w, h) in enumerate(places):
        assert x + w <= 24, f"panel {at} is too wide"
        for other, (x2, y2, w2, h2) in enumerate(places[:at]):
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y, f"panels {other} and {at} overlap"


def metric_names(queries):
    names = set(re.findall(r"\bterrace_\w+", " ".join(queries)))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Client:
    """Text protocol, as little as the test needs."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.replies = self.socket.makefile("rb")

    def fill(self, records):
        for number in range(records):
            self.socket.sendall(b"set key:%d 0 0 512 noreply\r\n%s\r\n" % (number, b"%08d" % number * 64))
        self.socket.sendall(b"mn\r\n")
        assert self.replies.readline() == b"MN\r\n"

    def hits(self, records):
        found = 0
        for number in range(records):
            self.socket.sendall(b"get key:%d\r\n" % number)
            if self.replies.readline() != b"END\r\n":
                assert self.replies.read(514) == b"%08d" % number * 64 + b"\r\n", f"key:{number}"
                assert self.replies.readline() == b"END\r\n"
                found += 1
        return found


def pod_runs(binary):
    reason = pod.can_run()
    if reason:
        raise Skipped(reason)
    tool("helm")
    port, records = free_port(), 100_000
    settings = ["--set", f"memory=64,admin.port={free_port()},terminationGracePeriodSeconds=20"]
    settings += ["--set-json", 'tiers=[{"size":"256m","claim":"1Gi"}]']
    settings += ["--set-json", json.dumps(["-p", str(port)]).join(["extraArgs=", ""])]
    rendered = objects(*settings)
    [secret] = [one for one in rendered if one["kind"] == "Secret"]
    token = base64.b64decode(secret["data"]["token"]).decode()
    with pod.Pod(rendered, binary) as running:
        running.start()
        running.wait_ready()
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert running.probe(probe) == 200, f"{probe}: {running.output()}"
        assert running.get("/metrics")[0] == 401, "metrics without a token"
        status, metrics = running.get("/metrics", token)
        assert status == 200, metrics
        wanted = metric_names([rule["expr"] for rule in alert_rules()] + dashboard_queries())
        known = set(re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE))
        # Unknown until the server has written for a day.
        assert wanted - known <= {"terrace_tier_life_years"}, sorted(wanted - known)
        Client(port).fill(records)
        running.stop(signal.SIGKILL)
        running.start()
        running.wait_ready()
        running.wait_recovered()
        kept = Client(port).hits(records)
        assert kept == records, f"{kept} of {records} after SIGKILL: {running.output()}"
        # Another pod with the same claim: what lived with the first one is gone.
        running.delete()
        running.schedule()
        running.start()
        running.wait_ready()
        running.wait_recovered()
        kept = Client(port).hits(records)
        assert kept == records, f"{kept} of {records} in a new pod: {running.output()}"
        output = running.output()
    assert output.count("warm: ") == 2, output
    assert "panicked" not in output, output


def main(binary):
    checks = [
        ("the chart lints", lints),
        ("what it renders is valid", validates),
        ("wrong values are refused", refuses_wrong_values),
        ("Prometheus has the token", service_monitor_has_the_token),
        ("alerts fire on what they are for", alerts_fire),
        ("the dashboard's queries parse, and its panels do not overlap", dashboard_is_sound),
        ("the pod runs, and comes back warm", lambda: pod_runs(binary)),
    ]
    failed = 0
    for name, check in checks:
        try:
            check()
            print(f"ok: {name}", flush=True)
        except Skipped as reason:
            print(f"skipped: {name} ({reason})", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED: {name}", flush=True)
            traceback.print_exc()
    # Suites take what is skipped off the passed ones; one check names a part of it as skipped.
    passed = len(checks) - failed + 1
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(os.path.realpath(sys.argv[1])))
