"""What a model file keeps of the rows it was trained on: where they lie, and fingerprints."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from varprop.data.domain import Domain
from varprop.data.fingerprints import Fingerprints
from varprop.files.container import ModelFileError

_DOMAIN = [field.name for field in dataclasses.fields(Domain)]
_SEEN = [field.name for field in dataclasses.fields(Fingerprints)]


def describe_seen(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what a fitted estimator has seen, for a header and as arrays."""
    domain, seen = model.domain_, model.fingerprints_
    arrays: dict[str, Any] = {}
    if domain is not None:
        arrays |= {f"domain.{name}": getattr(domain, name) for name in _DOMAIN}
    if seen is not None:
        arrays |= {f"seen.{name}": getattr(seen, name) for name in _SEEN}
    arrays = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
    header = {"domain": domain is not None, "seen": seen is not None, "n_seen": model.n_seen_}
    return header, arrays


def check_seen(header: dict[str, Any], left: dict[str, Any]) -> None:
    """Take what belongs to it out of a header and out of arrays; older files have none of it."""
    n = header.get("n_features")
    there, known = header.pop("domain", False), header.pop("seen", False)
    n_seen = header.pop("n_seen", None)
    if n_seen is not None and (type(n_seen) is not int or not 1 <= n_seen < 2**53):
        raise ModelFileError("n_seen in the header is out of range.")
    if type(there) is not bool or type(known) is not bool:
        raise ModelFileError("domain or seen in the header is no yes or no.")
    shapes: dict[str, list[tuple[Any, ...]]] = {}
    if there:
        shapes = {f"domain.{name}": [(n,)] for name in _DOMAIN}
        shapes |= {"domain.whitening": [(n,), (n, n)], "domain.limit": [()]}
    if known:
        size = getattr(left.get("seen.values"), "shape", ())
        shapes |= {"seen.values": [(size[0] if size else -1,)], "seen.threshold": [()]}
    for name, allowed in shapes.items():
        found = left.pop(name, None)
        if found is None or found.shape not in allowed or found.dtype != np.float64:
            raise ModelFileError(f"array {name} is missing or damaged.")


def build_seen(model: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Give a fitted estimator what the file says it has seen."""
    model.domain_ = model.fingerprints_ = None
    model.n_seen_ = header.get("n_seen")
    if header.get("domain"):
        parts: dict[str, Any] = {name: arrays.pop(f"domain.{name}") for name in _DOMAIN}
        model.domain_ = Domain(**(parts | {"limit": float(parts["limit"])}))
    if header.get("seen"):
        parts = {name: arrays.pop(f"seen.{name}") for name in _SEEN}
        model.fingerprints_ = Fingerprints(parts["values"], float(parts["threshold"]))
