"""The public names and where they live; read by type checkers and, lazily, at run time."""

from . import conformal as conformal
from . import diagnostics as diagnostics
from . import distributed as distributed
from . import importance as importance
from . import metrics as metrics
from . import nn as nn
from . import plotting as plotting
from . import priors as priors
from . import report as report
from . import scoring as scoring
from . import streaming as streaming
from . import training as training
from .checking import CheckReport as CheckReport
from .checking import check as check
from .compilation import enable_compilation_cache as enable_compilation_cache
from .compilation import use_one_thread as use_one_thread
from .data import Data as Data
from .data import Scaling as Scaling
from .likelihoods import GaussianLikelihood as GaussianLikelihood
from .model import Model as Model
from .model import regression_model as regression_model
from .moments import Gaussian as Gaussian
from .moments import JointGaussian as JointGaussian
from .objectives import ROPD as ROPD
from .objectives import VI as VI
from .objectives import MaximumLikelihood as MaximumLikelihood
from .objectives import SampledVI as SampledVI
from .prediction import propagate as propagate
from .regressor import FAWNRegressor as FAWNRegressor
from .training import Fit as Fit
from .training import Lane as Lane
from .training import Outcome as Outcome
from .training import Recipe as Recipe
from .training import StopRule as StopRule
from .training import fit as fit
from .training import fit_many as fit_many
from .training import fit_restarts as fit_restarts

__version__: str
