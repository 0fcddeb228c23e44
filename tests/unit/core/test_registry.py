import pytest

from palestra.core.registry import NotInstalled, Registry, UnknownName


def test_names_builtin_registered_and_by_path():
    registry = Registry("things", {"ordered": "collections:OrderedDict"})
    registry.register("mine")(dict)
    assert registry.names() == ["mine", "ordered"]
    assert registry["ordered"].__name__ == "OrderedDict"
    assert registry["collections:Counter"].__name__ == "Counter"
    assert "mine" in registry
    assert "other" not in registry


def test_two_things_of_one_name_are_an_error():
    registry = Registry("things", {"ordered": "collections:OrderedDict"})
    with pytest.raises(ValueError, match="two things are called 'ordered'"):
        registry.register("ordered")(dict)


def test_unknown_names_get_a_hint():
    registry = Registry(
        "things", {"ordered": "collections:OrderedDict", "counter": "collections:Counter"}
    )
    with pytest.raises(UnknownName, match="no thing is called 'orderd'; did you mean 'ordered'"):
        registry["orderd"]
    with pytest.raises(UnknownName, match="there are: counter, ordered"):
        registry["zzz"]


def test_a_name_of_a_package_that_is_not_installed_says_what_to_install():
    registry = Registry("things", {"near": "builtins:int"}, packages={"far": "no-such-package"})
    assert registry.names() == ["far", "near"]
    registry.check_name("far")
    with pytest.raises(NotInstalled, match="pip install no-such-package"):
        registry["far"]
