"""Noise through events: covariances, of states and of return maps, Kalman filters and smoothers."""

from .covariance import (
    Covariance as Covariance,
    covariance as covariance,
    stationary_covariance as stationary_covariance,
    stride_covariance as stride_covariance,
)
from .estimates import Estimates as Estimates, Filtered as Filtered, rts_smoother as rts_smoother
from .kalman import kalman_filter as kalman_filter
from .noise import Noise as Noise
