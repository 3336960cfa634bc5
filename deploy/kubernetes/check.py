"""Checks the manifests of this folder: against the schemas of the Kubernetes API, and against a real server and Redis.

    deploy/kubernetes/run

Each document has to be valid, without an unknown field, in each version below. A server with the environment of the manifest, but
other ports and paths, has to answer the probes, to have the metric of the autoscaler, and to end with the status 0 within the grace
period after SIGTERM. No cluster is started.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml
from local import fetch, free_port, wait_for

FOLDER = pathlib.Path(__file__).resolve().parent
# The oldest one has `preStop: sleep` enabled; see kubernetes.io/releases for those that are supported.
VERSIONS = ("1.30", "1.33", "1.37")
SECRET = "0123456789abcdef0123456789abcdef"


def documents():
    return [document for file in sorted(FOLDER.glob("*.yaml")) for document in yaml.safe_load_all(file.read_text())]


def of_kind(kind):
    return [document for document in documents() if document["kind"] == kind]


def check_schemas():
    for document in documents():
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


def check_names():
    """What one document calls another one is there: labels, ports, the deployment."""
    (deployment,) = of_kind("Deployment")
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    ports = {port["name"] for port in container()["ports"]}
    for service in of_kind("Service"):
        assert service["spec"]["selector"] == labels, service
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, service
    for budget in of_kind("PodDisruptionBudget"):
        assert budget["spec"]["selector"]["matchLabels"] == labels, budget
    for policy in of_kind("NetworkPolicy"):
        assert policy["spec"]["podSelector"]["matchLabels"] == labels, policy
    for autoscaler in of_kind("HorizontalPodAutoscaler"):
        assert autoscaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"], autoscaler
    services = {service["metadata"]["name"]: service for service in of_kind("Service")}
    for ingress in of_kind("Ingress"):
        backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        assert backend["port"]["name"] in {port["name"] for port in services[backend["name"]]["spec"]["ports"]}, backend


def container():
    return of_kind("Deployment")[0]["spec"]["template"]["spec"]["containers"][0]


def grace_s():
    """How long a pod has after SIGTERM. It has to suffice for the drain."""
    pod = of_kind("Deployment")[0]["spec"]["template"]["spec"]
    sleep_s = container()["lifecycle"]["preStop"]["sleep"]["seconds"]
    left_s = pod["terminationGracePeriodSeconds"] - sleep_s
    drain_s = int(environment()["TIDEWIRE_DRAIN_TIMEOUT_MS"]) / 1000
    assert left_s > drain_s + 2, f"{left_s} s for a drain of {drain_s} s and 2 s for the rest"
    return left_s


def environment():
    return {entry["name"]: entry.get("value") for entry in container()["env"]}


def check_server(program, folder):
    ports = {"5006": free_port(), "5007": free_port()}
    broker = free_port()
    redis = subprocess.Popen(
        ["redis-server", "--port", str(broker), "--save", "", "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL
    )
    given = environment()
    mount = container()["volumeMounts"][0]["mountPath"]
    for name, value in given.items():
        if value is None:
            value = f"redis://127.0.0.1:{broker}"
        value = re.sub(r"^0\.0\.0\.0:(\d+)$", lambda found: f"127.0.0.1:{ports[found[1]]}", value)
        if value.startswith(f"{mount}/"):
            file = pathlib.Path(folder, value.removeprefix(f"{mount}/"))
            file.write_text(SECRET)
            file.chmod(0o440)
            value = str(file)
        given[name] = value
    server = subprocess.Popen([program, "serve"], env={**os.environ, **given}, stdout=subprocess.DEVNULL)
    try:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container()[probe]["httpGet"]["path"]
            wait_for(f"http://127.0.0.1:{ports['5007']}{path}")
        metrics = fetch(f"http://127.0.0.1:{ports['5007']}/metrics")
        for metric in of_kind("HorizontalPodAutoscaler")[0]["spec"]["metrics"]:
            name = metric["pods"]["metric"]["name"]
            assert re.search(rf"^{name}(\{{.*\}})? ", metrics, re.MULTILINE), f"the server has no metric {name}"
        check_load(program, folder, f"ws://127.0.0.1:{ports['5006']}/ws")
        server.send_signal(signal.SIGTERM)
        assert server.wait(grace_s()) == 0, "the server did not end in order"
    finally:
        server.kill()
        redis.kill()
        server.wait()
        redis.wait()


def check_load(program, folder, url):
    """The load of the manifest, with fewer connections and for a moment, loses nothing."""
    (load,) = of_kind("Job")[0]["spec"]["template"]["spec"]["containers"]
    instead = {"--connections": "10", "--duration-s": "0.3", "--out": f"{folder}/report"}
    words = [word for word in load["args"] if word.partition("=")[0] not in instead and "://" not in word]
    words += [f"{name}={value}" for name, value in instead.items()]
    secrets = {entry["name"]: SECRET for entry in load["env"]}
    bench = subprocess.run(
        [program, *words, url], env={**os.environ, **secrets}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert bench.returncode in (0, 3, 4), bench.stderr
    assert len(json.loads(bench.stdout)["results"]) == 3, bench.stdout


def main():
    check_schemas()
    check_names()
    with tempfile.TemporaryDirectory() as folder:
        check_server(sys.argv[1], folder)
    print(
        f"kubernetes: {len(documents())} documents are valid in {', '.join(VERSIONS)}, and the server does what they say"
    )


if __name__ == "__main__":
    main()
