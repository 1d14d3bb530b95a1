"""Hosts on one machine: network namespaces with addresses of their own, joined by a bridge; needs root and iproute2."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from shutil import which


def why_unavailable() -> str:
    """Why namespaces cannot be created; empty if they can."""
    if which("ip") is None:
        return "there is no command ip (Debian's iproute2)"
    probe = f"rs{os.getpid()}probe"
    namespace = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    if namespace.returncode:
        return f"network namespaces cannot be created here: {namespace.stderr.decode().strip()}"
    bridge = subprocess.run(["ip", "link", "add", probe, "type", "bridge"], capture_output=True, check=False)
    _ip("netns", "del", probe)
    if bridge.returncode:
        return f"no bridge can be created here: {bridge.stderr.decode().strip()}"
    _ip("link", "del", probe)
    return ""


class Network:
    """Namespaces by their names, each with an address."""

    def __init__(self, names: Sequence[str], subnet: str) -> None:
        self._tag = f"rs{os.getpid() % 100_000}"
        self.addresses = {name: f"{subnet}.{10 + number}" for number, name in enumerate(names)}

    def run_in(self, name: str) -> tuple[str, ...]:
        """The program that runs a command in the namespace of a name."""
        return ("ip", "netns", "exec", self._space(name))

    def cut_off(self, name: str) -> None:
        """Disconnect a namespace without notice."""
        _ip("link", "set", self._cable(name), "down")

    def build(self, stack: ExitStack) -> None:
        bridge = f"{self._tag}br"
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("link", "set", bridge, "up")
        for name, address in self.addresses.items():
            space, cable = self._space(name), self._cable(name)
            _ip("netns", "add", space)
            stack.callback(_ip, "netns", "del", space)  # and its end of the cable, so both
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", bridge, "up")
            _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _cable(self, name: str) -> str:
        return f"{self._tag}{list(self.addresses).index(name)}"


@contextmanager
def network(*names: str, subnet: str = "10.231.77") -> Iterator[Network]:
    """Create namespaces, and delete them at the end."""
    hosts = Network(names, subnet)
    with ExitStack() as stack:
        hosts.build(stack)
        yield hosts


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, check=False)
    assert done.returncode == 0, (arguments, done.stderr.decode())
