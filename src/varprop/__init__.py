"""varprop: a neural network's whole predictive distribution in one forward pass, no sampling."""

from varprop import nn as nn
from varprop import priors as priors
from varprop.checking import CheckReport as CheckReport
from varprop.checking import check as check
from varprop.compilation import enable_compilation_cache as enable_compilation_cache
from varprop.data import Data as Data
from varprop.data import Scaling as Scaling
from varprop.likelihoods import GaussianLikelihood as GaussianLikelihood
from varprop.model import Model as Model
from varprop.model import regression_model as regression_model
from varprop.moments import Gaussian as Gaussian
from varprop.moments import JointGaussian as JointGaussian
from varprop.objectives import ROPD as ROPD
from varprop.objectives import VI as VI
from varprop.objectives import MaximumLikelihood as MaximumLikelihood
from varprop.objectives import SampledVI as SampledVI
from varprop.prediction import propagate as propagate
from varprop.training import Fit as Fit
from varprop.training import Lane as Lane
from varprop.training import Outcome as Outcome
from varprop.training import Recipe as Recipe
from varprop.training import StopRule as StopRule
from varprop.training import fit as fit
from varprop.training import fit_many as fit_many
from varprop.training import fit_restarts as fit_restarts

__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> object:
    # scikit-learn takes longer to import than all the rest; only who asks for the regressor waits.
    if name == "FAWNRegressor":
        from varprop.regressor import FAWNRegressor

        return FAWNRegressor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
