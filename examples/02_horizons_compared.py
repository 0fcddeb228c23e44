"""The same training with three horizons: few turns, many turns, and ScalingInter-RL's stages.

python examples/02_horizons_compared.py [--steps 30]
"""

import argparse

import palestra
from treasure import SETTINGS, Treasure

FEW, MANY = 4, 8


def main(steps):
    horizons = {
        "few turns": palestra.Fixed(turns=FEW),
        "many turns": palestra.Fixed(turns=MANY),
        "stages": palestra.Stages(turns=[FEW, MANY], every=max(steps // 2, 1)),
    }
    print(f"{'horizon':10}  {'held-out success':22}  {'turns':>5}  {'training tokens':>15}")
    for name, horizon in horizons.items():
        run = palestra.train(
            Treasure,
            steps=steps,
            horizon=horizon,
            # All are evaluated alike, with many turns.
            eval={"tasks": 100, "horizon": MANY},
            display="none",
            **SETTINGS,
        )
        tokens = sum(int(row["tokens/all"]) for row in run.metrics("tokens/all"))
        result = run.result
        print(f"{name:10}  {result.success!s:22}  {result.all.turns:5.1f}  {tokens:15,}")
    # One seed of a small task: where intervals overlap, the difference may be chance.


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30, help="training steps")
    main(parser.parse_args().steps)
