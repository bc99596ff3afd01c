"""A neural network's whole predictive distribution in one forward pass, with no sampling."""

from varprop import nn as nn
from varprop.checking import CheckReport as CheckReport
from varprop.checking import check as check
from varprop.moments import Gaussian as Gaussian
from varprop.moments import JointGaussian as JointGaussian

__version__ = "0.1.0.dev0"
