"""The driver's asserts speak as those of a test file do."""

import pytest

pytest.register_assert_rewrite("tests.property.drive")
