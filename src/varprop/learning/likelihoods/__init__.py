"""What is observed, given the network's output: one file for each kind of target."""

from varprop.learning.likelihoods.bernoulli import BernoulliLikelihood as BernoulliLikelihood
from varprop.learning.likelihoods.categorical import Categorical as Categorical
from varprop.learning.likelihoods.censored import CensoredGaussian as CensoredGaussian
from varprop.learning.likelihoods.censored import CensoredLogNormal as CensoredLogNormal
from varprop.learning.likelihoods.classes import AbstractClasses as AbstractClasses
from varprop.learning.likelihoods.contract import AbstractGaussianMixture as AbstractGaussianMixture
from varprop.learning.likelihoods.contract import AbstractLikelihood as AbstractLikelihood
from varprop.learning.likelihoods.contract import AbstractPointwise as AbstractPointwise
from varprop.learning.likelihoods.contract import Component as Component
from varprop.learning.likelihoods.counts import NegativeBinomial as NegativeBinomial
from varprop.learning.likelihoods.counts import Poisson as Poisson
from varprop.learning.likelihoods.gaussian import AbstractGaussianNoise as AbstractGaussianNoise
from varprop.learning.likelihoods.gaussian import GaussianLikelihood as GaussianLikelihood
from varprop.learning.likelihoods.gaussian import HeteroscedasticGaussian as HeteroscedasticGaussian
from varprop.learning.likelihoods.ordinal import Ordinal as Ordinal
from varprop.learning.likelihoods.student import StudentT as StudentT
from varprop.learning.likelihoods.transformed import LogNormal as LogNormal
from varprop.learning.likelihoods.transformed import YeoJohnsonLikelihood as YeoJohnsonLikelihood

__all__ = [
    "AbstractClasses",
    "AbstractLikelihood",
    "AbstractPointwise",
    "BernoulliLikelihood",
    "Categorical",
    "CensoredGaussian",
    "CensoredLogNormal",
    "Component",
    "GaussianLikelihood",
    "HeteroscedasticGaussian",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "StudentT",
    "YeoJohnsonLikelihood",
]
