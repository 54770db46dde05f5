"""The fixture for interrupts at observers."""

from tests.support.observe.fixtures import heard

__all__ = ["heard"]
