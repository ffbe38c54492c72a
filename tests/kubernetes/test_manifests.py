"""What consist train --on kubernetes --dry-run prints, beside the schemas of Kubernetes."""
from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Dict

import pytest
from training import TINY, documented_commands, write_cluster

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (tests/requirements.txt)")
schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (tests/requirements.txt)")

ALL_KEYS = ['image = "registry.example/consist:latest"', 'namespace = "train"', "nodes = 2", "gpus-per-node = 8", "efa-per-node = 32", 'zone = "us-east-1a"',
            'memory = "512Gi"', 'shared-memory = "32Gi"', "cpus-per-node = 90", 'resources = ["rdma/hca=1"]', 'working-folder = "/work"',
            'node-labels = ["node.kubernetes.io/instance-type=p5.48xlarge"]', 'claims = ["data:/data"]', "before = ['echo \"it is here: {yes}\"']",
            "[kubernetes.environment]", 'NCCL_DEBUG = "INFO: \\"all\\""']


def dry_run(program: str, folder: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, "train", "--on", "kubernetes", "--dry-run", *TINY, *map(str, words)], cwd=folder, capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL, env={**os.environ, "PATH": "/nowhere"})


def objects_of(text: str) -> Dict[str, Any]:
    """The objects by kind, each valid for the oldest and the newest Kubernetes that the schemas know of these."""
    found = {entry["kind"]: entry for entry in yaml.safe_load_all(text)}
    assert sorted(found) == ["ConfigMap", "Job", "Secret", "Service"]
    for entry in found.values():
        for version in ("1.29", "1.31", schemas.latest_version()):
            schemas.validate(entry, version, strict=True)
    return found


def test_all_keys_make_valid_objects(program: str, tmp_path: Path) -> None:
    write_cluster(tmp_path, *ALL_KEYS, kind="kubernetes")
    run = dry_run(program, tmp_path, "--archive", "run.h5", "--global-batch", 16)
    assert run.returncode == 0, run.stderr
    objects = objects_of(run.stdout)
    name = objects["Job"]["metadata"]["name"]
    assert re.fullmatch(r"consist-train-\d{8}-\d{6}-[0-9a-f]{6}", name)
    assert {(entry["metadata"]["name"], entry["metadata"]["namespace"]) for entry in objects.values()} == {(name, "train")}
    spec = objects["Job"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"], spec["backoffLimit"]) == ("Indexed", 2, 2, 0)
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never" and pod["subdomain"] == objects["Service"]["metadata"]["name"]
    assert objects["Service"]["spec"]["clusterIP"] == "None" and objects["Service"]["spec"]["publishNotReadyAddresses"]
    container, = pod["containers"]
    assert container["resources"] == {
        "limits": {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi", "rdma/hca": "1", "memory": "512Gi"},
        "requests": {"memory": "512Gi", "cpu": "90"}}
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}
    assert volumes[mounts["/data"]]["persistentVolumeClaim"] == {"claimName": "data"}
    assert volumes[mounts["/consist-secret"]]["secret"] == {"secretName": name, "defaultMode": 0o400}
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    zone, = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert zone["topologyKey"] == "topology.kubernetes.io/zone"
    labels = spec["template"]["metadata"]["labels"]
    assert zone["labelSelector"]["matchLabels"].items() <= labels.items() and objects["Service"]["spec"]["selector"].items() <= labels.items()
    assert "us-east-1a" in str(pod["affinity"]["nodeAffinity"])
    script = objects["ConfigMap"]["data"]["node.sh"]
    assert subprocess.run(["bash", "-n"], input=script, text=True, timeout=20, check=False).returncode == 0
    assert "export NCCL_DEBUG='INFO: \"all\"'\necho \"it is here: {yes}\"\n" in script
    assert f'consist launch --nproc 8 --nnodes 2 --node-rank "$node" --master {name}-0.{name}:29500 -- train --config /consist-job/run.toml' in script
    assert 'model = "qwen3-tiny"' in objects["ConfigMap"]["data"]["run.toml"]
    assert objects["Secret"]["stringData"] == {"token": "SECRET"}


def test_few_keys_are_enough(program: str, tmp_path: Path) -> None:
    write_cluster(tmp_path, 'image = "consist"', kind="kubernetes")
    objects = objects_of(dry_run(program, tmp_path, "--ranks", 1).stdout)
    container, = objects["Job"]["spec"]["template"]["spec"]["containers"]
    assert "resources" not in container and "securityContext" not in container
    assert "--nproc 1 -- train" in objects["ConfigMap"]["data"]["node.sh"]


def test_with_restarts_a_lost_pod_is_made_anew(program: str, tmp_path: Path) -> None:
    write_cluster(tmp_path, 'image = "consist"', "nodes = 4", kind="kubernetes")
    objects = objects_of(dry_run(program, tmp_path, "--max-restarts", 3).stdout)
    lost, failed = objects["Job"]["spec"]["podFailurePolicy"]["rules"]
    assert lost["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}] and lost["action"] == "Count"
    assert failed == {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}}
    assert objects["Job"]["spec"]["backoffLimit"] > 0
    assert "--max-restarts 3" in objects["ConfigMap"]["data"]["node.sh"]


@pytest.mark.parametrize("line,message", [
    ("nodes = 2", "has no kubernetes.image: the container image in which Consist is"),
    ('image = "a"\nresources = ["rdma/hca"]', "has 'rdma/hca'; each is such as \"rdma/hca=1\""),
    ('image = "a"\nclaims = ["data"]', "has 'data'; each is such as \"training-data:/data\""),
    ('image = "a"\npartition = "gpu"', "kubernetes.partition is no key of a cluster's file"),
])
def test_a_wrong_line_is_named(program: str, tmp_path: Path, line: str, message: str) -> None:
    write_cluster(tmp_path, line, kind="kubernetes")
    run = dry_run(program, tmp_path)
    assert run.returncode == 2 and message in run.stderr and run.stdout == "", run.stderr


def test_commands_of_the_documentation_can_be_given(program: str, tmp_path: Path) -> None:
    commands = documented_commands("kubernetes", tmp_path)
    assert len(commands) == 2
    for words in commands:
        run = subprocess.run([program, *words], cwd=tmp_path, capture_output=True, text=True,
                             timeout=60, stdin=subprocess.DEVNULL)
        assert run.returncode == 0, run.stderr
        assert objects_of(run.stdout)["Job"]["spec"]["completions"] == 2
