"""A run whose environment is on a server plays the same episodes as one that has it at hand."""

from palestra.envs.serving.remote import remote_kind
from palestra.runs.trajectories import read_trajectories
from tests.support.served import running
from tests.support.training import trained

SMALL = {"steps": 3, "rollout.tasks": 3, "rollout.group": 4, "horizon.kind": "fixed",
"horizon.turns": 4, "eval.tasks": 6}  # fmt: skip


def told(run):
    """What was said and drawn in all episodes of a run, by file and id."""
    found = {}
    for path in sorted((run.folder / "trajectories").iterdir()):
        for t in read_trajectories(path):
            turns = [
                (turn.observation, turn.reply, turn.action, turn.reward, turn.info)
                for turn in t.turns
            ]
            found[path.name, t.id] = (
                t.task,
                t.seed,
                turns,
                [segment.ids for segment in t.segments],
                t.stop,
                t.success,
            )
    return found


def weights(run):
    """What was learned, bit for bit."""
    return {
        path.name: path.read_bytes()
        for path in sorted((run.folder / "checkpoints").rglob("*.safetensors"))
    }


def test_a_run_is_the_same_wherever_its_environments_are(tmp_path):
    warm = {"episodes": 60, "noise": 0.5, "updates": 60, "check_every": 20, "check_tasks": 10}
    small = SMALL | {"warm_start": warm}
    inline = trained(
        tmp_path / "inline", **small, **{"env.name": "tests.support.environments:Unsteady"}
    )
    apart = {"env.isolation": "process", "env.per_worker": 3}
    workers = trained(
        tmp_path / "workers",
        **small,
        **apart,
        **{"env.name": "tests.support.environments:Unsteady"},
    )
    with running("tests.support.environments:Unsteady", lease_s=1.0) as server:
        remote = trained(tmp_path / "remote", **small, **{"env.name": server.url("unsteady")})
        assert len(server.server.sessions) == 0
        assert server.server.sessions.expired_total == 0
    remote_kind.cache_clear()
    assert any(reward > 0 for _, _, turns, *_ in told(inline).values() for *_, reward, _ in turns)
    assert told(remote) == told(workers) == told(inline)
    assert weights(remote) == weights(workers) == weights(inline) != {}


def test_several_servers_play_one_run(tmp_path):
    with (
        running("tests.support.environments:Count") as one,
        running("tests.support.environments:Count") as other,
    ):
        run = trained(
            tmp_path / "run",
            **SMALL,
            **{
                "env.name": one.url("count"),
                "env.urls": [other.url("count")],
                "rollout.partial": 1,
                "engine.deterministic": False,
            },
        )
        played = [server.answered("open") for server in (one, other)]
    remote_kind.cache_clear()
    assert all(row["faults"] == 0 for row in run.metrics() if "reward" in row)
    assert min(played) >= 3
