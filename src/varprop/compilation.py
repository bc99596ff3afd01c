"""JAX's persistent compilation cache, on by choice: the command line's, not the library's."""

from __future__ import annotations

import os
import pathlib

import jax


def enable_compilation_cache(folder: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Keep compiled programs on disk, so that the next process need not compile them again.

    This changes JAX's configuration for the whole process, hence only when called.

    Parameters
    ----------
    folder
        Where to keep them; ``$XDG_CACHE_HOME/varprop/jax`` (usually ``~/.cache/varprop/jax``)
        unless given.

    Returns
    -------
    pathlib.Path
        The folder.

    Examples
    --------
    >>> enable_compilation_cache("cache")  # doctest: +SKIP
    PosixPath('cache')
    """
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        folder = pathlib.Path(home) / "varprop" / "jax"
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    # JAX's defaults keep only what took over a second to compile; ours are many small programs.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path
