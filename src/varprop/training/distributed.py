"""Several processes, on one machine or many, that train one model together on JAX's own runtime.

Each process runs the same script, which begins with `initialize`; afterwards JAX sees the devices
of all of them, and `fit(..., devices=jax.devices())` shards its batches over these.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import sys
import time
from typing import Any, NamedTuple

import jax

from varprop import __version__

__all__ = ["DistributedError", "initialize"]

_CONNECT_AGAIN_SECONDS = 0.2
_HELLO_BYTES = 4096


class DistributedError(RuntimeError):
    """Processes that should train together do not find, or have lost, each other."""


class Place(NamedTuple):
    """Where a process stands in a job."""

    coordinator_address: str
    num_processes: int
    process_id: int


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout: float = 60.0,
    heartbeat_timeout: int = 30,
) -> None:
    """Join the other processes of a job; call it first, once in each process.

    The processes meet at the coordinator's address and make sure that all are there, once, with the
    same number of processes and the same versions. JAX's distributed runtime starts only then: it
    would end a process without an exception if something were amiss.

    Parameters
    ----------
    coordinator_address
        ``host:port`` of process 0, a port that is free there and that the others can reach.
    num_processes
        How many there are.
    process_id
        Which of them this is, from 0.
    timeout
        Seconds to wait for the others before `DistributedError` is raised.
    heartbeat_timeout
        Seconds after which a process that has gone silent (its machine hangs or is cut off) counts
        as lost, and JAX ends the others. A process that dies is noticed at once: training raises
        `DistributedError`, and the process leaves with exit code 1 at its end, without waiting.

    Raises
    ------
    DistributedError
        If the others are not there in time, or do not fit.

    Notes
    -----
    In a cluster that JAX detects (SLURM, Open MPI, Kubernetes, Cloud TPU) all three can be left
    out. The processes then meet in JAX's runtime alone: the cluster has counted them.

    Examples
    --------
    >>> initialize("localhost:12345", num_processes=1, process_id=0)  # doctest: +SKIP
    >>> initialize("localhost:12345", num_processes=2, process_id=2)
    Traceback (most recent call last):
    ...
    ValueError: process_id must be from 0 to 1 in a job of 2 processes, but is 2.
    """
    given = (coordinator_address, num_processes, process_id)
    _check_place(*given)
    if timeout <= 0 or heartbeat_timeout <= 0:
        raise ValueError("timeout and heartbeat_timeout must be positive numbers of seconds.")
    if jax.distributed.is_initialized():
        raise RuntimeError("varprop.distributed.initialize was called before in this process.")
    missing = [name for name, value in zip(Place._fields, given, strict=True) if value is None]
    if not missing:
        place = Place(*given)  # type: ignore[arg-type]
        meet = _report_to_first if place.process_id else _wait_for_others
        meet(place, time.monotonic() + timeout, timeout)
    # Only the CPU asks which library is to carry messages; the others have their own.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would catch SIGTERM and go on: a job that SLURM or a user ends must end. The first versions
    # of JAX that we support have no such switch.
    with contextlib.suppress(AttributeError):
        jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            *given,
            initialization_timeout=max(10, round(timeout)),
            heartbeat_timeout_seconds=heartbeat_timeout,
        )
    except ValueError as error:
        if not missing:
            raise
        raise ValueError(
            f"{' and '.join(missing)} must be given: they are known by themselves only in a "
            "cluster that JAX detects, such as a process started by SLURM's srun."
        ) from error


def loss_of_another() -> DistributedError:
    """Return the error to raise when a message to or from another process failed."""
    # The last to be registered is the first to be called, before JAX's own.
    atexit.register(_leave_at_once)
    return DistributedError(
        f"process {jax.process_index()} of {jax.process_count()} has lost another one, which has "
        "died or was cut off: see its own output, then start all of them again; with a checkpoint "
        "training goes on from there."
    )


def _leave_at_once() -> None:
    """Spare JAX's farewell, in which it would wait for the lost one and end by an abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _check_place(address: str | None, n: int | None, number: int | None) -> None:
    """Raise ValueError for arguments that make no sense; what is None is left to JAX."""
    if address is not None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"coordinator_address must be host:port, but is {address!r}.")
    if n is not None and n < 1:
        raise ValueError(f"num_processes must be at least 1, but is {n}.")
    if n is not None and number is not None and not 0 <= number < n:
        raise ValueError(
            f"process_id must be from 0 to {n - 1} in a job of {n} processes, but is {number}."
        )


def _hello(place: Place) -> bytes:
    """Return what a process tells of itself: one line."""
    told = {
        "num_processes": place.num_processes,
        "process_id": place.process_id,
        "varprop": __version__,
        "jax": jax.__version__,
    }
    return json.dumps(told).encode() + b"\n"


def _objection(place: Place, hello: dict[str, Any], known: set[int]) -> str | None:
    """Return why a process cannot take part, or None."""
    number = hello.get("process_id")
    if hello.get("num_processes") != place.num_processes:
        return (
            f"process {number} was started for {hello.get('num_processes')} processes, but process "
            f"0 for {place.num_processes}: give all of them the same num_processes."
        )
    if number in known:
        return f"two processes have process_id {number}: give each its own."
    mine = json.loads(_hello(place))
    for name in ("varprop", "jax"):
        if hello.get(name) != mine[name]:
            return (
                f"process {number} has {name} {hello.get(name)}, but process 0 has {mine[name]}: "
                "install the same version everywhere."
            )
    return None


def _wait_for_others(place: Place, deadline: float, timeout: float) -> None:
    """Listen as process 0 until all others have reported; tell all of them how it ended."""
    port = int(place.coordinator_address.rpartition(":")[2])
    try:
        # All addresses of this machine, as JAX's own service: its name may resolve to another one.
        server = socket.create_server(("", port), backlog=place.num_processes)
    except OSError as error:
        raise DistributedError(
            f"process 0 cannot listen on port {port} ({error.strerror}): choose another port in "
            "coordinator_address, the same for all processes."
        ) from None
    known: dict[int, socket.socket] = {}
    objection = None
    with server:
        while len(known) < place.num_processes - 1 and objection is None:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                peer, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(1, place.num_processes)) - set(known))
                objection = (
                    f"after {timeout:g} s processes {missing} of {place.num_processes} have not "
                    "come: start one for every process_id, and see that they reach "
                    f"{place.coordinator_address}."
                )
                break
            peer.settimeout(5.0)
            try:
                hello = json.loads(peer.makefile("rb").readline(_HELLO_BYTES))
                objection = _objection(place, hello, {0, *known})
            except (OSError, ValueError, AttributeError):
                peer.close()  # somebody else, who happened to knock here
                continue
            # Two with one number must both be told.
            known[-len(known) - 1 if objection else hello["process_id"]] = peer
    for peer in known.values():
        with peer:
            try:
                peer.sendall(json.dumps({"objection": objection}).encode() + b"\n")
            except OSError:
                continue  # it has gone in the meantime, which JAX will notice
    if objection is not None:
        raise DistributedError(objection)


def _report_to_first(place: Place, deadline: float, timeout: float) -> None:
    """Report to process 0, and wait for its word that all are there."""
    host, _, port = place.coordinator_address.rpartition(":")
    while True:
        left = deadline - time.monotonic()
        try:
            with socket.create_connection((host.strip("[]"), int(port)), max(0.1, left)) as peer:
                peer.sendall(_hello(place))
                # Process 0 waits for the others until its own deadline, a little after ours.
                peer.settimeout(max(0.1, left) + timeout)
                answer = json.loads(peer.makefile("rb").readline(_HELLO_BYTES))
            objection = answer["objection"]
            break
        except socket.gaierror as error:
            raise DistributedError(
                f"there is no host {host} ({error.strerror}): check coordinator_address."
            ) from None
        except (OSError, ValueError, TypeError, KeyError):
            if deadline - time.monotonic() < _CONNECT_AGAIN_SECONDS:
                raise DistributedError(
                    f"process 0 did not answer at {place.coordinator_address} for {timeout:g} s: "
                    "is it running there, and is the port open?"
                ) from None
            time.sleep(_CONNECT_AGAIN_SECONDS)
    if objection is not None:
        raise DistributedError(objection)
