"""Deprecated alias of `models.settings`, kept for one release for Python configuration files."""

import warnings

from models.settings import *  # noqa: F403 (everything that configuration files could import from here)

warnings.warn("models.training.config is deprecated: import from models.settings", DeprecationWarning, stacklevel=2)
