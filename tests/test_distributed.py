"""Several devices and several processes train as one device does; who is lost or amiss is named.

Real processes on loopback, with the collectives of gloo. Sharding changes the order of sums and
nothing else, so all that training decides agrees to float32's rounding, carried through the steps:
1e-4 of its size for parameters (trained at a rate of 1e-2), 1e-5 for losses.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tiny
from varprop import ROPD, distributed, fit
from varprop.training.devices import data_mesh
from varprop.training.distributed import DistributedError, Place, initialize

RUN = pathlib.Path(__file__).with_name("distributed_run.py")


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def start(job: str, folder: pathlib.Path, *place: str, n_devices: int = 1, **environment):
    """Start one process with so many CPU devices, which compiles fast instead of well."""
    flags = f"--xla_force_host_platform_device_count={n_devices} --xla_backend_optimization_level=0"
    flags += " " + os.environ.get("XLA_FLAGS", "")
    return subprocess.Popen(
        [sys.executable, str(RUN), job, str(folder), *place],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_two(job: str, folder: pathlib.Path):
    address = free_address()
    return [start(job, folder, address, "2", str(number)) for number in range(2)]


def ended(process, timeout: float = 240.0) -> tuple[int, str]:
    try:
        _, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, errors


def results(folder: pathlib.Path, number: int = 0) -> dict[str, np.ndarray]:
    with np.load(folder / f"{number}.npz") as file:
        return dict(file)


def with_rows(folder: pathlib.Path) -> pathlib.Path:
    """Make a folder that has three Parquet files of unequal length in `rows`."""
    (folder / "rows").mkdir(parents=True)
    x, y = tiny.arrays(100)
    for number, part in enumerate((slice(0, 45), slice(45, 60), slice(60, 100))):
        table = pa.table({"a": x[part, 0], "b": x[part, 1], "y": y[part, 0]})
        pq.write_table(table, folder / "rows" / f"{number}.parquet", row_group_size=20)
    return folder


def both(processes, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Wait for two processes; both must have the same results, to the bit."""
    for process in processes:
        code, errors = ended(process)
        assert code == 0, errors
    first, second = results(folder, 0), results(folder, 1)
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, err_msg=name)
    return first


def assert_alike(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name.endswith((".steps", ".outcome")):
            assert found[name] == value, name
        else:
            rtol = 1e-5 if name.endswith((".history", ".loss")) else 1e-4
            scale = np.max(np.abs(value))
            np.testing.assert_allclose(
                found[name], value, rtol=rtol, atol=rtol * scale, err_msg=name
            )


def test_devices_and_processes_train_as_one_device(tmp_path):
    """Four devices, then two processes: neither divides batches of 33 rows evenly."""
    alone, devices, processes = (with_rows(tmp_path / name) for name in ("1", "4", "2"))
    for folder, n_devices in ((alone, 1), (devices, 4)):
        code, errors = ended(start("every", folder, n_devices=n_devices))
        assert code == 0, errors
    expected = results(alone)
    assert_alike(results(devices), expected)
    assert_alike(both(start_two("every", processes), processes), expected)


def test_a_lost_process_ends_the_other_and_a_restart_ends_as_undisturbed(tmp_path):
    (tmp_path / "undisturbed").mkdir()
    undisturbed = both(start_two("resume", tmp_path / "undisturbed"), tmp_path / "undisturbed")
    stays, dies = start_two("die", tmp_path)
    assert ended(dies)[0] == -signal.SIGKILL
    noticed = time.monotonic()
    code, errors = ended(stays)
    # Its connection breaks at once; the rest is Python's way out, on a busy machine.
    assert time.monotonic() - noticed < 20
    assert code == 1
    assert "DistributedError: process 0 of 2 has lost another one" in errors
    assert "Check failure" not in errors
    assert (tmp_path / "0.checkpoint").exists()
    assert not (tmp_path / "1.checkpoint").exists()
    for name, value in both(start_two("resume", tmp_path), tmp_path).items():
        np.testing.assert_array_equal(value, undisturbed[name], err_msg=name)


def test_ctrl_c_in_one_process_stops_both(tmp_path):
    first, second = start_two("interrupt", tmp_path)
    assert any(line == "window\n" for line in second.stdout)  # gloo has its say before
    second.send_signal(signal.SIGINT)
    found = both((first, second), tmp_path)
    assert found["resumable.outcome"] == "interrupted"
    assert found["resumable.steps"] < 160
    assert np.isfinite(found["resumable.loss"])


def test_processes_with_other_data_are_told_so(tmp_path):
    for process in start_two("unlike", tmp_path):
        code, errors = ended(process)
        assert code == 1
        assert "DistributedError: the processes were given different data" in errors


def test_a_process_under_slurm_knows_its_place(tmp_path):
    _, _, port = free_address().rpartition(":")
    slurm = {
        "SLURM_JOB_ID": str(4096 + int(port) % 4096),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "1",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",  # JAX asks for it too
    }
    code, errors = ended(start("resume", tmp_path, "slurm", **slurm))
    assert code == 0, errors
    assert results(tmp_path)["resumable.outcome"] == "max_steps"


def meet(*places: Place, timeout: float = 2.0) -> list[str]:
    """Let processes, here threads, meet; return what each was told, "" for nothing."""
    told = [""] * len(places)

    def one(number: int, place: Place) -> None:
        join = distributed._report_to_first if place.process_id else distributed._wait_for_others
        try:
            join(place, time.monotonic() + timeout, timeout)
        except DistributedError as error:
            told[number] = str(error)

    threads = [threading.Thread(target=one, args=item) for item in enumerate(places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return told


def test_processes_meet_whoever_else_knocks():
    address = free_address()
    host, _, port = address.rpartition(":")

    def knock() -> None:
        for _ in range(50):
            try:
                with socket.create_connection((host, int(port)), 1) as peer:
                    peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return
            except OSError:
                time.sleep(0.02)

    stranger = threading.Thread(target=knock)
    stranger.start()
    assert meet(*(Place(address, 3, number) for number in range(3)), timeout=20.0) == [""] * 3
    stranger.join()


def test_a_world_size_that_does_not_match():
    address = free_address()
    for told in meet(Place(address, 2, 0), Place(address, 3, 1)):
        assert "process 1 was started for 3 processes, but process 0 for 2" in told


def test_two_processes_with_one_number():
    address = free_address()
    told = meet(Place(address, 3, 0), Place(address, 3, 1), Place(address, 3, 1))
    assert all("two processes have process_id 1" in sentence for sentence in told)


def test_processes_that_do_not_come():
    address = free_address()
    begin = time.monotonic()
    told = meet(Place(address, 4, 0), Place(address, 4, 2), timeout=1.0)
    assert all("processes [1, 3] of 4 have not come" in sentence for sentence in told)
    (alone,) = meet(Place(free_address(), 2, 1), timeout=1.0)
    assert "process 0 did not answer at" in alone
    assert time.monotonic() - begin < 10


def test_another_version_is_refused(monkeypatch):
    address = free_address()
    hello = distributed._hello

    def other(place: Place) -> bytes:
        told = json.loads(hello(place))
        return json.dumps({**told, "varprop": "9.9"} if place.process_id else told).encode() + b"\n"

    monkeypatch.setattr(distributed, "_hello", other)
    for told in meet(Place(address, 2, 0), Place(address, 2, 1)):
        assert "process 1 has varprop 9.9, but process 0 has" in told


def test_a_port_in_use_and_a_host_that_is_not_there():
    with socket.create_server(("", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (told,) = meet(Place(address, 2, 0))
    assert "cannot listen on port" in told
    (told,) = meet(Place("no-such-host.invalid:1234", 2, 1))
    assert "there is no host no-such-host.invalid" in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("localhost", 2, 0), "coordinator_address must be host:port"),
        (("localhost:port", 2, 0), "coordinator_address must be host:port"),
        (("localhost:1234", 0, 0), "num_processes must be at least 1"),
        (("localhost:1234", 2, -1), "process_id must be from 0 to 1"),
    ],
)
def test_arguments_that_make_no_sense(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        initialize(*arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "coordinator_address and num_processes and process_id must be given"),
        ("'localhost:1234', 2", "process_id must be given"),
    ],
)
def test_outside_a_cluster_all_must_be_given(arguments, sentence):
    """In a process of its own: JAX must not have begun."""
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("SLURM_")}
    done = subprocess.run(
        [sys.executable, "-c", f"import varprop; varprop.distributed.initialize({arguments})"],
        env={**environment, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr.splitlines()[-1].startswith(f"ValueError: {sentence}: they are known")


def test_devices_must_be_named():
    assert data_mesh(jax.devices()) is None  # these tests have one device
    with pytest.raises(ValueError, match="at least one device"):
        fit(tiny.model(0), tiny.data(70), ROPD(), key=jax.random.key(0), devices=[])
