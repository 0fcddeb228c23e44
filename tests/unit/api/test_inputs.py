"""Python values as the tables of a recipe."""

from functools import partial
from typing import get_type_hints

import pytest

import palestra
from palestra.api.inputs import RunSettings, config_of, env_tables, settings_tree, tables_of
from palestra.config.config import Config, build
from palestra.core.errors import ConfigError, UserError
from palestra.envs import envs, make_env
from palestra.envs.guess.env import Guess
from tests.support.environments import Echo


class Local(Echo):
    """Not importable once it was defined in a function."""


def config(env="guess", model=None, recipe=None, **settings):
    if recipe is not None:
        return config_of(env, model, recipe, settings)
    return build(*tables_of(env, model, settings), imports=True)


def test_the_keywords_of_train_are_the_settings_of_a_run():
    assert set(get_type_hints(RunSettings)) == {*Config.model_fields} - {"env", "mixture", "model"}


def test_settings_are_objects_tables_or_dotted_names():
    algo = palestra.GRPO(clip_high=0.3)
    built = config(
        steps=7,
        algo=algo,
        horizon=palestra.Stages(turns=[4, 8], every=25),
        rollout={"tasks": 3},
        **{"rollout.group": 5},
    )
    assert (built.steps, built.algo, built.rollout.tasks, built.rollout.group) == (7, algo, 3, 5)
    assert built.horizon.turns == (4, 8)
    assert config(horizon=6).horizon == palestra.Fixed(turns=6)
    assert config(algo="rloo").algo == palestra.RLOO()


def test_what_is_given_is_laid_over_the_recipe(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('steps = 9\n[rollout]\ntasks = 3\ngroup = 4\n[algo]\nname = "rloo"\n')
    built = config(recipe=recipe, rollout={"group": 6})
    assert (built.steps, built.rollout.tasks, built.rollout.group) == (9, 3, 6)
    assert built.algo.name == "rloo"
    assert config(recipe=recipe, algo=palestra.GRPO()).algo.name == "grpo"


def test_a_model_is_a_path_a_table_or_an_object():
    assert config(model="Qwen/Qwen2.5-0.5B-Instruct").model == palestra.PretrainedModel(
        path="Qwen/Qwen2.5-0.5B-Instruct"
    )
    assert config(model={"width": 64}).model.width == 64
    assert config(model=palestra.TinyModel(layers=2)).model.layers == 2


def test_environments_are_names_classes_factories_tables_and_lists():
    assert env_tables("guess") == {"env": {"name": "guess"}}
    assert env_tables(Guess) == {"env": {"name": "palestra.envs.guess.env:Guess"}}
    with_options = env_tables(partial(Guess, size=50))
    assert with_options["env"]["options"] == {"size": 50}
    mixture = env_tables([Guess, {"name": "textcraft", "weight": 2.0}])["mixture"]
    assert [member["name"] for member in mixture] == ["palestra.envs.guess.env:Guess", "textcraft"]
    own = env_tables({"name": Guess, "label": "numbers"})["env"]
    assert own == {"name": "palestra.envs.guess.env:Guess", "label": "numbers"}


def test_a_class_that_cannot_be_imported_is_known_in_this_process():
    class Inner(Guess):
        pass

    (table,) = env_tables(Inner).values()
    assert "<locals>" in table["name"]
    assert isinstance(make_env(table["name"], {}), Inner)
    assert envs.is_local(table["name"])
    assert not envs.is_local("palestra.envs.guess.env:Guess")


def test_a_factory_is_called_for_each_environment():
    def small():
        return Guess(size=4)

    table = env_tables(small)["env"]
    first, second = (make_env(table["name"], {}) for _ in range(2))
    assert first is not second
    assert type(first) is Guess


def test_two_factories_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two callables are called 'lambda'"):
        env_tables([lambda: Guess(size=4), lambda: Guess(size=5)])


def test_a_factory_must_return_an_environment():
    table = env_tables(lambda: "no environment")["env"]
    with pytest.raises(ValueError, match=r"expected a palestra\.Environment, .* returned str"):
        make_env(table["name"], {})


@pytest.mark.parametrize(
    ("env", "phrase"),
    [
        (Guess(), "an instance of Guess: many episodes run at the same time"),
        (int, "int: expected a subclass of palestra.Environment"),
        (3, "env = 3: expected an Environment class"),
        ([], "expected at least one environment"),
        ("gues", "did you mean 'guess'?"),
    ],
)
def test_what_is_no_environment_is_refused_in_one_line(env, phrase):
    with pytest.raises(ConfigError, match=".*") as caught:
        config(env)
    assert phrase in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_typo_names_the_nearest_setting():
    with pytest.raises(UserError, match="did you mean 'tasks'"):
        config(rollout={"task": 3})
    with pytest.raises(UserError, match="rolout"):
        config(**{"rolout": {"tasks": 3}})


def test_only_what_was_set_is_written_down():
    """So that a recipe's other settings stay."""
    tree, dotted = settings_tree({"optim": palestra.Config().optim, "limit.minutes": 2})
    assert dotted == {"limit.minutes": 2}
    assert "lr" in tree["optim"]
    assert settings_tree({"algo": palestra.GRPO(clip_high=0.3)})[0] == {
        "algo": {"clip_high": 0.3, "name": "grpo"}
    }
