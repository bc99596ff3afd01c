"""Settings of JAX for a whole process, made by choice: the command line's, not the library's."""

from __future__ import annotations

import os
import pathlib


def cache_variables(folder: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """Return JAX's variables that let it keep compiled programs, for the environment.

    Parameters
    ----------
    folder
        As in `enable_compilation_cache`; it is not made.

    Examples
    --------
    >>> cache_variables("programs")["JAX_COMPILATION_CACHE_DIR"]
    'programs'
    """
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(home, "varprop", "jax")
    return {
        "JAX_COMPILATION_CACHE_DIR": os.fspath(folder),
        # JAX's defaults keep only what took over a second to compile; ours are many small programs.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


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
    import jax

    path, seconds, n_bytes = cache_variables(folder).values()
    pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", path)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float(seconds))
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", int(n_bytes))
    return pathlib.Path(path)


def use_one_thread() -> None:
    """Let XLA run its programs on one thread, in a process that has one core to itself.

    XLA hands parts of a program to threads of its own, one per core, which wait for them by
    spinning. It has to be called before JAX computes anything in the process; afterwards it does
    nothing. Results are the same to the bit.

    Lanes of `fit_many` on rows in memory have one thread each with or without it. It is for what
    else a process computes beside others: streamed rows, predictions, programs of your own.

    Examples
    --------
    >>> use_one_thread()  # doctest: +SKIP
    """
    os.environ["NPROC"] = "1"  # read by XLA when it makes its threads
