"""Whose a field is: edits take it, applies respect it, force overrules."""

from controlplane.domain.ownership import applied, edited

DEFAULTS = {"open": 10, "close": 1, "match": "any"}
CURRENT = {"open": 30, "close": 1, "match": "any"}


def test_an_edit_takes_what_it_changed_and_no_more() -> None:
    after = CURRENT | {"open": 20}
    assert edited({"close": "git"}, CURRENT, after, "ann") == {"close": "git", "open": "ann"}


def test_an_apply_that_would_change_anothers_field_clashes_and_changes_nothing() -> None:
    found = applied({"open": "ann"}, CURRENT, {"open": 5}, DEFAULTS, "git", force=False)
    assert [(c.field, c.manager, c.current, c.wanted) for c in found.clashes] == [
        ("open", "ann", 30, 5)
    ]
    assert (found.fields, found.managers) == (CURRENT, {"open": "ann"})


def test_force_takes_the_field_over() -> None:
    found = applied({"open": "ann"}, CURRENT, {"open": 5}, DEFAULTS, "git", force=True)
    assert (found.fields["open"], found.managers, found.clashes) == (5, {"open": "git"}, ())


def test_agreeing_is_no_clash_and_leaves_the_field_whose_it_was() -> None:
    found = applied({"open": "ann"}, CURRENT, {"open": 30}, DEFAULTS, "git", force=False)
    assert (found.managers, found.clashes) == ({"open": "ann"}, ())


def test_what_nobody_wrote_is_free() -> None:
    found = applied({}, CURRENT, {"close": 2}, DEFAULTS, "git", force=False)
    assert (found.fields["close"], found.managers) == (2, {"close": "git"})


def test_what_the_file_no_longer_names_goes_back_to_its_default() -> None:
    found = applied({"open": "git"}, CURRENT, {"close": 2}, DEFAULTS, "git", force=False)
    assert found.fields == {"open": 10, "close": 2, "match": "any"}
    assert found.managers == {"close": "git"}
