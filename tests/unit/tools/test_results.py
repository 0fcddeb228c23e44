"""The numbers of docs/results.md: what is kept of runs, what is said of them, and that the page
says what is kept.
"""

import json
import re
import sys
from pathlib import Path

import pytest

from palestra.tools.report.read import read_run
from tests.support.training import ECHO, trained

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))

import results  # noqa: E402
import results_page as page  # noqa: E402


def run(recipe, seed, success, curve=(0.1, 0.5), tokens=100):
    score = {
        "tasks": 10,
        "success": success,
        "success_interval": [success - 0.1, success + 0.1],
        "reward": success,
        "turns": 4.0,
    }
    evals = [
        {
            "tokens": 0,
            "envs": {
                "echo": {
                    "horizon": 4,
                    "all": {**score, "success": 0.1},
                    "red": {**score, "success": 0.2},
                }
            },
        },
        {"tokens": tokens, "envs": {"echo": {"horizon": 4, "all": score, "red": score}}},
    ]
    rows = [
        {"step": n, "tokens": tokens * (n + 1), "success": own, "turns": 3.0 + n}
        for n, own in enumerate(curve)
    ]
    facts = {
        "date": "2026-01-02",
        "machine": "2 CPU cores",
        "versions": {"palestra": "1"},
        "seconds": {"collect": 60, "learn": 60},
    }
    return {
        "recipe": recipe,
        "seed": seed,
        "evals": evals,
        "curve": rows,
        "tokens": 2_000_000,
        **facts,
    }


def test_a_table_has_a_line_for_each_recipe_with_intervals_over_seeds():
    runs = [
        run("a", 0, 0.4),
        run("a", 1, 0.5),
        run("a", 2, 0.6),
        run("b", 0, 0.9),
        run("b", 1, 0.9),
        run("b", 2, 0.9),
    ]
    _, _, a, b = page.table(runs).splitlines()
    # 0.5 -+ 4.303 * 0.1 / sqrt(3) = 0.248
    assert (
        a == "| `a` | 10.0% | 50.0% [25.2%, 74.8%] | 40.0%, 50.0%, 60.0% |  | 0.500 to 0.500 | "
        "4.0 | 2.00 | 2.0 | 0 of 3 |"
    )
    assert "| 90.0% [90.0%, 90.0%] | 90.0%, 90.0%, 90.0% | +40.0 [+15.2, +64.8] * |" in b


def test_one_seed_has_the_interval_over_its_tasks():
    assert "40.0% [30.0%, 50.0%]" in page.table([run("a", 0, 0.4)])


def test_two_seeds_have_the_interval_over_the_tasks_of_both():
    # 10 of 20, Wilson's interval; Student's, of two seeds, would reach from 0 to 1
    assert "50.0% [29.9%, 70.1%] | 40.0%, 60.0% |" in page.table(
        [run("a", 0, 0.4), run("a", 1, 0.6)]
    )


def test_one_run_over_two_environments_is_taken_as_one_sample():
    one = run("a", 0, 0.4)
    one["evals"][-1]["envs"]["other"] = {
        "all": {**one["evals"][-1]["envs"]["echo"]["all"], "success": 0.8, "tasks": 30}
    }
    # 4 of 10 and 24 of 30: 28 of 40, Wilson's interval
    assert "70.0% [54.6%, 81.9%]" in page.table([one])


def scored(recipe, seed, reward, interval=(0.1, 0.9)):
    one = run(recipe, seed, 0.4, curve=())
    for place, own in enumerate((0.2, reward)):
        one["evals"][place]["envs"]["echo"]["all"] |= {
            "reward": own,
            "reward_interval": [*interval],
        }
    one["curve"] = [
        {"step": n, "tokens": n, "success": 0.5, "reward": own, "turns": 1.0}
        for n, own in enumerate([0.8] * 10 + [0.5] * 10)
    ]
    return one


def test_where_tasks_can_be_done_in_part_the_score_is_what_is_compared():
    head, _, line = page.table([scored("a", 0, 0.6)], "reward").splitlines()
    assert "| held-out score (95%) |" in head
    assert "| success | turns |" in head
    # the reward falls from .8 to .5, below 70% of it; success stays as it is
    assert (
        line == "| `a` | 20.0% | 60.0% [10.0%, 90.0%] | 60.0% |  | 0.100 to 0.400 | 4.0 | 2.00 | "
        "2.0 | 1 of 1 |"
    )
    # two seeds, each +-0.03 and +-0.04 over its tasks: their mean is +-sqrt(0.03^2 + 0.04^2) / 2 =
    # 0.025
    two = [scored("a", 0, 0.4, (0.37, 0.43)), scored("a", 1, 0.6, (0.56, 0.64))]
    assert "50.0% [47.5%, 52.5%] | 40.0%, 60.0% |" in page.table(two, "reward")


def test_a_point_of_the_score_is_what_costs_are_counted_by():
    # 0.2 to 0.6 by score: 40 points for 2 million tokens; 0.1 to 0.4 by success: 30
    assert "| 40.0 | 50 |" in page.costs({"sciworld-cpu": [scored("a", 0, 0.6)]})
    assert "| 30.0 | 67 |" in page.costs({"others": [scored("a", 0, 0.6)]})


def test_figures_are_drawn_with_and_without_a_curve_of_the_score(tmp_path):
    for name, one in (("new", scored("a", 0, 0.6)), ("old", run("a", 0, 0.4))):
        assert page.draw([one], tmp_path / f"{name}.png", "reward").stat().st_size > 10_000


def test_what_one_recipe_came_to_by_category():
    runs = [run("a", 0, 0.4), run("a", 1, 0.6)]
    # 10 of 20, Wilson's interval
    assert page.by_category(runs).splitlines()[2:] == [
        "| red | 20 | 20.0% | 50.0% [29.9%, 70.1%] | 0.500 | 4.0 |"
    ]


def test_of_several_tries_the_last_one_is_told_by_category():
    tries = [run("a, first try", 0, 0.4), run("a", 0, 0.6)]
    both, last = page.tables(tries)
    assert both == page.table(tries)
    assert last == page.by_category(tries[1:])
    assert page.tables([*tries, run("a", 1, 0.6)]) == [
        page.table([*tries, run("a", 1, 0.6)])
    ]  # a comparison


def test_recipes_of_different_environments_are_compared_in_each():
    alone, both = run("alone", 0, 0.4), run("both", 0, 0.6)
    for result in both["evals"]:
        result["envs"]["other"] = {"all": {**result["envs"]["echo"]["all"], "success": 0.9}}
    (text,) = page.tables([alone, both])
    _, _, echo_alone, echo_both, other = text.splitlines()
    assert echo_alone == "| echo | `alone` | 10.0% | 40.0% [30.0%, 50.0%] | 40.0% |  | 2.00 | 2.0 |"
    assert echo_both.startswith("| echo | `both` | 10.0% | 60.0% [50.0%, 70.0%] | 60.0% | +20.0 [")
    assert other.startswith("| other | `both` | 90.0% | 90.0% [")


def test_what_a_point_costs():
    cheap, in_vain = run("a", 0, 0.5), run("b", 0, 0.1)
    # 40 points for 2 million tokens and 120 s, half of them playing
    assert page.costs({"mine": [cheap, in_vain]}).splitlines()[2:] == [
        "| mine | `a` | 40.0 | 50 | 3.0 | 50% | 50% | 2 CPU cores |",
        "| mine | `b` | 0.0 |  |  | 50% | 50% | 2 CPU cores |",
    ]


def test_collapse():
    rising, falling = [n / 40 for n in range(40)], [0.9] * 20 + [0.5] * 20
    assert not page.has_collapsed(run("a", 0, 0.5, rising))
    assert page.has_collapsed(run("a", 0, 0.5, falling))
    assert not page.has_collapsed(run("a", 0, 0.5, falling[:5]))


def test_the_mean_of_curves_is_taken_where_all_of_them_are():
    places, values = page.mean_curve([([0.0, 2.0], [0.0, 1.0]), ([1.0, 3.0], [1.0, 1.0])], points=3)
    assert places == [1.0, 1.5, 2.0]
    assert values == pytest.approx([0.75, 0.875, 1.0])


def test_what_is_kept_of_a_run(tmp_path):
    trained(tmp_path / "some-recipe-0", **{"eval.every": 3})
    path = results.keep("mine", [tmp_path / "some-recipe-0"], tmp_path / "kept")
    (one,) = json.loads(path.read_text())["runs"]
    record = read_run(tmp_path / "some-recipe-0")
    assert (one["recipe"], one["seed"], one["steps"]) == ("some-recipe", 0, ECHO["steps"])
    assert (
        one["tokens"]
        == sum(row["tokens/all"] for row in record.steps)
        == one["curve"][-1]["tokens"]
    )
    assert one["settings"]["optim"] == record.config["optim"]
    assert [own["phase"] for own in one["evals"]] == ["raw", "interim", "final"]
    assert one["evals"][1]["tokens"] == one["curve"][2]["tokens"]
    assert set(one["evals"][-1]["envs"]["echo"]) == {"horizon", "all", "red", "blue", "green"}
    trained(tmp_path / "some-recipe-1", seed=1)
    for folder in ("some-recipe-1", "some-recipe-0"):
        results.keep("mine", [tmp_path / folder], tmp_path / "kept")
    assert [one["seed"] for one in json.loads(path.read_text())["runs"]] == [0, 1]
    carried_home = results.keep("theirs", [path], tmp_path / "home")
    assert json.loads(carried_home.read_text())["runs"] == json.loads(path.read_text())["runs"]


def test_the_page_has_the_numbers_and_leaves_the_words(tmp_path):
    text = (
        "words\n\n<!-- mine -->\nold\n<!-- end -->\n\nother words\n\n<!-- theirs -->\nkept\n"
        "<!-- end -->\n"
    )
    (tmp_path / "results.md").write_text(text)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "mine.json").write_text(json.dumps({"runs": [run("a", 0, 0.4)]}))
    page.write_page(tmp_path / "results.md", tmp_path / "results")
    written = (tmp_path / "results.md").read_text()
    assert written.startswith("words\n\n<!-- mine -->\n| recipe |")
    assert written.endswith(
        "\n<!-- end -->\n\nother words\n\n<!-- theirs -->\nkept\n<!-- end -->\n"
    )
    assert "![mine](results/mine.png)" in written
    assert "*Seeds 0; 2026-01-02; 2 CPU cores; palestra 1.*" in written
    assert (tmp_path / "results" / "mine.png").stat().st_size > 1000


def test_a_comparison_runs_its_arms_from_one_model_and_may_leave_numbers_alone(
    tmp_path, monkeypatch
):
    before = trained(tmp_path / "before", steps=2)
    model = before.checkpoints / "step-000002"
    (tmp_path / "arm.toml").write_bytes((before.folder / "config.toml").read_bytes())
    monkeypatch.setattr(results, "RECIPES", tmp_path)
    monkeypatch.setitem(results.COMPARISONS, "mine", results.Comparison(("arm",)))
    monkeypatch.setattr(results, "keep", lambda name, runs: results.summary(read_run(runs[0])))
    results.run(["mine"], [3], tmp_path / "out", 1, model, only_numbers=True)
    record = read_run(tmp_path / "out" / "arm-3")
    assert (record.config["model"]["path"], record.seed) == (str(model), 3)
    assert results.summary(record)["settings"]["model"] == {"kind": "pretrained"}
    assert len(record.steps) == 2
    assert not (record.folder / "checkpoints").exists()
    assert not (record.folder / "trajectories").exists()


def test_every_arm_has_a_recipe():
    for comparison in results.COMPARISONS.values():
        for recipe in (*comparison.arms, *filter(None, [comparison.warm])):
            assert (results.RECIPES / f"{recipe}.toml").is_file()


def test_the_page_says_what_is_kept():
    text = (ROOT / "docs" / "results.md").read_text()
    blocks = dict(re.findall(r"<!-- ([\w-]+) -->\n(.*?)<!-- end -->", text, re.DOTALL))
    kept = {
        path.stem: json.loads(path.read_text())["runs"]
        for path in sorted((ROOT / "docs" / "results").glob("*.json"))
    }
    assert blocks["costs"] == page.costs(kept) + "\n"
    for name, runs in kept.items():
        assert blocks[name].startswith("\n\n".join(page.tables(runs, page.figure_of(name))))
        assert page.provenance(runs) in blocks[name]
