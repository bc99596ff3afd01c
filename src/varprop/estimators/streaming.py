"""A FAWNRegressor trained on a source of row blocks instead of arrays."""

from __future__ import annotations

import jax
import numpy as np

from varprop.data.source import AbstractSource
from varprop.data.statistics import Statistics
from varprop.estimators.members import best_start, summary, with_floor
from varprop.estimators.options import check_options, make_objective, make_recipe, model_factory
from varprop.estimators.regressor import FAWNRegressor
from varprop.training.engine import restart_lanes
from varprop.training.result import Outcome
from varprop.training.stream_engine import fit_stream


def fit_regressor(
    regressor: FAWNRegressor,
    source: AbstractSource,
    *,
    statistics: Statistics | None = None,
    buffer_rows: int | None = None,
) -> FAWNRegressor:
    """Train a regressor on a source, from a new start; afterwards it is as after `fit`.

    Members and restarts are trained one after the other, each with its own passes over the source.

    Parameters
    ----------
    regressor
        With the options to train by.
    source
        The training rows. Names of features and targets become those of the regressor.
    statistics, buffer_rows
        As in `fit_stream`; statistics in the regressor's dtype.

    Returns
    -------
    FAWNRegressor
        The same regressor.

    Raises
    ------
    KeyboardInterrupt
        If it was interrupted; the regressor is unchanged then.

    Examples
    --------
    >>> import pathlib, tempfile, pandas, pyarrow, pyarrow.parquet
    >>> from varprop.data.parquet import ParquetSource
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.parquet"
    >>> x = np.linspace(0, 1, 64)
    >>> pyarrow.parquet.write_table(pyarrow.table({"x": x, "y": 2 * x}), path)
    >>> source = ParquetSource(path, targets="y")
    >>> model = fit_regressor(FAWNRegressor(4, max_iter=5, random_state=0), source)
    >>> model.predict(pandas.DataFrame({"x": [0.5]})).shape, model.outcome_
    ((1,), 'max_steps')
    """
    options = regressor.get_params(deep=False)
    check_options(options)
    n_inputs, n_outputs = len(source.features), len(source.targets)
    with jax.enable_x64(regressor.dtype == "float64"):
        if statistics is None:
            statistics = Statistics.of(source, dtype=regressor.dtype)
        floor = statistics.noise_floor / statistics.scaling.y_scale
        init = model_factory(options, n_inputs, n_outputs)
        recipe = make_recipe(options, source.n_rows)
        chosen = []
        for key in jax.random.split(regressor._key(), regressor.n_members):
            fits = []
            for lane in restart_lanes(
                lambda key: with_floor(init(key), floor),
                key=key,
                n_restarts=regressor.n_restarts,
                recipe=recipe,
            ):
                fit = fit_stream(
                    lane.model,
                    source,
                    make_objective(regressor.objective),
                    key=lane.key,
                    recipe=lane.recipe,
                    statistics=statistics,
                    buffer_rows=buffer_rows,
                    progress=bool(regressor.verbose),
                )
                if fit.outcome is Outcome.INTERRUPTED:
                    raise KeyboardInterrupt
                fits.append(fit)
            chosen.append(best_start(fits, recipe))
        trained = summary(chosen)
    regressor.n_features_in_ = n_inputs
    regressor.feature_names_in_ = np.array(source.features, dtype=object)
    regressor.target_names_ = list(source.targets)
    regressor.n_outputs_, regressor._y_ndim = n_outputs, 1 if n_outputs == 1 else 2
    return regressor._take(trained, statistics.scaling)
