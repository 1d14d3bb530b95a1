"""Available memory: the machine's free memory, or what control groups leave of their limits."""

from pathlib import Path

import psutil
import pytest

from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.stores.segments.available_memory import available_bytes

MB = 2**20


def make_group(folder: Path, limit: str, current: int, cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cache // 2}\nactive_file {cache - cache // 2}\n")


@pytest.mark.parametrize("own", ["/", "/system.slice/nightly.service"])
def test_available_memory_is_the_limit_without_used_memory_and_with_cache(tmp_path: Path, own: str) -> None:
    make_group(tmp_path / own.strip("/"), str(100 * MB), 95 * MB, 60 * MB)
    process = tmp_path / "cgroup"
    process.write_text(f"1:name=systemd:/other\n0::{own}\n")
    assert available_bytes(tmp_path, process) == 65 * MB


def test_the_tightest_of_nested_limits_counts(tmp_path: Path) -> None:
    make_group(tmp_path / "outer", str(50 * MB), 20 * MB, 0)
    make_group(tmp_path / "outer" / "inner", "max", 5 * MB, 0)
    process = tmp_path / "cgroup"
    process.write_text("0::/outer/inner\n")
    assert available_bytes(tmp_path, process) == 30 * MB


def test_without_a_limit_available_memory_is_the_free_memory_of_the_machine(tmp_path: Path) -> None:
    available = available_bytes(tmp_path, tmp_path / "absent")
    assert 0 < available <= psutil.virtual_memory().total


def test_the_peak_is_at_least_what_is_resident_now() -> None:
    resident = psutil.Process().memory_info().rss
    assert peak_rss_bytes() >= resident - 64 * MB
    assert peak_rss_bytes() > 10 * MB
