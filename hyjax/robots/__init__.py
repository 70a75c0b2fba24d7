"""Robots: trees of rigid bodies, from a file or from numbers, as mechanisms."""

from .from_mujoco import from_mujoco as from_mujoco
from .robot import Robot as Robot, RobotParams as RobotParams
from .walker import Walker as Walker, walker as walker
