"""What flows: Gaussians, their covariances, and float-safe scalar maths with exact derivatives."""

from varprop.moments.gaussian import Gaussian as Gaussian
from varprop.moments.gaussian import JointGaussian as JointGaussian
