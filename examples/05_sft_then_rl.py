"""Supervised fine-tuning on demonstrations first, then RL from its checkpoint.

python examples/05_sft_then_rl.py [--steps 30]
"""

import argparse

import palestra
from treasure import SETTINGS, Treasure


def main(steps):
    # The environment's expert demonstrates, and takes a random action half of the time.
    # `data=("file.jsonl",)` takes your own demonstrations instead.
    sft = palestra.train(
        Treasure,
        model=SETTINGS["model"],
        steps=120,
        algo=palestra.SFT(episodes=300, noise=0.5, batch=8),
        optim={"lr": 2e-3},
    )

    # The checkpoint is a model like any other. Its actions are written as they were demonstrated.
    rl = palestra.train(
        Treasure,
        model=sft.checkpoint,
        steps=steps,
        algo=palestra.GRPO(clip_high=0.28),
        agent={"format": "plain", "reply_tokens": 8},
        rollout={"tasks": 8, "group": 8},
        optim={"lr": 1e-3},
    )
    print(f"random weights  success {sft.evaluations()[0].success}")
    print(f"after SFT       success {sft.result.success}")
    print(f"after RL        success {rl.result.success}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30, help="training steps of RL")
    main(parser.parse_args().steps)
