"""The files that schedule a job, on Kubernetes and by systemd: what they start runs here, by their own command."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.jobs.jobs import COMMAND, Workplace, clean_environment, run_program, start_command
from support.stores.object_store import ObjectStore, object_store

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import parse_bytes

DOCKER = Path(__file__).parents[2] / "docker"
FOREST = Path(__file__).parents[2] / "jobs" / "recipes" / "forest"
NEED_A_PERSON = {
    exit_codes.USAGE,
    exit_codes.DATA,
    exit_codes.NUMERICS,
    exit_codes.MEMORY,
    exit_codes.MODEL,
    exit_codes.HELD,
}
"""Exit codes after which the same command would say the same."""

LEAVING_SECONDS = 10
"""The longest time that a job takes to stop after a signal."""


def read_kubernetes(name: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a file by their kind and name."""
    objects = yaml.safe_load_all((DOCKER / "kubernetes" / name).read_text())
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in objects}


CRON, CLUSTER = read_kubernetes("cronjob.yaml"), read_kubernetes("cluster.yaml")
JOB = CRON["CronJob/ridgestream"]["spec"]["jobTemplate"]["spec"]
PODS = {
    "job": JOB["template"],
    "scheduler": CLUSTER["Deployment/ridgestream-scheduler"]["spec"]["template"],
    "worker": CLUSTER["Deployment/ridgestream-worker"]["spec"]["template"],
}
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]


def container(pod: str) -> dict[str, Any]:
    (only,) = PODS[pod]["spec"]["containers"]
    assert only["name"] == pod
    return dict(only)


def n_bytes(text: str) -> int:
    """Return the bytes of a size as Kubernetes writes it."""
    return parse_bytes(f"{text}B")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectStore]:
    with object_store(tmp_path) as server:
        yield server


@pytest.mark.thorough
def test_the_cron_job_learns_what_is_in_the_bucket_and_later_nothing_twice(server: ObjectStore, tmp_path: Path) -> None:
    for name in ("train/part-00.parquet", "test/part-00.parquet"):
        (tmp_path / "forest" / name).parent.mkdir(parents=True)
        shutil.copy(FOREST / name, tmp_path / "forest" / name)
    small = {"MAX_BASIS": "20", "METRIC": "standardized", "KERNEL__GAMMA": "0.02", "REGULARIZATION": "1e-5"}
    settings = {f"RIDGESTREAM_MODEL__{key}": value for key, value in small.items()}
    environment = clean_environment() | dict(server.environment) | settings
    filled = [sys.executable, str(DOCKER / "fill_bucket.py"), str(tmp_path / "forest"), "forest"]
    subprocess.run(filled, check=True, env=environment)
    (mount,) = [each for each in container("job")["volumeMounts"] if each["name"] == "job"]
    for name, text in CRON["ConfigMap/ridgestream-job"]["data"].items():
        (tmp_path / name).write_text(text)
    arguments = [word.replace(mount["mountPath"], str(tmp_path)) for word in container("job")["args"]]
    done = [run_program([COMMAND, *arguments, "--json"], environment=environment) for _ in range(2)]
    assert [each.result["new_rows"] for each in done] == [50_000, 0]
    assert [each.result["rows_seen"] for each in done] == [50_000, 50_000]
    assert all(json.loads(line)["event"] for each in done for line in each.err.splitlines())


def test_the_cron_job_s_file_is_a_job_that_fits_its_pod(tmp_path: Path) -> None:
    (name,) = CRON["ConfigMap/ridgestream-job"]["data"]
    (tmp_path / name).write_text(CRON["ConfigMap/ridgestream-job"]["data"][name])
    job = read_job(tmp_path / name, {})
    assert isinstance(job.memory_limit, int)
    assert f"/etc/ridgestream/{name}" in container("job")["args"]
    volumes = {each["name"]: each for pod in PODS.values() for each in pod["spec"]["volumes"]}
    assert volumes["job"]["configMap"]["name"] == "ridgestream-job"
    in_memory = sum(n_bytes(each["emptyDir"]["sizeLimit"]) for each in volumes.values() if "emptyDir" in each)
    assert job.memory_limit + in_memory <= n_bytes(container("job")["resources"]["limits"]["memory"])


def test_the_cron_job_keeps_the_learner_s_machine_code() -> None:
    claim = CRON["PersistentVolumeClaim/ridgestream-cache"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    (volume,) = [each for each in JOB["template"]["spec"]["volumes"] if each["name"] == "cache"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (mount,) = [each for each in container("job")["volumeMounts"] if each["name"] == "cache"]
    assert mount["mountPath"] == "/var/cache/ridgestream"
    assert "NUMBA_CACHE_DIR=/var/cache/ridgestream/numba" in (DOCKER / "Dockerfile").read_text()


DAY_SECONDS = 24 * 3600


def test_a_run_that_hangs_is_ended_before_the_next_night_and_somebody_is_told() -> None:
    assert JOB["activeDeadlineSeconds"] + CRON["CronJob/ridgestream"]["spec"]["startingDeadlineSeconds"] < DAY_SECONDS
    hours = re.fullmatch(r"(\d+)h", service()["TimeoutStartSec"])
    assert hours
    assert int(hours[1]) * 3600 < DAY_SECONDS
    told = read_unit("ridgestream@.service")["Unit"]["OnFailure"]
    assert (DOCKER / "systemd" / told.replace("%i", "")).is_file()


def test_what_needs_a_person_is_not_tried_again() -> None:
    (rule,) = [rule for rule in JOB["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert rule["onExitCodes"]["containerName"] == container("job")["name"]
    assert set(rule["onExitCodes"]["values"]) == NEED_A_PERSON
    assert JOB["backoffLimit"] > 0
    assert set(map(int, service()["RestartPreventExitStatus"].split())) == NEED_A_PERSON


def test_a_night_does_not_begin_before_the_last_has_ended_and_may_leave_in_time() -> None:
    assert CRON["CronJob/ridgestream"]["spec"]["concurrencyPolicy"] == "Forbid"
    assert PODS["job"]["spec"]["restartPolicy"] == "Never"
    assert PODS["job"]["spec"]["terminationGracePeriodSeconds"] > LEAVING_SECONDS
    assert int(service()["TimeoutStopSec"]) > LEAVING_SECONDS


@pytest.mark.parametrize("name", PODS)
def test_pods_are_no_root_and_write_to_volumes_only(name: str) -> None:
    pod, only = PODS[name]["spec"], container(name)
    assert only["image"] == COMPOSE["job"]["image"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False  # its variables would be taken for keys of the job file
    security = only["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert {each["name"] for each in only["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert n_bytes(only["resources"]["limits"]["memory"]) >= n_bytes(only["resources"]["requests"]["memory"])


def test_keys_come_from_a_secret_and_are_in_no_file() -> None:
    assert container("job")["envFrom"] == container("worker")["envFrom"]
    assert container("job")["envFrom"][0]["secretRef"]
    for path in (*DOCKER.glob("kubernetes/*"), *DOCKER.glob("systemd/*")):
        assert not re.search(r"SECRET_ACCESS_KEY\s*[=:]\s*\S", path.read_text()), path


@pytest.mark.parametrize("name", ["scheduler", "worker"])
def test_the_cluster_is_started_as_that_of_compose(name: str) -> None:
    """Whose commands are run in its own test; here the addresses and the workers' limits differ."""
    (here,) = [[*container(name)["command"], *container(name)["args"]]]
    there = [*COMPOSE[name]["entrypoint"], *COMPOSE[name]["command"]]

    def plain(words: list[str]) -> list[str]:
        text = " ".join(words).replace("ridgestream-scheduler", "scheduler").replace("=", " ").replace("127.0.0.1", "")
        return sorted(re.sub(r"--memory-limit \S+", "--memory-limit", text).split())

    assert plain(here) == plain(there)


def test_who_may_reach_the_scheduler_is_who_belongs_to_it() -> None:
    policy, service = CLUSTER["NetworkPolicy/ridgestream-cluster"]["spec"], CLUSTER["Service/ridgestream-scheduler"]
    (allowed,) = [each["podSelector"]["matchLabels"] for rule in policy["ingress"] for each in rule["from"]]
    assert all(allowed.items() <= pod["metadata"]["labels"].items() for pod in PODS.values())
    assert service["spec"]["selector"] == PODS["scheduler"]["metadata"]["labels"]
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] in {each["name"] for each in container("scheduler")["ports"]}
    assert f"tcp://{service['metadata']['name']}:{port['port']}" in container("worker")["args"]


def service() -> dict[str, str]:
    """Return what the unit says of its process; of a key that is there twice, the last."""
    return dict(read_unit("ridgestream@.service")["Service"])


def read_unit(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys are as they are written
    unit.read(DOCKER / "systemd" / name)
    return unit


@pytest.mark.thorough
def test_the_service_s_own_command_learns_a_night(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    work.job(name="forest.toml")
    program, *arguments = shlex.split(service()["ExecStart"].replace("%i", "forest"))
    assert Path(program).name == Path(COMMAND).name
    log = tmp_path / "journal"
    words = [word.replace("/etc/ridgestream", str(tmp_path)) for word in arguments]
    assert start_command(*words, log=log).wait(60) == 0, log.read_text()
    assert work.store.is_dir()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not on this machine")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for path in DOCKER.glob("systemd/*"):
        text = path.read_text().replace("/opt/ridgestream/bin/ridgestream", "/bin/true")
        (tmp_path / path.name).write_text(text)
    units = [str(path) for path in sorted(tmp_path.iterdir())]
    said = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert not said.stderr
    assert read_unit("ridgestream@.timer")["Timer"]["OnCalendar"]
