"""Read a run's episodes and metrics into pandas data frames, and ask them questions.

python examples/07_episodes_as_data_frame.py [--run runs/treasure-...] [--steps 30]
"""

import argparse

import pandas

import palestra
from treasure import SETTINGS, Treasure


def episodes_frame(run):
    """One row per training episode."""
    rows = []
    for episode in run.episodes():
        rows.append(
            {
                "step": episode.step,
                "task": episode.task.id,
                "success": bool(episode.success),
                "turns": len(episode.turns),
                "invalid": sum(turn.invalid for turn in episode.turns),
                "tokens": episode.tokens,
                "stop": str(episode.stop),
            }
        )
    return pandas.DataFrame(rows)


def main(folder, steps):
    if folder is None:
        run = palestra.train(Treasure, steps=steps, **SETTINGS)
    else:
        run = palestra.load_run(folder)
    episodes = episodes_frame(run)
    part = pandas.cut(episodes["step"], 3, labels=["first third", "second", "last"])
    columns = ["success", "turns", "invalid", "tokens"]
    print(episodes.groupby(part, observed=True)[columns].mean().round(2), "\n")
    print(pandas.crosstab(part, episodes["stop"]), "\n")
    print("the tasks that were failed most often:")
    failed = episodes[~episodes["success"]]
    print(failed["task"].value_counts().head(3).to_string(), "\n")

    # The figures of each step: the rows of metrics.jsonl.
    metrics = run.metrics("loss").to_pandas()
    print(metrics[["reward", "loss", "grad_norm", "time/collect", "time/learn"]].tail(3).round(3))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", help="a run folder; default: train one")
    parser.add_argument("--steps", type=int, default=30, help="training steps")
    arguments = parser.parse_args()
    main(arguments.run, arguments.steps)
