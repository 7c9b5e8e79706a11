"""Known gaps of rules: cases whose right value is written down and that do not hold yet."""

import pytest

GAPS = {
    "test_quiet_on[scaled activations, unscaled gradient]": "SKW605 takes a gradient that is scaled on its way for one that is cut",
    "test_fires_where_torch_drops_the_hook[attention]": "SKW608 does not meet the add inside an attention",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name in GAPS:
            item.add_marker(pytest.mark.xfail(strict=False, reason=GAPS[item.name]))
