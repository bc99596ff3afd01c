"""One progress bar for all lanes, only when asked for."""

from __future__ import annotations

import math
from types import TracebackType


class Progress:
    """Shows lanes done / total, the share of steps done and the current loss; silent if disabled.

    Rich is imported only when a bar is shown.
    """

    def __init__(self, enabled: bool, n_lanes: int, max_steps: int):
        self._total = n_lanes * max_steps
        self._n_lanes = n_lanes
        self._max_steps = max_steps
        self._bar = None
        if enabled:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                TextColumn("training"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("lanes {task.fields[done]}/{task.fields[lanes]}"),
                TextColumn("loss {task.fields[loss]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                transient=True,
                console=Console(stderr=True),  # standard output is for results
            )

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(
                "training", total=self._total, done=0, lanes=self._n_lanes, loss="-"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, steps: list[int], finished: list[bool], losses: list[float]) -> None:
        """Update the bar; a finished lane counts as all of its steps."""
        if self._bar is None:
            return
        done = sum(
            self._max_steps if over else min(step, self._max_steps)
            for step, over in zip(steps, finished, strict=True)
        )
        running = [
            loss
            for loss, over in zip(losses, finished, strict=True)
            if not over and not math.isnan(loss)
        ]
        loss = f"{sum(running) / len(running):.4f}" if running else "-"
        self._bar.update(self._task, completed=done, done=sum(finished), loss=loss)
