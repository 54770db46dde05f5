"""The fixtures for observers."""

from tests.support.observe.fixtures import flavour, heard, set_up, stage

__all__ = ["flavour", "heard", "set_up", "stage"]
