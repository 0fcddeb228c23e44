"""An algorithm of your own: here, twenty lines that compare each episode with its group by wins.

python examples/03_own_algorithm.py [--steps 30]
"""

import argparse

import torch

import palestra
from treasure import SETTINGS, Treasure


class WinRate(palestra.CriticFree):
    """The advantage is the share of its group that an episode beats, minus the share that beats it.

    The size of rewards does not matter, only their order. The clipped loss, the KL divergence and
    their settings are inherited.
    """

    name: str = "win_rate"

    def turn_credit(self, batch):
        same_group = batch.group_N[:, None] == batch.group_N
        wins = torch.sign(batch.reward_N[:, None] - batch.reward_N) * same_group
        others_N = (same_group.sum(1) - 1).clamp(min=1)
        advantage_N = wins.sum(1) / others_N
        return advantage_N[batch.trajectory_U]  # the same for all turns of an episode

    @property
    def credit_formulas(self):
        return ["A_i = mean_others(sign(R_i - R_j))"]


def main(steps):
    run = palestra.train(Treasure, steps=steps, algo=WinRate(clip_high=0.28), **SETTINGS)
    print(run.explain())
    for result in run.evaluations():
        print(f"{result.phase:10}  success {result.success}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30, help="training steps")
    main(parser.parse_args().steps)
