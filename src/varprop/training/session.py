"""Lanes on threads, while the main thread watches: progress, checkpoints, limits, Ctrl-C.

Where several processes share a run, each has its own session. They do the same at the same time, so
that their messages meet: lanes one after the other, process 0 alone reads and writes checkpoints,
and whether to stop is agreed between two windows.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax

from varprop.data.source import SourceError
from varprop.training import checkpoint as checkpoints
from varprop.training.devices import from_first, largest_of_all, losses_named
from varprop.training.distributed import DistributedError
from varprop.training.runner import Runner
from varprop.training.schedule import Outcome

_POLL_SECONDS = 0.1
# What may stop all lanes; where processes differ, the last of these.
_STOPS = (Outcome.TIME_LIMIT, Outcome.INTERRUPTED)


class Session:
    """Trains lanes, each on one thread at a time, to their end or until told to stop."""

    def __init__(
        self,
        runners: Sequence[Runner],
        *,
        n_threads: int,
        deadline: float | None,
        shared: bool = False,
    ):
        self.runners, self.n_threads, self.deadline = runners, n_threads, deadline
        self.shared = shared  # by several processes
        self.stop: Outcome | None = None  # that this process wants
        self.path: pathlib.Path | None = None
        self.fingerprint = ""

    def resume_from(self, path: pathlib.Path, fingerprint: str) -> None:
        """Load the checkpoint if there is one, and write to it from now on."""
        self.path, self.fingerprint = path, fingerprint
        content = checkpoints.read(path)
        if self.shared:
            # One process must not begin where another goes on.
            content = from_first(content or b"") or None
            if jax.process_index():
                self.path = None
        if content is None:
            return
        arrays, meta = checkpoints.load(content, path, fingerprint)
        for number, (runner, lane_meta) in enumerate(zip(self.runners, meta["lanes"], strict=True)):
            n = len(jax.tree.leaves(runner.state))
            runner.from_checkpoint([arrays[f"{number}.{i}"] for i in range(n)], lane_meta)

    def save(self) -> None:
        """Write the state of all lanes, each as it is between two of its windows."""
        if self.path is None:
            return
        arrays, metas = {}, []
        for number, runner in enumerate(self.runners):
            leaves, meta = runner.to_checkpoint()
            arrays.update({f"{number}.{i}": leaf for i, leaf in enumerate(leaves)})
            metas.append(meta)
        checkpoints.save(self.path, self.fingerprint, arrays, {"lanes": metas})

    def run(self, *, progress: bool, checkpoint_every: float) -> None:
        """Train all lanes; the outcome of each is set when this returns."""
        # JAX's switch for float64 belongs to a thread; the lanes' threads must have the caller's.
        x64 = bool(jax.config.read("jax_enable_x64"))
        pool = concurrent.futures.ThreadPoolExecutor(self.n_threads, "varprop-lane")
        futures = [pool.submit(self._train, runner, x64) for runner in self.runners]
        try:
            with _progress_bar() if progress else contextlib.nullcontext() as bar:
                self._watch(futures, bar, checkpoint_every)
        except KeyboardInterrupt:
            self.stop = Outcome.INTERRUPTED
            if self.shared:  # the others must hear of it, in every lane
                concurrent.futures.wait(futures)
        except (DistributedError, SourceError):
            self.stop = Outcome.INTERRUPTED
            pool.shutdown(wait=True, cancel_futures=True)
            # Losing a process, or a file, costs no more than the window under way.
            self.save()
            raise
        except BaseException:
            self.stop = Outcome.INTERRUPTED
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            for runner in self.runners:
                runner.close()
        # Saved before lanes that were cut short are marked as ended, so that they can be resumed.
        self.save()
        for runner in self.runners:
            if runner.outcome is None:
                assert self.stop is not None
                with losses_named(shared=self.shared):
                    runner.end(self.stop)

    def _train(self, runner: Runner, x64: bool) -> None:
        named = losses_named() if self.shared else contextlib.nullcontext()
        with jax.enable_x64(x64), named:
            while runner.outcome is None:
                if self.shared:
                    wish = 0 if self.stop is None else _STOPS.index(self.stop) + 1
                    wish = largest_of_all(wish)
                    self.stop = _STOPS[wish - 1] if wish else None
                if self.stop is not None:
                    return
                runner.advance()

    def _watch(
        self, futures: list[concurrent.futures.Future], bar: Any, checkpoint_every: float
    ) -> None:
        last_saved = time.monotonic()
        longest = max(runner.schedule.max_steps for runner in self.runners)
        task = None if bar is None else bar.add_task("", total=longest * len(futures), loss="-")
        pending = set(futures)
        while pending:
            done, pending = concurrent.futures.wait(
                pending, _POLL_SECONDS, concurrent.futures.FIRST_EXCEPTION
            )
            for future in done:
                future.result()  # raises what the lane's thread raised
            now = time.monotonic()
            if self.deadline is not None and now >= self.deadline and self.stop is None:
                self.stop = Outcome.TIME_LIMIT
            if self.path is not None and now - last_saved >= checkpoint_every:
                self.save()
                last_saved = time.monotonic()
            if bar is not None:
                running = [runner for runner in self.runners if runner.outcome is None]
                steps = sum(min(int(runner.state.step), longest) for runner in running)
                losses = [(runner.schedule.losses or [math.nan])[-1] for runner in running]
                losses = [loss for loss in losses if math.isfinite(loss)]
                ended = len(futures) - len(running)
                bar.update(
                    task,
                    # A lane that has ended counts as all of its steps.
                    completed=steps + ended * longest,
                    description=f"lanes {ended}/{len(futures)}",
                    loss=f"{sum(losses) / len(losses):.4f}" if losses else "-",
                )


def _progress_bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("training"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.description}"),
        TextColumn("loss {task.fields[loss]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        transient=True,
        console=Console(stderr=True),  # standard output is for results
    )
