"""The table of flags: each names an attribute or a setting of the run."""

from __future__ import annotations

import pytest

from graphgen.runtime.aws_config.attribute import Refused
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.demo_flags import CHOICES, DEMO_FLAGS, FORMS


def test_all_flags_are_there():
    # 150 of the current reference, and the older --no-trace-tokengen-model.
    assert len(DEMO_FLAGS) + len(CHOICES) == 151


@pytest.mark.parametrize("flag", DEMO_FLAGS)
def test_each_flag_has_an_owner_or_a_meaning(flag: str):
    row = DEMO_FLAGS[flag]
    assert row.form in FORMS
    assert row.help
    if row.owner:
        assert row.name in attributes_of(row.owner)
        assert row.refused is None


def test_forms_follow_from_the_attributes():
    assert DEMO_FLAGS["--fused-qkv"].form == "switch"
    assert DEMO_FLAGS["--tp-degree"].form == "value"
    assert DEMO_FLAGS["--context-encoding-buckets"].form == "list"
    assert DEMO_FLAGS["--attn-kernel-enabled"].form == "negatable"


def test_settings_of_the_run_that_are_not_built_name_the_feature():
    refused = [row for row in DEMO_FLAGS.values() if isinstance(row.refused, Refused)]
    assert {row.flag for row in refused} == {
        "--input-start-offsets",
        "--enable-torch-dist",
    }
