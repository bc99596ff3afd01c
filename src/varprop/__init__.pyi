"""The public names and where they live; read by type checkers and, lazily, at run time."""

from . import data as data
from . import nn as nn
from . import plotting as plotting
from . import report as report
from . import training as training
from .compilation import enable_compilation_cache as enable_compilation_cache
from .compilation import use_one_thread as use_one_thread
from .data.source import Data as Data
from .data.statistics import Scaling as Scaling
from .estimators.regressor import FAWNRegressor as FAWNRegressor
from .files.model import load_model as load_model
from .files.model import save_model as save_model
from .learning import likelihoods as likelihoods
from .learning import priors as priors
from .learning.likelihoods import AbstractLikelihood as AbstractLikelihood
from .learning.likelihoods import GaussianLikelihood as GaussianLikelihood
from .learning.likelihoods import HeteroscedasticGaussian as HeteroscedasticGaussian
from .learning.model import Model as Model
from .learning.model import regression_model as regression_model
from .learning.objectives import ROPD as ROPD
from .learning.objectives import VI as VI
from .learning.objectives import MaximumLikelihood as MaximumLikelihood
from .learning.objectives import SampledVI as SampledVI
from .moments.gaussian import Gaussian as Gaussian
from .moments.gaussian import JointGaussian as JointGaussian
from .nn.checking import CheckReport as CheckReport
from .nn.checking import check as check
from .nn.registry import register as register
from .predictive import conformal as conformal
from .predictive import diagnostics as diagnostics
from .predictive import importance as importance
from .predictive import metrics as metrics
from .predictive import scoring as scoring
from .training import Fit as Fit
from .training import Lane as Lane
from .training import Outcome as Outcome
from .training import Recipe as Recipe
from .training import StopRule as StopRule
from .training import distributed as distributed
from .training import fit as fit
from .training import fit_many as fit_many
from .training import fit_restarts as fit_restarts
from .training.result import propagate as propagate

__version__: str
