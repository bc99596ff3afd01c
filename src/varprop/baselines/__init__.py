"""What the paper compares with, run live."""

from varprop.baselines.pbp import PBPRegressor as PBPRegressor
