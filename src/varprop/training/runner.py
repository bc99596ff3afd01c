"""One lane under way, and all of them on threads, while the main thread watches.

Where several processes share a run, each has its own session. They do the same at the same time, so
that their messages meet: lanes one after the other, process 0 alone reads and writes checkpoints,
and whether to stop is agreed between two windows.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import pathlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop import stopping
from varprop.data.source import Rows, SourceError
from varprop.training import checkpoint as checkpoints
from varprop.training.buffers import BufferReader, Feed
from varprop.training.cores import Core, a_core
from varprop.training.devices import from_first, largest_of_all, losses_named, on_devices
from varprop.training.distributed import DistributedError
from varprop.training.program import Cooldown, LaneInputs, LaneState, Program
from varprop.training.result import Fit
from varprop.training.schedule import Outcome, Schedule

_POLL_SECONDS = 0.1
# What may stop all lanes; where processes differ, the last of these.
_STOPS = (Outcome.TIME_LIMIT, Outcome.INTERRUPTED)


class Runner:
    """Trains on buffer after buffer with the compiled program, as its schedule says.

    For the program each buffer is an epoch of its own: `state.epoch` counts passes over buffers.
    What it takes for the whole data, the total weight W and the KL weight, are scaled by the
    buffer's share of the epoch's B batches. With b batches in the buffer its loss has
    (b / (W b/B)) sum l = (B / W) sum l and KL (b/B) / (W b/B) = KL / W, as the objective wants (see
    `varprop.learning.objectives`). Rows that fit one buffer are the case b = B.
    """

    def __init__(
        self,
        program: Program,
        feed: Feed,
        inputs: LaneInputs,
        params: Float[Array, " p"],
        schedule: Schedule,
        *,
        passes: int,
        final_pass: bool = True,
    ):
        self.program, self.feed, self.inputs, self.schedule = program, feed, inputs, schedule
        self.passes, self.final_pass = passes, final_pass
        # The session takes snapshots while this runs; they must not fall between two changes.
        self.lock = threading.Lock()
        self.state = program.first_state(params)
        self.ending: Outcome | None = None  # trained, but the final loss is not known yet
        self.outcome: Outcome | None = None
        self.final_loss = math.nan
        self.seconds = 0.0
        self._reader: BufferReader | None = None
        self._evaluated, self._evaluated_total = 0, 0.0
        self._core: tuple[Core, LaneInputs, Rows] | None = None

    @contextlib.contextmanager
    def on_a_core(self) -> Iterator[None]:
        """Compute on a core of the lane's own, where rows stay and one thread is what it wants."""
        resident, program = self.feed.resident, self.program
        if resident is None or program.multi_thread or program.mesh is not None:
            yield
            return
        with a_core() as core:
            if core is None:
                yield
                return
            self._core = core, core.place(self.inputs), core.place_rows(resident)
            with self.lock:
                self.state = core.place(self.state)
            try:
                yield
            finally:
                self._core = None
                with self.lock:
                    self.state = core.give_back(self.state)

    def advance(self) -> None:
        """Train until something is to be decided, or evaluate a buffer when training is over."""
        begin = time.monotonic()
        if self.ending is None:
            self._train()
        else:
            self._evaluate()
        with self.lock:
            self.seconds += time.monotonic() - begin

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def end(self, outcome: Outcome) -> None:
        """Stop at once; rows that stay are evaluated all the same, others are not read again."""
        with self.lock:
            self.ending = self.ending or outcome
        if self.feed.resident is not None and self.final_pass:
            self._evaluate()
        with self.lock:
            self.outcome = self.ending

    def _train(self) -> None:
        schedule = self.schedule
        with self.lock:
            n_passes = schedule.passes()
        state, losses = self._run(self.state, schedule.position, n_passes)
        new = np.asarray(losses, np.float64)[:n_passes]  # to slice in JAX compiles a program
        if not np.isfinite(new).all():
            new = new[: int(np.argmin(np.isfinite(new)))]  # nothing was trained from there on
        with self.lock:
            self.state = state
            self.ending = schedule.saw(new.tolist(), finite=bool(state.finite))
            if not self.final_pass:
                self.outcome = self.ending
        if self.ending is not None:
            self.close()

    def _evaluate(self) -> None:
        """Add one buffer to the objective at the parameters reached, with the full KL weight."""
        state, plan = self.state._replace(finite=np.asarray(True)), self.schedule.plan
        _, losses = self._run(state, self._evaluated, self.passes, train=False)
        mean = float(np.asarray(losses, np.float64)[: self.passes].mean())
        several = plan.n_buffers > 1
        self._evaluated_total += mean * plan.steps_of(self._evaluated) if several else mean
        self._evaluated += 1
        if self._evaluated == plan.n_buffers:
            self.close()
            loss = self._evaluated_total / (plan.steps_per_epoch if several else 1)
            with self.lock:
                self.final_loss = loss if math.isfinite(loss) else math.nan
                self.outcome = self.ending

    def _run(
        self, state: LaneState, number: int, n_passes: int, *, train: bool = True
    ) -> tuple[LaneState, Float[Array, " passes"]]:
        """Call the program on one buffer, reading it if it does not stay."""
        dtype, plan = state.params.dtype, self.schedule.plan
        inputs, resident = self.inputs, self.feed.resident
        start, length = self.schedule.cooldown_steps()
        cooldown = Cooldown(np.asarray(start, dtype), np.asarray(length, dtype))
        if self._core is not None:
            core, inputs, rows = self._core
            return self.program.run(state, inputs, rows, cooldown, n_passes, train=train, core=core)
        if resident is not None:
            return self.program.run(state, inputs, resident, cooldown, n_passes, train=train)
        share = plan.steps_of(number) / plan.steps_per_epoch
        draw = self.schedule.position + (0 if train else number)
        inputs = inputs._replace(
            n_rows=np.asarray(plan.rows_of(number), np.int32),
            total_weight=np.asarray(self.feed.statistics.total_weight * share, dtype),
            kl_weight=np.asarray(self.schedule.recipe.kl_weight * share, dtype),
            # Draws are numbered by batches within a call: without this they would come again.
            keys=inputs.keys.at[1].set(jax.random.fold_in(inputs.keys[1], draw)),
        )
        if self._reader is None:
            last = self.schedule.last if train else plan.n_buffers
            self._reader = BufferReader(self.feed, first=number, last=last, shuffle=train)
        rows = self._reader.take()
        found = self.program.run(state, inputs, rows, cooldown, n_passes, train=train)
        jax.block_until_ready(found)
        del rows
        self._reader.release()
        return found

    def model(self) -> Any:
        """Return the model as it stands, with JAX arrays."""
        model, _ = self.program.structure.build(
            np.asarray(self.state.params), self.inputs.constants
        )
        return jax.tree.map(lambda x: jnp.asarray(x) if eqx.is_array(x) else x, model)

    def result(self) -> Fit:
        """Return the finished lane as a Fit."""
        assert self.outcome is not None
        return Fit(
            model=self.model(),
            history=self.schedule.history(self.outcome),
            loss=self.final_loss,
            outcome=self.outcome,
            n_steps=int(self.state.step),
            seconds=self.seconds,
            scaling=self.feed.scaling,
            recipe=self.schedule.recipe,
        )

    def to_checkpoint(self) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Return everything that `from_checkpoint` needs to go on to the bit."""
        with self.lock:
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)]
            meta = {
                **self.schedule.state(),
                "ending": None if self.ending is None else self.ending.value,
                "outcome": None if self.outcome is None else self.outcome.value,
                "final_loss": self.final_loss,
                "seconds": self.seconds,
            }
        return leaves, meta

    def from_checkpoint(self, leaves: list[np.ndarray], meta: dict[str, Any]) -> None:
        """Take up where the checkpoint left off; the final loss is computed from the beginning."""
        treedef = jax.tree.structure(self.state)
        self.state = on_devices(jax.tree.unflatten(treedef, leaves), self.program.mesh)
        own = {name: meta[name] for name in ("ending", "outcome", "final_loss", "seconds")}
        self.schedule.restore({name: meta[name] for name in meta if name not in own})
        self.ending, self.outcome = (
            None if own[name] is None else Outcome(own[name]) for name in ("ending", "outcome")
        )
        self.final_loss, self.seconds = own["final_loss"], own["seconds"]


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
                with losses_named(shared=self.shared), runner.on_a_core():
                    runner.end(self.stop)

    def _train(self, runner: Runner, x64: bool) -> None:
        named = losses_named() if self.shared else contextlib.nullcontext()
        with jax.enable_x64(x64), named, runner.on_a_core():
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
            if pending and stopping.asked():
                raise KeyboardInterrupt
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
