"""The names of `skipway`: each is there, and each error class of the package is one of them."""

import inspect

import skipway
from skipway import _errors


def test_every_name_loads() -> None:
    for name in dir(skipway):
        assert getattr(skipway, name) is not None, name


def test_every_error_can_be_caught_by_its_public_name() -> None:
    for name, kind in inspect.getmembers(_errors, inspect.isclass):
        assert getattr(skipway, name) is kind and issubclass(kind, skipway.SkipwayError)
