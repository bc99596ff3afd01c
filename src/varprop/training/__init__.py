"""Training: `fit` one model or `fit_many` lanes on one compiled program."""

from varprop.training import distributed as distributed
from varprop.training.checkpoint import CheckpointError as CheckpointError
from varprop.training.engine import fit as fit
from varprop.training.engine import fit_many as fit_many
from varprop.training.engine import fit_restarts as fit_restarts
from varprop.training.preparation import Lane as Lane
from varprop.training.recipe import Recipe as Recipe
from varprop.training.recipe import StopRule as StopRule
from varprop.training.result import Fit as Fit
from varprop.training.schedule import Outcome as Outcome
