"""Count the system calls with which a process and its children change files, and call a function at one of them.

With a seccomp filter and user notifications, Linux reports each such call to the holder of the listener before carrying
it out. This needs no privileges and includes calls from native code. Run as a program, this module installs the filter,
sends the listener to its parent, and executes the given command.
"""

import ctypes
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path

Strike = Callable[[int, int], None]
"""Called at the chosen call with two process ids: that of the command and that of the caller."""

_NUMBERS = {
    "x86_64": {
        "write": 1,
        "pwrite64": 18,
        "writev": 20,
        "fsync": 74,
        "fdatasync": 75,
        "ftruncate": 77,
        "rename": 82,
        "mkdir": 83,
        "rmdir": 84,
        "link": 86,
        "unlink": 87,
        "openat": 257,
        "mkdirat": 258,
        "unlinkat": 263,
        "renameat": 264,
        "linkat": 265,
        "syncfs": 306,
        "renameat2": 316,
        "copy_file_range": 326,
        "seccomp": 317,
    },
    "aarch64": {
        "mkdirat": 34,
        "unlinkat": 35,
        "linkat": 37,
        "renameat": 38,
        "ftruncate": 46,
        "openat": 56,
        "write": 64,
        "writev": 66,
        "pwrite64": 68,
        "fsync": 82,
        "fdatasync": 83,
        "syncfs": 267,
        "renameat2": 276,
        "seccomp": 277,
        "copy_file_range": 285,
    },
}
_BY_DESCRIPTOR = {"write": 0, "pwrite64": 0, "writev": 0, "fsync": 0, "fdatasync": 0, "ftruncate": 0, "syncfs": 0}
_BY_DESCRIPTOR |= {"copy_file_range": 2}
_BY_PATH = {"rename": 1, "mkdir": 0, "rmdir": 0, "link": 1, "unlink": 0, "openat": 1, "mkdirat": 1, "unlinkat": 1}
_BY_PATH |= {"renameat": 3, "linkat": 3, "renameat2": 3}
"""Index of the argument that names the file a call changes."""

_NEEDS_NO_SPACE = ("unlink", "unlinkat", "rmdir", "fsync", "fdatasync", "syncfs")

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REPORT = 0x7FFF0000, 0x7FC00000
_FLAGS_OF_OPENAT = 16 + 2 * 8
_NO_NEW_PRIVILEGES, _SET_FILTER, _WITH_LISTENER = 38, 1, 8
_RECEIVE, _ID_IS_VALID, _SEND, _CONTINUE = 0xC0502100, 0x40082102, 0xC0182101, 1


class _Step(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step)))


def _filter() -> "ctypes.Array[_Step]":
    """Return the filter: it reports the calls of the table, and openat only if it may create or truncate a file."""
    numbers = {name: number for name, number in _NUMBERS[platform.machine()].items() if name != "seccomp"}
    openat = numbers.pop("openat")
    steps = [_Step(_LOAD, 0, 0, 0)]
    remaining = len(numbers)
    for number in numbers.values():
        remaining -= 1
        steps.append(_Step(_EQUAL, remaining + 4, 0, number))
    steps += [
        _Step(_EQUAL, 0, 2, openat),
        _Step(_LOAD, 0, 0, _FLAGS_OF_OPENAT),
        _Step(_ANY_BIT, 1, 0, os.O_CREAT | os.O_TRUNC),
        _Step(_RETURN, 0, 0, _ALLOW),
        _Step(_RETURN, 0, 0, _REPORT),
    ]
    return (_Step * len(steps))(*steps)


def _install() -> int:
    """Install the filter on this process permanently and return its listener; raises OSError where unsupported."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = _filter()
    program = _Program(len(steps), steps)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    number = _NUMBERS[platform.machine()]["seccomp"]
    listener = int(libc.syscall(number, _SET_FILTER, _WITH_LISTENER, ctypes.byref(program)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return listener


class CallTrap:
    """Runs a command under the filter, counts its changes to files below a folder, and calls a function at one of them.

    `folder` is a prefix of paths: "/data/store/chunks" counts chunks. With `fails`, an error number, the chosen call
    and all later ones that need disk space fail with that error.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        kill_at: Strike,
        at: int,
        log: Path,
        environment: Mapping[str, str],
        fails: int = 0,
    ) -> None:
        self.calls: list[str] = []
        self._folder, self._strike, self._at, self._fails = os.fsencode(folder), kill_at, at, fails
        self._names = {number: name for name, number in _NUMBERS.get(platform.machine(), {}).items()}
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                launcher = [sys.executable, __file__, str(theirs.fileno()), *command]
                self.process = start_in_session(launcher, log, environment, (theirs.fileno(),))
            _, listeners, _, _ = socket.recv_fds(ours, 1, 1)
        if not listeners:
            self.process.wait()
            raise OSError(f"system calls cannot be filtered here: {log.read_text()[-200:]}")
        self._thread = threading.Thread(target=self._serve, args=(listeners[0],), daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> int:
        """Wait for the command to end and return its exit code."""
        code = self.process.wait(seconds)
        self._thread.join(1.0)  # the thread runs as long as any child of the command
        return code

    def _serve(self, listener: int) -> None:
        poll = select.poll()
        poll.register(listener)
        while not poll.poll()[0][1] & select.POLLHUP:
            report = bytearray(80)
            try:
                ioctl(listener, _RECEIVE, report)
                error = self._check_call(report)
                response = (0, -error, 0) if error else (0, 0, _CONTINUE)
                ioctl(listener, _SEND, struct.pack("=QqiI", struct.unpack_from("=Q", report)[0], *response))
            except OSError:  # the process was killed in the meantime
                continue
        os.close(listener)

    def _check_call(self, report: bytearray) -> int:
        """Count a call, run the function at the chosen one, and return the error number it should fail with, or 0."""
        _, process, _, number = struct.unpack_from("=QIIi", report)
        arguments = struct.unpack_from("=6Q", report, 32)
        name = self._names[number]
        path = _path(process, name, arguments)
        if path is None or not path.startswith(self._folder):
            return 0
        self.calls.append(f"{name} {os.fsdecode(path[len(self._folder) :])}")
        if len(self.calls) == self._at:
            self._strike(self.process.pid, process)
        harmless = name in _NEEDS_NO_SPACE or (name.startswith("mkdir") and Path(os.fsdecode(path)).exists())
        return self._fails if 0 < self._at <= len(self.calls) and not harmless else 0


class FolderTrap:
    """Like CallTrap, but polls the folder for new files; for systems where calls cannot be filtered."""

    def __init__(
        self, command: Sequence[str], folder: Path, kill_at: Strike, at: int, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.calls: list[str] = []
        self._folder, self._strike, self._at = folder, kill_at, at
        self.process = start_in_session(command, log, environment)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> int:
        """Wait for the command to end and return its exit code."""
        code = self.process.wait(seconds)
        self._thread.join(seconds)
        return code

    def _watch(self) -> None:
        known_paths: set[str] = set()
        while self.process.poll() is None:
            current_paths = {os.path.join(top, name) for top, _, names in os.walk(self._folder) for name in names}  # noqa: PTH118
            for name in sorted(current_paths - known_paths):
                self.calls.append(f"appears {name}")
                if len(self.calls) == self._at:
                    self._strike(self.process.pid, self.process.pid)
            known_paths |= current_paths


def open_trap(
    command: Sequence[str], folder: Path, kill_at: Strike, at: int, log: Path, environment: Mapping[str, str]
) -> CallTrap | FolderTrap:
    """Start the command in a new session, with a trap at change number `at` of the folder; 0 for no trap."""
    try:
        return CallTrap(command, folder, kill_at, at, log, environment)
    except OSError:
        return FolderTrap(command, folder, kill_at, at, log, environment)


def start_in_session(
    command: Sequence[str], log: Path, environment: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """Start a command in a new session; its stderr goes to the file `log` and its stdout to `log`.out."""
    with log.open("wb") as err, log.with_name(log.name + ".out").open("wb") as out:
        return subprocess.Popen(
            command,
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            env=dict(environment),
            pass_fds=pass_fds,
            start_new_session=True,
        )


def _path(process: int, name: str, arguments: Sequence[int]) -> bytes | None:
    try:
        if name in _BY_DESCRIPTOR:
            return os.fsencode(Path(f"/proc/{process}/fd/{arguments[_BY_DESCRIPTOR[name]]}").readlink())
        with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
            memory.seek(arguments[_BY_PATH[name]])
            return memory.read(4096).partition(b"\0")[0]
    except OSError:
        return None


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        listener = _install()
        socket.send_fds(ours, [b"."], [listener])
        os.close(listener)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606


if __name__ == "__main__":
    main()
