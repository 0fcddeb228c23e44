"""Evaluate baselines and a trained model on the same held-out tasks, with confidence intervals.

python examples/06_evaluate.py [--steps 30]
"""

import argparse

import palestra
from treasure import SETTINGS, Treasure

TASKS, K = 50, 4


def main(steps):
    run = palestra.train(Treasure, steps=steps, **SETTINGS)

    # Each task is played k times: success is the mean over all, pass@k counts tasks that were
    # solved at least once.
    results = {
        "random actions": palestra.evaluate(agent="random", env=Treasure, tasks=TASKS, k=K),
        "the expert": palestra.evaluate(agent="expert", env=Treasure, tasks=TASKS, k=K),
        "the model": run.evaluate(tasks=TASKS, k=K),
        "the model, greedy": run.evaluate(tasks=TASKS, temperature=0),
        "the model, 4 turns": run.evaluate(tasks=TASKS, k=K, horizon=4),
    }
    print(f"{'':18}  {'success':24}  {'pass@k':>6}  turns")
    for name, result in results.items():
        score = result.all
        print(f"{name:18}  {result.success!s:24}  {score.pass_at_k:6.0%}  {score.turns:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30, help="training steps")
    main(parser.parse_args().steps)
