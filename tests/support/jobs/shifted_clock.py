"""Processes whose clock is wrong: a library loaded before all others adds seconds to every look at it."""

import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) { const char *text = getenv("SHIFT_SECONDS"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t id, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, out);
    if (id == CLOCK_REALTIME) out->tv_sec += shift();
    return result;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec; out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


def shifted_clock(folder: Path, seconds: int) -> dict[str, str]:
    """Return the environment of processes whose clock is ahead by some seconds; skip the test without a compiler."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    library = folder / "shifted_clock.so"
    if not library.exists():
        (folder / "shifted_clock.c").write_text(_SOURCE)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "shifted_clock.c"), "-ldl"], check=True
        )
    return {"LD_PRELOAD": str(library), "SHIFT_SECONDS": str(seconds)}
