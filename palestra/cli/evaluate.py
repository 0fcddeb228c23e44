"""`palestra eval`: how good a run, a model or a baseline is on held-out tasks."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from palestra.cli.command import Json, check_run_folder, find_modules_here
from palestra.cli.settings import complete_recipe
from palestra.core.errors import UserError
from palestra.core.printing import as_json as json_of
from palestra.core.printing import print_json, print_result

if TYPE_CHECKING:
    from palestra.config.config import Config


RunOrRecipe = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        help="a run, whose newest checkpoint plays, or a recipe",
        autocompletion=complete_recipe,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(help="a directory, a name on the hub or a GGUF file, instead of the run's"),
]
Agent = Annotated[
    Literal["expert", "random"] | None, typer.Option(help="a baseline instead of a model")
]
Env = Annotated[str | None, typer.Option(help="the environment (default: the run's)")]
Split = Annotated[str | None, typer.Option(help="default: the run's, else test")]
Ids = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="the tasks to play, in place of a split and a limit (also a recipe's own): an id "
        "a line, or AgentGym's JSON of item_id",
    ),
]
K = Annotated[int | None, typer.Option("--k", min=1, help="episodes per task")]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="tasks at most")]
Horizon = Annotated[
    int | None,
    typer.Option(min=1, help="turns (default: the run's longest, else the environment's)"),
]
Temperature = Annotated[
    float | None, typer.Option(help="of sampling; 0 is greedy (default: the run's)")
]
Seed = Annotated[int | None, typer.Option(help="of the sampling noise")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="the file for the result (default: in runs/eval, or in the eval folder of the run "
        "that plays)",
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="a new folder for all episodes, for palestra view"),
]


def evaluate(
    ctx: typer.Context,
    run_or_recipe: RunOrRecipe = None,
    model: Model = None,
    agent: Agent = None,
    env: Env = None,
    split: Split = None,
    ids: Ids = None,
    k: K = None,
    limit: Limit = None,
    horizon: Horizon = None,
    temperature: Temperature = None,
    seed: Seed = None,
    out: Out = None,
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Evaluate a run, a model or a baseline on held-out tasks."""
    settings = _settings(
        ctx.obj,
        run_or_recipe,
        model=model,
        agent=agent,
        ids=ids,
        flags={
            "env.name": env,
            "eval.split": split,
            "eval.k": k,
            "eval.tasks": limit,
            "eval.horizon": horizon,
            "eval.temperature": temperature,
            "seed": seed,
        },
    )
    if out is not None and out.is_dir():
        raise UserError(f"--out {out}: is a folder; expected the file for the result")
    find_modules_here()
    plays_run = model is None and agent is None

    import msgspec

    from palestra.api.evaluate import evaluate_resolved

    result = evaluate_resolved(
        lambda: _config(run_or_recipe, settings, plays_run=plays_run),
        agent=agent,
        own_horizon=run_or_recipe is not None and env is None,
        ids=ids,
        keep=keep,
        display="auto",
    )
    what = agent or ("model" if model else f"step-{result.step:06d}")
    names = "+".join(result.envs)
    # What else than the run's own checkpoint plays has no place among the run's evaluations.
    is_own = plays_run and run_or_recipe is not None and _is_run(run_or_recipe)
    folder = run_or_recipe / "eval" if is_own and run_or_recipe else Path("runs") / "eval"
    file = out or folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{names}-{what}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json_of(result) + "\n")
    if as_json:
        kept = {"episodes": str(keep)} if keep else {}
        return print_json(msgspec.to_builtins(result) | {"file": str(file)} | kept)
    print_result(result)
    if result.splits is not msgspec.UNSET:
        counts = [f"{count} {split}" for split, count in result.splits.items()]
        print(f"{ids}: {', '.join(counts)}")
    print(f"result file: {file}")
    if keep is not None:
        print(f"episodes: {keep} (palestra view {keep})")


def _settings(
    settings: dict[str, Any],
    run_or_recipe: Path | None,
    *,
    model: str | None,
    agent: str | None,
    ids: Path | None,
    flags: dict[str, Any],
) -> dict[str, Any]:
    """The settings that the flags stand for; UserError where flags contradict each other."""
    if run_or_recipe is None and model is None and agent is None:
        raise UserError(
            "eval: expected a run folder, a recipe, --model or --agent (see: palestra eval --help)"
        )
    if model is not None and agent is not None:
        raise UserError("eval: --model and --agent exclude each other")
    settings = {name: value for name, value in flags.items() if value is not None} | settings
    if run_or_recipe is None and "env.name" not in settings:
        raise UserError(
            "eval: --env is needed with --model and --agent, or a run or recipe whose "
            "environment it is"
        )
    if ids is not None:
        for name, flag in (("eval.split", "--split"), ("eval.tasks", "--limit")):
            if name in settings:
                given = flag if flags[name] is not None else f"--{name}"
                raise UserError(
                    f"eval: {given} has no effect with --ids, which names the tasks; leave one "
                    "of them out"
                )
    if "env.name" in settings:
        settings |= {"mixture": []}
    if model is not None:
        settings |= {"model": model, "lora": None}
    return settings


def _config(run_or_recipe: Path | None, settings: dict[str, Any], *, plays_run: bool) -> Config:
    """The configuration to evaluate with. `plays_run`: the run's own newest checkpoint plays."""
    from palestra.config import config as configs

    if run_or_recipe is None:
        return configs.build({}, settings, imports=True)
    if not _is_run(run_or_recipe):
        return configs.load(run_or_recipe, settings, imports=True)
    if plays_run:
        from palestra.api.evaluate import newest_checkpoint
        from palestra.api.inputs import model_table

        found = newest_checkpoint(
            run_or_recipe, on_damage=lambda damage: print(f"palestra: {damage}", file=sys.stderr)
        )
        tree = configs.read_recipe(run_or_recipe / "config.toml")
        tree.pop("lora", None)
        return configs.build(tree | {"model": model_table(found)}, settings, imports=True)
    return configs.load(run_or_recipe / "config.toml", settings, imports=True)


def _is_run(run_or_recipe: Path) -> bool:
    """A recipe is a TOML file, or the name of a shipped one; all else is a run's folder."""
    from palestra.config.config import shipped_recipes

    if run_or_recipe.suffix == ".toml" or str(run_or_recipe) in shipped_recipes():
        return False
    if not run_or_recipe.is_dir():
        from palestra.envs import envs

        hint = f"; an environment is given as --env {run_or_recipe}"
        raise UserError(
            f"{run_or_recipe}: expected a run folder, or a recipe (palestra recipes lists the "
            f"shipped ones){hint if str(run_or_recipe) in envs else ''}"
        )
    check_run_folder(run_or_recipe)
    return True
