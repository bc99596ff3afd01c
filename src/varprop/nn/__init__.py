"""Layers, weights, noise and activations that carry a mean and a variance."""

from varprop.nn.activations import AbstractActivation as AbstractActivation
from varprop.nn.activations import Erf as Erf
from varprop.nn.activations import Heaviside as Heaviside
from varprop.nn.activations import Identity as Identity
from varprop.nn.activations import LeakyReLU as LeakyReLU
from varprop.nn.activations import ReLU as ReLU
from varprop.nn.activations import Sigmoid as Sigmoid
from varprop.nn.activations import Tanh as Tanh
from varprop.nn.contract import AbstractLayer as AbstractLayer
from varprop.nn.integrators import GELU as GELU
from varprop.nn.integrators import GaussHermite as GaussHermite
from varprop.nn.integrators import MonteCarlo as MonteCarlo
from varprop.nn.integrators import SiLU as SiLU
from varprop.nn.integrators import Softplus as Softplus
from varprop.nn.integrators import Table as Table
from varprop.nn.integrators import Unscented as Unscented
from varprop.nn.layers import Dense as Dense
from varprop.nn.layers import JointDense as JointDense
from varprop.nn.layers import Sequential as Sequential
from varprop.nn.layers import mlp as mlp
from varprop.nn.noise import AbstractNoise as AbstractNoise
from varprop.nn.noise import AdditiveNoise as AdditiveNoise
from varprop.nn.noise import Corruption as Corruption
from varprop.nn.noise import DropConnect as DropConnect
from varprop.nn.noise import Dropout as Dropout
from varprop.nn.noise import GaussianWeightNoise as GaussianWeightNoise
from varprop.nn.noise import MultiplicativeNoise as MultiplicativeNoise
from varprop.nn.parameters import constant as constant
from varprop.nn.plain import Affine as Affine
from varprop.nn.plain import Chain as Chain
from varprop.nn.recurrent import Recurrent as Recurrent
from varprop.nn.recurrent import Unrolled as Unrolled
from varprop.nn.recurrent import rnn as rnn
from varprop.nn.variables import AbstractVariable as AbstractVariable
from varprop.nn.variables import Bernoulli as Bernoulli
from varprop.nn.variables import Normal as Normal
from varprop.nn.variables import Uniform as Uniform
from varprop.nn.weights import AbstractWeights as AbstractWeights
from varprop.nn.weights import BernoulliWeights as BernoulliWeights
from varprop.nn.weights import GaussianWeights as GaussianWeights
from varprop.nn.weights import PointWeights as PointWeights

__all__ = [
    "GELU",
    "AbstractActivation",
    "AbstractLayer",
    "AbstractNoise",
    "AbstractVariable",
    "AbstractWeights",
    "AdditiveNoise",
    "Affine",
    "Bernoulli",
    "BernoulliWeights",
    "Chain",
    "Corruption",
    "Dense",
    "DropConnect",
    "Dropout",
    "Erf",
    "GaussHermite",
    "GaussianWeightNoise",
    "GaussianWeights",
    "Heaviside",
    "Identity",
    "JointDense",
    "LeakyReLU",
    "MonteCarlo",
    "MultiplicativeNoise",
    "Normal",
    "PointWeights",
    "ReLU",
    "Recurrent",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Table",
    "Tanh",
    "Uniform",
    "Unrolled",
    "Unscented",
    "constant",
    "mlp",
    "rnn",
]
