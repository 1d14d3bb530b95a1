"""The files in docker/, read as Docker reads them: what they name is there, and what they start runs here.

No Docker engine is needed: each service of compose.yaml becomes a process of this machine, started by the service's own
command and environment, with addresses and folders of this machine in place of the containers'.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import entry_points, requires
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import ridgestream
from ridgestream.jobs.cluster.package_versions import version_of

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
FOREST = ROOT / "jobs" / "recipes" / "forest"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OWN = {name: service for name, service in SERVICES.items() if "build" in service}
"""The services of this project's image; the others stand in for what a user has."""

VOLUMES: dict[str, Any] = COMPOSE["volumes"]
"""The volumes that Docker keeps from one run to the next."""

HEALTHY_SECONDS, JOB_SECONDS, STOP_SECONDS = 60, 180, 10
SIZES = {"m": 2**20, "g": 2**30, "MiB": 2**20, "GiB": 2**30}


def read_dockerfile() -> list[tuple[str, str]]:
    """Return the instructions, each as its word and what follows, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


DOCKERFILE = read_dockerfile()


def stages() -> list[list[tuple[str, str]]]:
    starts = [i for i, (word, _) in enumerate(DOCKERFILE) if word == "FROM"]
    return [DOCKERFILE[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def in_image(word: str) -> list[str]:
    """Return the last stage's instructions of a kind."""
    return [rest for instruction, rest in stages()[-1] if instruction == word]


def image_environment() -> dict[str, str]:
    return dict(item.split("=", 1) for rest in in_image("ENV") for item in shlex.split(rest))


def copied() -> list[str]:
    """Return what the Dockerfile copies from the tree."""
    return [source for word, rest in DOCKERFILE if word == "COPY" for source in rest.split()[:-1]]


def is_in_context(path: str) -> bool:
    """Return whether .dockerignore lets a file through, by the last pattern that matches it or a folder above it."""
    inside = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        parts = re.split(r"(\*\*/|\*)", pattern.removeprefix("!").rstrip("/"))
        regex = "".join({"**/": "(.*/)?", "*": "[^/]*"}.get(part, re.escape(part)) for part in parts)
        if re.fullmatch(f"{regex}(/.*)?", path):
            inside = pattern.startswith("!")
    return inside


def mounts(service: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return source and mode of each mounted folder of the tree, by the path in the container."""
    return {target: (source, mode) for source, target, mode in split_volumes(service) if source not in VOLUMES}


def named_volumes(service: dict[str, Any]) -> dict[str, str]:
    """Return the name of each volume that Docker keeps, by the path in the container."""
    return {target: source for source, target, mode in split_volumes(service) if source in VOLUMES and mode == "rw"}


def split_volumes(service: dict[str, Any]) -> list[list[str]]:
    return [[*text.split(":"), "rw"][:3] for text in service.get("volumes", ())]


def in_memory(service: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the options of each tmpfs, by the path in the container."""
    split = [text.split(":") for text in service.get("tmpfs", ())]
    return {path: dict(option.split("=") for option in options.split(",")) for path, options in split}


def command(service: dict[str, Any]) -> list[str]:
    """Return the service's whole command: its entry point, or else the image's, then its arguments."""
    return [*(service.get("entrypoint") or json.loads(in_image("ENTRYPOINT")[-1])), *service["command"]]


def addresses(service: dict[str, Any]) -> set[tuple[str, str]]:
    """Return host and port of the other services that the command and its environment name."""
    texts = [*command(service), *service.get("environment", {}).values()]
    matches = re.findall(r"\b(?:tcp|http)://([\w.-]+):(\d+)", " ".join(texts))
    return {(host, port) for host, port in matches if host != "127.0.0.1"}


def n_bytes(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)([a-zA-Z]+)", text)
    assert match, text
    return float(match[1]) * SIZES[match[2]]


def console_script(name: str) -> list[str]:
    """Return how to run an installed command without its wrapper, which need not be on the PATH."""
    script = next(iter(entry_points(group="console_scripts", name=name)))
    call = f"sys.argv[0] = {name!r}; from {script.module} import {script.attr} as main; sys.exit(main())"
    return [sys.executable, "-c", f"import sys; {call}"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Machine:
    """This machine in place of Docker: its folders and ports stand for those of the containers."""

    work: Path
    """The folder for everything that is written."""
    folders: dict[str, Path]
    """By the path in the container."""
    ports: dict[str, int] = field(default_factory=dict)
    """By the port of a service that others may use."""

    def translate(self, text: str, own_ports: dict[str, int]) -> str:
        """Put what is here in place of what is in the container, in an argument or a variable's value."""
        hosts = {f"{host}:{port}": f"127.0.0.1:{here}" for host in SERVICES for port, here in self.ports.items()}
        ports = {port: str(here) for port, here in own_ports.items()}
        paths = {path: str(folder) for path, folder in self.folders.items()}
        known = hosts | ports | paths
        pattern = "|".join(re.escape(text) for text in sorted(known, key=len, reverse=True))
        return re.sub(rf"(?<![\w.])({pattern})(?![\w.-])", lambda match: known[match[1]], text)


class Container:
    """One service as a process."""

    def __init__(self, name: str, machine: Machine, label: str, extra: dict[str, str]) -> None:
        self.service, self.machine = SERVICES[name], machine
        self.log = machine.work / f"{label}.log"
        exposed = {str(port): free_port() for port in self.service.get("expose", ())}
        machine.ports.update(exposed)
        own = re.findall(r"127\.0\.0\.1:(\d+)", " ".join(self.service.get("healthcheck", {}).get("test", ())))
        self._own_ports = {port: free_port() for port in own} | exposed
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(machine.folders["/var/cache/ridgestream"]),
            "TMPDIR": str(machine.folders["/tmp"]),  # noqa: S108
        }
        for key, value in {**image_environment(), **self.service.get("environment", {}), **extra}.items():
            self._environment[key] = machine.translate(value, self._own_ports)
        self.environment = {key: value for key, value in self._environment.items() if key.startswith("AWS_")}
        self.process = self._start(command(self.service), self.log)

    def wait_until_healthy(self) -> None:
        """Ask as the health check does until it says yes; fail if the process ends before, or time is up."""
        kind, *test = self.service["healthcheck"]["test"]
        assert kind == "CMD"
        until = time.monotonic() + HEALTHY_SECONDS
        while self._start(test, self.machine.work / "health.log").wait() != 0:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        """Send what `docker compose down` sends; fail if the process is not gone when Docker would kill it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)

    def _start(self, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        program = [sys.executable] if words[0] == "python" else console_script(words[0])
        arguments = [self.machine.translate(word, self._own_ports) for word in words[1:]]
        with log.open("wb") as output:
            return subprocess.Popen(
                [*program, *arguments],
                cwd=self.machine.work,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Give every folder of the containers a place: the tree's own for sources, with two partitions only, else new."""
    folders = {"/var/cache/ridgestream": tmp_path / "cache", "/tmp": tmp_path / "tmp"}  # noqa: S108
    for service in SERVICES.values():
        folders |= {target: (DOCKER / source).resolve() for target, (source, _) in mounts(service).items()}
    (source,) = [target for target, folder in folders.items() if folder == FOREST]
    folders[source] = tmp_path / "forest"
    for name in ("train/part-00.parquet", "train/part-01.parquet", "test/part-00.parquet"):
        (tmp_path / "forest" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FOREST / name, tmp_path / "forest" / name)
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    return Machine(tmp_path, folders)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(name: str, machine: Machine, stack: ExitStack, **extra: str) -> list[Container]:
    """Start a service, each of its replicas."""
    started = []
    for replica in range(SERVICES[name].get("deploy", {}).get("replicas", 1)):
        started.append(Container(name, machine, f"{name}-{replica}", extra))
        stack.callback(started[-1].stop)
    return started


@pytest.mark.thorough
def test_the_job_runs_on_the_cluster_from_the_object_store_to_a_committed_model(
    machine: Machine, stack: ExitStack
) -> None:
    (objects,), (scheduler,) = (start(name, machine, stack) for name in ("objects", "scheduler"))
    objects.wait_until_healthy()
    (partitions,) = start("partitions", machine, stack)
    assert partitions.process.wait(JOB_SECONDS) == 0, partitions.log.read_text()
    scheduler.wait_until_healthy()
    workers = start("worker", machine, stack)
    for worker in workers:
        worker.wait_until_healthy()
    (job,) = start("job", machine, stack, RIDGESTREAM_MODEL__MAX_BASIS="50")
    assert job.process.wait(JOB_SECONDS) == 0, job.log.read_text()

    store = SERVICES["job"]["command"][SERVICES["job"]["command"].index("--store") + 1]
    inspect = [*console_script("ridgestream"), "inspect", store, "--json"]
    environment = os.environ | job.environment
    contents = json.loads(subprocess.run(inspect, check=True, capture_output=True, text=True, env=environment).stdout)
    (model,) = contents["models"]
    assert (contents["rows"], model["name"], model["n_basis"], model["partitions_consumed"]) == (
        100_000,
        "forest",
        50,
        2,
    )
    assert model["history"][0]["test_error"] < 0.30
    log = scheduler.log.read_text()
    assert len(re.findall("Register worker", log)) == len(workers) == 2
    assert "Receive client connection" in log
    assert all(json.loads(line)["event"] for line in job.log.read_text().splitlines() if line.startswith("{"))
    cached = list((machine.folders["/var/cache/ridgestream"] / "numba").rglob("*.nbi"))
    assert cached, "nothing was compiled into NUMBA_CACHE_DIR"


def test_services_name_what_is_there() -> None:
    for name, service in OWN.items():
        assert (DOCKER / service["build"]["context"]).resolve() == ROOT, name
        assert (ROOT / service["build"]["dockerfile"]).is_file(), name
    for service in SERVICES.values():
        for source, mode in mounts(service).values():
            assert (DOCKER / source).is_dir(), source
            assert mode == "ro", source
        for word in service["command"]:
            path = PurePosixPath(word)
            if path.suffix in (".toml", ".py"):
                source, _ = mounts(service)[str(path.parent)]
                assert (DOCKER / source / path.name).is_file(), path
    readme = (DOCKER / "README.md").read_text()
    named = re.findall(r"\b(?:docker|tests/data|jobs)/[\w./@-]*\w", readme)
    files = {path.relative_to(ROOT).as_posix() for path in DOCKER.rglob("*") if path.is_file()}
    assert set(named) == files - {"docker/README.md", "docker/fill_bucket.py"}


def test_services_reach_each_other_and_wait_for_it() -> None:
    reached = {name: addresses(service) for name, service in SERVICES.items()}
    objects, scheduler = ("objects", "5000"), ("scheduler", "8786")
    assert reached == {
        "objects": set(),
        "partitions": {objects},
        "scheduler": set(),
        "worker": {scheduler, objects},
        "job": {scheduler, objects},
    }
    for name in SERVICES:
        waited_for = waited_by(name)
        for host, port in reached[name]:
            assert waited_for.get(host) == "service_healthy", (name, host)
            assert port in SERVICES[host]["expose"], name
        for host, condition in waited_for.items():
            assert ("healthcheck" in SERVICES[host]) == (condition == "service_healthy"), host
    assert set(waited_by("job")) == set(SERVICES) - {"job"}


def waited_by(name: str) -> dict[str, str]:
    """Return what a service waits for, by itself or through another, and until when."""
    own = {host: what["condition"] for host, what in SERVICES[name].get("depends_on", {}).items()}
    return {host: when for other in own for host, when in waited_by(other).items()} | own


def test_services_of_the_image_may_write_to_memory_and_the_cache_only() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert not {"privileged", "user", "cap_add", "ports", "network_mode"} & set(service), name
    for name, service in OWN.items():
        assert service["read_only"] is True, name
        assert set(in_memory(service)) == {"/tmp"}, name  # noqa: S108
        assert named_volumes(service) == {"/var/cache/ridgestream": "cache"}, name
        places = (*mounts(service), *in_memory(service), *named_volumes(service))
        settings = [*service.get("environment", {}).values(), *image_environment().values()]
        for path in re.findall(r"(?:^|(?<==))/[\w./-]+", "\n".join([*command(service), *settings]), re.MULTILINE):
            assert any(PurePosixPath(path).is_relative_to(place) for place in places), path


def test_who_reads_the_bucket_has_the_same_keys() -> None:
    of_bucket = [name for name, service in SERVICES.items() if ("objects", "5000") in addresses(service)]
    keys = [{k: v for k, v in SERVICES[name]["environment"].items() if k.startswith("AWS_")} for name in of_bucket]
    assert set(of_bucket) == {"partitions", "worker", "job"}
    assert all(each == keys[0] and len(each) == 4 for each in keys)


def test_services_have_limits_and_workers_come_back() -> None:
    limits = {name: service["deploy"]["resources"]["limits"] for name, service in SERVICES.items()}
    assert all(n_bytes(limit["memory"]) > 0 and float(limit["cpus"]) > 0 for limit in limits.values())
    for name, text in (
        ("worker", next(word.split("=")[1] for word in SERVICES["worker"]["command"] if "memory-limit" in word)),
        ("job", SERVICES["job"]["environment"]["RIDGESTREAM_MEMORY_LIMIT"]),
    ):
        in_tmp = n_bytes(in_memory(SERVICES[name])["/tmp"]["size"])  # noqa: S108
        assert n_bytes(text) + in_tmp < n_bytes(limits[name]["memory"]), name
    assert {name: service["restart"] for name, service in SERVICES.items()} == {
        "objects": "unless-stopped",
        "partitions": "no",
        "scheduler": "unless-stopped",
        "worker": "unless-stopped",
        "job": "no",
    }


def test_the_image_runs_the_command_that_the_wheel_installs() -> None:
    (entry,) = in_image("ENTRYPOINT")
    (name,) = json.loads(entry)
    assert PROJECT["project"]["scripts"][name] == next(iter(entry_points(group="console_scripts", name=name))).value
    assert command(SERVICES["job"])[0] == name
    (install,) = [rest for rest in in_image("RUN") if "pip install" in rest]
    assert "from=build,source=/wheels,target=/wheels" in install
    assert "source=docker/constraints.txt,target=/constraints.txt" in install
    assert "--require-hashes --requirement /constraints.txt " in install
    assert "--no-deps --no-index /wheels/*.whl && python -m pip check " in install
    build, image = stages()
    assert [rest for word, rest in build if word == "RUN"] == [
        "python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ."
    ]
    assert "COPY" not in [word for word, _ in image]


def test_all_that_the_wheel_needs_is_pinned_in_a_version_that_it_takes() -> None:
    text = re.sub(r"^#.*\n", "", (DOCKER / "constraints.txt").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", "").splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+ *", line) for line in lines)
    pinned = {canonicalize_name(name): version for name, version in (line.split()[0].split("==") for line in lines)}
    wanted = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    seen = set[str]()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"python_version": "3.11", "extra": ""}):
            continue
        assert pinned[name] in requirement.specifier, requirement
        if name not in seen and version_of(name) == pinned[name]:  # what another version needs says nothing of this one
            wanted += [Requirement(text) for text in requires(name) or ()]
        seen.add(name)
    assert len(seen) >= len(PROJECT["project"]["dependencies"])


def test_images_are_pinned_and_of_a_python_that_the_project_takes() -> None:
    froms = [rest.split()[0] for word, rest in DOCKERFILE if word == "FROM"]
    assert froms == ["${PYTHON}", "${PYTHON}"]
    (base,) = [rest.removeprefix("PYTHON=") for word, rest in DOCKERFILE if word == "ARG"]
    match = re.fullmatch(r"python:(3\.\d+(?:\.\d+)?)-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    assert match, base
    assert match[1] in SpecifierSet(PROJECT["project"]["requires-python"])
    for service in OWN.values():
        assert service["build"]["args"] == {"PYTHON": f"${{RIDGESTREAM_BASE_IMAGE:-{base}}}"}
    release = ridgestream.__version__
    assert {service["image"] for service in OWN.values()} == {f"ridgestream:{release}"}
    assert {service["pull_policy"] for service in OWN.values()} == {"build"}
    assert re.fullmatch(r"motoserver/moto:\d+\.\d+\.\d+", SERVICES["objects"]["image"])
    labels = dict(item.split("=", 1) for rest in in_image("LABEL") for item in shlex.split(rest))
    assert labels["org.opencontainers.image.version"] == release
    assert labels["org.opencontainers.image.licenses"] == PROJECT["project"]["license"]
    texts = [path.read_text() for path in (DOCKER / "README.md", DOCKER / "Dockerfile")]
    assert {tag for text in texts for tag in re.findall(r"ridgestream:([\w.]+)", text)} == {release}


def test_the_image_has_an_ordinary_user_who_owns_where_it_writes() -> None:
    (user,) = in_image("USER")
    uid, gid = (int(part) for part in user.split(":"))
    assert min(uid, gid) >= 1000
    (useradd,) = [rest for rest in in_image("RUN") if "useradd" in rest]
    assert f"groupadd --gid {gid} " in useradd
    assert f"useradd --uid {uid} --gid {gid} " in useradd
    assert f"--owner={uid} --group={gid} --mode=0700 /var/cache/ridgestream /data" in useradd
    last = stages()[-1]
    user_at = [word for word, _ in last].index("USER")
    assert all((word == "RUN") is (rest == '["ridgestream", "warm"]') for word, rest in last[user_at:] if word == "RUN")
    assert ("RUN", '["ridgestream", "warm"]') in last[user_at:]  # as the user who reads the cache
    environment = image_environment()
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert environment["NUMBA_CACHE_DIR"].startswith("/var/cache/ridgestream/")
    assert {environment[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL")} == {"1"}


def test_the_build_gets_what_the_wheel_is_made_of_and_no_more() -> None:
    sources = copied()
    project, folders = PROJECT["project"], PROJECT["tool"]["setuptools"]["package-dir"].values()
    assert set(sources) == {
        "pyproject.toml",
        project["readme"],
        *project["license-files"],
        *(folder.split("/")[0] for folder in folders),
    }
    for source in sources:
        path = ROOT / source
        files = (
            [path]
            if path.is_file()
            else [file for file in path.rglob("*.*") if file.is_file() and file.suffix != ".pyc"]
        )
        assert files, source
        assert all(is_in_context(file.relative_to(ROOT).as_posix()) for file in files), source
    beside = [path.name for path in ROOT.iterdir() if path.name not in sources]
    assert {"tests", "docker"} <= set(beside)
    for name in [
        *beside,
        ".git/HEAD",
        "tests/data/stores/format-3.zip",
        "jobs/__pycache__/cli.cpython-311.pyc",
        "a.pyc",
    ]:
        assert not is_in_context(name), name
