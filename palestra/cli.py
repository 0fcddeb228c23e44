"""`palestra ...`: the command line. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import os
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from palestra import cli_env, cli_plan, cli_report, cli_search, cli_view, cli_web
from palestra.core.credentials import name_hosts
from palestra.core.errors import UserError
from palestra.core.interrupts import Interrupted, end_in_time
from palestra.envs.serving.watchdog import watchdog
from palestra.printing import as_json, fail, print_json, print_result

if TYPE_CHECKING:
    from palestra.config.config import Config

EVAL_ATTEMPTS = 3
"""A run that is being trained may replace the checkpoint that is about to be evaluated."""


IMPORT_NOTHING = ("view", "report", "explain", "plan", "model")
"""Commands that import nothing from the folder they are run in: it may be a run folder that
somebody sent.
"""


class _Parser(argparse.ArgumentParser):
    """Bad input exits 2 with one line."""

    def error(self, message: str) -> NoReturn:
        fail(f"{message} (see: {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> None:
    """`arguments`: what to do in place of the program's own, by somebody who goes on afterwards."""
    if arguments is not None:
        return _run(arguments)
    watchdog.is_wanted = True
    code = 1
    try:
        _run(sys.argv[1:])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise
    finally:
        end_in_time(code)


def _run(arguments: Sequence[str]) -> None:
    try:
        parser = _parser()
        plain, settings = split_settings(parser, list(arguments))
        known = parser.parse_args(plain)
        if not (
            known.command in IMPORT_NOTHING or vars(known).get("dry_run") or vars(known).get("help")
        ):
            sys.path.append(
                os.getcwd()
                # so that "my_module:MyEnv" is found; last, so that nothing here stands in for a
                # package
            )
        if settings and not known.takes_settings:
            fail(
                f"--{next(iter(settings))}: there is no such flag (see: palestra "
                f"{known.command} --help)"
            )
        name_hosts(vars(known), settings)
        known.run(known, settings)
    except Interrupted as interrupted:
        raise SystemExit(interrupted.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
    except UserError as error:
        fail(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="palestra",
        description=(
            "Train LLM agents for long-horizon, multi-turn decision making by "
            "reinforcement learning."
        ),
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )

    train = commands.add_parser(
        "train", help="train a recipe, or go on with a run", add_help=False, allow_abbrev=False
    )
    train.add_argument(
        "recipe",
        nargs="?",
        type=Path,
        help="a TOML file; any setting can follow as a dotted flag, e.g. --optim.lr 1e-6",
    )
    train.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with this run from its newest checkpoint"
    )
    train.add_argument(
        "--out", type=Path, metavar="DIR", help="the run folder (default: runs/<recipe>-<time>)"
    )
    train.add_argument("--dry-run", action="store_true", help="print the resolved run and stop")
    train.add_argument("--json", action="store_true", help="print the final result as JSON")
    train.add_argument(
        "-h", "--help", action="store_true", help="show this and all settings of the recipe"
    )
    train.set_defaults(run=_train, takes_settings=True, parser=train)

    explain = commands.add_parser(
        "explain",
        help="print what a recipe optimizes, with the numbers filled in",
        allow_abbrev=False,
    )
    explain.add_argument("recipe", type=Path)
    explain.set_defaults(run=_explain, takes_settings=True)

    evaluate = commands.add_parser(
        "eval", help="evaluate a run, a model or a baseline on held-out tasks", allow_abbrev=False
    )
    evaluate.add_argument(
        "run_or_recipe",
        nargs="?",
        type=Path,
        metavar="RUN",
        help="a run, whose newest checkpoint plays, or a recipe",
    )
    evaluate.add_argument(
        "--model",
        metavar="MODEL",
        help="a directory, a name on the hub or a GGUF file, instead of the run's",
    )
    evaluate.add_argument(
        "--agent", choices=["expert", "random"], help="a baseline instead of a model"
    )
    evaluate.add_argument("--env", help="the environment (default: the run's)")
    evaluate.add_argument("--split", help="default: the run's, else test")
    evaluate.add_argument(
        "--ids",
        type=Path,
        metavar="FILE",
        help="the tasks to play, in place of a split and a limit (also a recipe's own): an id "
        "a line, or AgentGym's JSON of item_id",
    )
    evaluate.add_argument("--k", type=_positive, help="episodes per task")
    evaluate.add_argument("--limit", type=_positive, metavar="N", help="tasks at the most")
    evaluate.add_argument(
        "--horizon",
        type=_positive,
        help="turns (default: the run's longest, else the environment's)",
    )
    evaluate.add_argument("--temperature", type=float)
    evaluate.add_argument("--seed", type=int, help="of the sampling noise")
    evaluate.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where the result goes (default: runs/eval, or the eval folder of the run that plays)",
    )
    evaluate.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="a new folder for all episodes, to be looked at with palestra view",
    )
    evaluate.add_argument("--json", action="store_true", help="print the result as JSON")
    evaluate.set_defaults(run=_eval, takes_settings=True)
    _add_replay(commands)
    cli_view.add_view(commands)
    cli_view.add_play(commands)
    _add_doctor(commands)
    cli_plan.add(commands)
    cli_report.add(commands)
    _add_env(commands)
    _add_model(commands)
    cli_search.add(commands, _Parser)
    cli_web.add(commands, _Parser)
    return parser


def _add_env(commands: Any) -> None:
    env = commands.add_parser("env", help="list, check and play environments", allow_abbrev=False)
    actions = env.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=_Parser
    )
    listing = actions.add_parser("list", help="all environments, plugins included")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(run=cli_env.list_all, takes_settings=False)
    check = actions.add_parser(
        "check", help="try every promise of the environments' contract", allow_abbrev=False
    )
    check.add_argument("name")
    check.add_argument("--tasks", type=_positive, default=20, help="how many tasks to try it on")
    check.add_argument("--json", action="store_true")
    check.set_defaults(run=cli_env.check, takes_settings=True)
    play = actions.add_parser("play", help="be the agent", allow_abbrev=False)
    play.add_argument("name")
    play.add_argument("--split", default="train")
    play.add_argument("--task", metavar="ID", help="default: a random one")
    play.set_defaults(run=cli_env.play, takes_settings=True)
    _add_serve(actions)


def _add_serve(actions: Any) -> None:
    serve = actions.add_parser(
        "serve",
        help="let trainers on this or other machines play environments here",
        allow_abbrev=False,
    )
    serve.add_argument(
        "names", nargs="+", metavar="NAME", help="options can follow, e.g. --babyai.max_turns 30"
    )
    serve.add_argument("--host", default="127.0.0.1", help="any other than loopback needs a token")
    serve.add_argument("--port", type=int, default=8100, help="0 takes a free one")
    serve.add_argument(
        "--token-env",
        metavar="VAR",
        help="the variable with the tokens (default: PALESTRA_ENV_TOKEN)",
    )
    serve.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name that this server is called by",
    )
    serve.add_argument(
        "--capacity", type=_positive, default=1024, metavar="N", help="sessions at the most"
    )
    serve.add_argument(
        "--lease",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="a session without a call for so long is closed",
    )
    serve.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="for each call of an environment",
    )
    serve.add_argument(
        "--drain",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="for sessions to end when the server is stopped",
    )
    serve.add_argument(
        "--processes", type=_positive, default=1, metavar="N", help="behind the one address"
    )
    serve.add_argument(
        "--isolation",
        choices=["inline", "process"],
        default="process",
        help="where environments run",
    )
    serve.add_argument(
        "--memory-mb",
        type=_positive,
        default=4096,
        metavar="MB",
        help="a worker process that holds more is replaced",
    )
    serve.add_argument(
        "--max-processes",
        type=_positive,
        default=128,
        metavar="N",
        help="a worker that has more, itself included, is killed",
    )
    cli_env.add_limits(serve)
    serve.add_argument(
        "--sandbox",
        choices=["none", "bwrap"],
        default="none",
        help="run worker processes under bubblewrap, without network",
    )
    serve.add_argument(
        "--sandbox-read",
        action="append",
        default=[],
        metavar="PATH",
        help="what a sandbox can read besides Python",
    )
    serve.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default="info")
    serve.set_defaults(run=cli_env.serve, takes_settings=True)


def _add_model(commands: Any) -> None:
    model = commands.add_parser(
        "model", help="take a trained model out of a run, or bring one in", allow_abbrev=False
    )
    verbs = model.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=_Parser
    )
    importing = verbs.add_parser("import", help="turn a GGUF file into a Hugging Face directory")
    importing.add_argument("file", type=Path, metavar="FILE")
    importing.add_argument("out", type=Path, metavar="DIR")
    importing.set_defaults(run=_model_import, takes_settings=False)
    export = verbs.add_parser(
        "export",
        help="write a run's newest weights as a Hugging Face directory, an adapter merged into "
        "them",
    )
    export.add_argument("run_folder", type=Path, metavar="RUN")
    export.add_argument("out", type=Path, metavar="DIR")
    export.add_argument(
        "--adapter", action="store_true", help="write the adapter alone, as peft's directory"
    )
    export.set_defaults(run=_model_export, takes_settings=False)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return value


def split_settings(
    parser: argparse.ArgumentParser, arguments: list[str]
) -> tuple[list[str], dict[str, Any]]:
    """The arguments that the command itself knows, and all other flags as settings.

    `--optim.lr 1e-6 --agent.example` -> {"optim.lr": 1e-6, "agent.example": True}; hyphens may
    stand for underscores.
    """
    known = {
        name: action
        for sub in _subparsers(parser, arguments)
        for name, action in sub._option_string_actions.items()
    }
    plain: list[str] = []
    settings: dict[str, Any] = {}
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, equals, value = argument.partition("=")
        if not argument.startswith("--") or name in known:
            plain.append(argument)
            if name in known and known[name].nargs is None and not equals and waiting:
                plain.append(waiting.pop(0))
            continue
        if not equals:
            value = waiting.pop(0) if waiting and not waiting[0].startswith("--") else "true"
        settings[name[2:].replace("-", "_")] = _value(value)
    return plain, settings


def _subparsers(
    parser: argparse.ArgumentParser, arguments: list[str]
) -> Iterator[argparse.ArgumentParser]:
    """The parsers that the words of the command line lead to."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word in arguments:
                if word in action.choices:
                    yield from _subparsers(action.choices[word], arguments)
                    return


def _value(text: str) -> Any:
    """A number, a list or a truth value as TOML writes it; anything else is text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


# train


def _train(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    if known.help:
        return _train_help(known, settings)
    if (known.recipe is None) == (known.resume is None):
        fail("train: expected a recipe, or --resume with a run folder (see: palestra train --help)")
    from palestra.config import config as configs
    from palestra.core.errors import ConfigError
    from palestra.launch import launch
    from palestra.launch.worker import WorkerSpec
    from palestra.runs.run import Run
    from palestra.training.checkpointing import check_changes
    from palestra.training.data_sources import check_data
    from palestra.training.setup import check_here, check_run, fetch_model

    if known.resume is not None:
        if known.out is not None:
            raise ConfigError(f"--out {known.out}: a resumed run stays in its folder")
        run = Run.open(known.resume, settings) if not known.dry_run else None
        config = run.config if run else configs.load(known.resume / "config.toml", settings)
    else:
        config = configs.load(known.recipe, settings, imports=not known.dry_run)
        run = None
    if known.dry_run:
        check_here(config)
        print(configs.dump(config), end="")
        return
    with ExitStack() as held:
        if run is not None:
            held.enter_context(run.locked())
            check_changes(run)
        envs = check_run(config)
        check_data(config)
        fetch_model(config)
        if run is None:
            folder = (
                known.out or Path("runs") / f"{known.recipe.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
            )
            run = Run.create(folder, config)
        launch(
            run,
            WorkerSpec(
                str(run.folder.resolve()), settings if known.resume else {}, as_json=known.json
            ),
            envs,
        )


def _train_help(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    import tyro

    from palestra.config import config as configs

    known.parser.print_help()
    print(
        "\nSettings" + (f" of {known.recipe}" if known.recipe else "") + ", each of them a flag:\n"
    )
    config = configs.load(known.recipe, settings) if known.recipe else configs.Config()
    tyro.cli(
        tyro.conf.AvoidSubcommands[configs.Config],
        default=config,
        args=["--help"],
        prog="palestra train RECIPE",
        use_underscores=True,
    )


def _explain(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.config import config as configs
    from palestra.runs.explain import explain

    print(explain(configs.load(known.recipe, settings)))


# eval


def _eval(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.training.display import ProgressDisplay
    from palestra.training.evaluation import evaluate_config

    if known.run_or_recipe is None and known.model is None and known.agent is None:
        fail(
            "eval: expected a run folder, a recipe, --model or --agent (see: palestra eval --help)"
        )
    if known.model is not None and known.agent is not None:
        fail("eval: --model and --agent exclude each other")
    if known.run_or_recipe is None and known.env is None and "env.name" not in settings:
        fail(
            "eval: --env is needed with --model and --agent, or a run or recipe whose "
            "environment it is"
        )
    if known.ids is not None:
        _refuse_beside_ids(known, settings)
    config, folder = _eval_config(known, settings)
    own_horizon = known.run_or_recipe is not None and known.env is None
    for attempt in range(EVAL_ATTEMPTS):
        try:
            with closing(ProgressDisplay()) as display:
                result = evaluate_config(
                    config,
                    agent=known.agent,
                    own_horizon=own_horizon,
                    ids=known.ids,
                    display=display,
                    keep=known.keep,
                )
            break
        except (OSError, ValueError):  # as libraries say it, too
            was = config
            config, folder = _eval_config(known, settings)
            if config.model == was.model or attempt + 1 == EVAL_ATTEMPTS:
                raise  # else a trainer has replaced the checkpoint by a newer one meanwhile
    what = known.agent or ("model" if known.model else f"step-{result['step']:06d}")
    names = "+".join(spec.label for spec in config.env_specs)
    out = known.out or folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{names}-{what}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(as_json(result) + "\n")
    if known.json:
        print_json(
            result | {"file": str(out)} | ({"episodes": str(known.keep)} if known.keep else {})
        )
    else:
        print_result(result)
        if known.ids is not None:
            print(
                f"{known.ids}: "
                f"{', '.join(f'{count} {split}' for split, count in result['splits'].items())}"
            )
        print(f"result file: {out}")
        if known.keep is not None:
            print(f"episodes: {known.keep} (palestra view {known.keep})")


def _refuse_beside_ids(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    """What would choose tasks, and would not count."""
    given = {"--split": known.split, "--limit": known.limit} | {
        f"--{name}": settings.get(name) for name in ("eval.split", "eval.tasks")
    }
    for flag, value in given.items():
        if value is not None:
            fail(
                f"eval: {flag} has no effect with --ids, which names the tasks; leave one "
                "of them out"
            )


def _eval_config(known: argparse.Namespace, settings: dict[str, Any]) -> tuple[Config, Path]:
    """The configuration to evaluate with, and the folder that its result belongs into."""
    from palestra.config import config as configs
    from palestra.core.errors import ConfigError

    flags = {
        "env.name": known.env,
        "eval.split": known.split,
        "eval.k": known.k,
        "eval.tasks": known.limit,
        "eval.horizon": known.horizon,
        "eval.temperature": known.temperature,
        "seed": known.seed,
    }
    settings = {name: value for name, value in flags.items() if value is not None} | settings
    if "env.name" in settings:
        settings |= {"mixture": []}
    if known.model is not None:
        settings |= {"model": known.model, "lora": None}
    elsewhere = Path("runs") / "eval"
    if known.run_or_recipe is None:
        return configs.build({}, settings, imports=True), elsewhere
    if known.run_or_recipe.suffix == ".toml":
        return configs.load(known.run_or_recipe, settings, imports=True), elsewhere
    recipe = known.run_or_recipe / "config.toml"
    if not recipe.is_file():
        raise ConfigError(f"{known.run_or_recipe}: there is no run in this folder (no config.toml)")
    if (
        known.model is not None or known.agent is not None
    ):  # nothing that the run has learned: it has no place among its evaluations
        return configs.load(recipe, settings, imports=True), elsewhere
    settings |= {"model": str(_checkpoint_of(known.run_or_recipe)), "lora": None}
    return configs.load(recipe, settings, imports=True), known.run_or_recipe / "eval"


def _checkpoint_of(run: Path) -> Path:
    """The one that the run would be resumed from."""
    from palestra.core.errors import ConfigError
    from palestra.training.checkpointing import latest_usable

    found = latest_usable(
        run / "checkpoints", on_damage=lambda damage: print(f"palestra: {damage}", file=sys.stderr)
    )
    if found is None:
        raise ConfigError(f"{run}: the run has no checkpoint yet")
    return found[0]


# replay


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay",
        help="play a stored episode again, or on from one of its turns",
        allow_abbrev=False,
    )
    replay.add_argument("run_folder", type=Path, metavar="RUN")
    replay.add_argument("--episode", required=True, metavar="ID")
    replay.add_argument(
        "--file", metavar="NAME", help="the file of trajectories, where the id stands in several"
    )
    replay.add_argument("--json", action="store_true")
    on = replay.add_argument_group("playing on")
    on.add_argument(
        "--from",
        type=_positive,
        dest="turn",
        metavar="K",
        help="a model plays on from this turn (default: only check)",
    )
    on.add_argument(
        "--checkpoint", type=int, metavar="STEP", help="of this run (default: its newest)"
    )
    on.add_argument("--model", type=Path, metavar="DIR", help="a Hugging Face directory instead")
    on.add_argument(
        "--horizon", type=_positive, metavar="N", help="turns in all (default: the episode's)"
    )
    on.add_argument(
        "--temperature", type=float, help="default: the one that the episode was played with"
    )
    on.add_argument("--seed", type=int, help="of the sampling noise (default: the episode's)")
    on.add_argument(
        "--samples",
        type=_positive,
        metavar="N",
        help="continuations, each with a seed of its own (default: 1)",
    )
    replay.set_defaults(run=_replay, takes_settings=False)


def _replay(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    names = ("turn", "checkpoint", "model", "horizon", "temperature", "seed", "samples")
    chosen = {name: value for name in names if (value := vars(known)[name]) is not None}
    if chosen and known.turn is None:
        fail(f"--{next(iter(chosen))}: means something only together with --from")
    from palestra.tools.replay import PlayOn
    from palestra.tools.transcript import report

    choice = PlayOn(**chosen) if chosen else None
    text, is_same = report(
        known.run_folder, known.episode, file=known.file, choice=choice, as_json=known.json
    )
    print(text)
    if not is_same:
        raise SystemExit(1)


# doctor


def _add_doctor(commands: Any) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="prove that a run is right and fits, before hours are spent on it",
        allow_abbrev=False,
    )
    doctor.add_argument(
        "recipe",
        nargs="?",
        type=Path,
        help="a TOML file (default: recipes/quickstart.toml); settings can follow",
    )
    doctor.add_argument(
        "--fit",
        action="store_true",
        help="search the largest optim.microbatch_tokens and engine.slots",
    )
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(run=_doctor, takes_settings=True)


def _doctor(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    import logging

    from palestra.config import config as configs
    from palestra.tools.doctor.checks import examine
    from palestra.training.data_sources import check_data
    from palestra.training.setup import check_run

    logging.getLogger("palestra").addHandler(
        logging.NullHandler()
    )  # what matters is in the findings
    quickstart = Path("recipes/quickstart.toml")
    recipe = known.recipe or (quickstart if quickstart.is_file() else None)
    config = (
        configs.load(recipe, settings, imports=True)
        if recipe
        else configs.build({}, settings, imports=True)
    )
    envs = check_run(config)
    check_data(config)
    findings = []
    for finding in examine(config, envs, folder=Path("runs"), fit=known.fit):
        findings.append(finding)
        if not known.json:
            print(
                f"{'ok' if finding.ok else 'FAILED':<8}{finding.name:<40}{finding.detail}",
                flush=True,
            )
    if known.json:
        print_json(findings)
    if not all(finding.ok for finding in findings):
        raise SystemExit(1)


# model


def _model_import(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.models.gguf_import import import_gguf

    print(f"{known.out}: {import_gguf(known.file, known.out):,} parameters")


def _model_export(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.tools.export import export_run

    export_run(known.run_folder, known.out, adapter=known.adapter)
    print(known.out)


if __name__ == "__main__":
    from palestra.core import early_interrupt

    early_interrupt.install()
    with early_interrupt.running():
        main()
