"""The whole method in one loop: imitate an expert, then reinforcement learning with more turns in
stages (ScalingInter-RL).

A tiny model begins with random weights and learns to find a treasure. `palestra.train` does the
same with checkpoints, evaluations, a run folder and everything else that a long run needs.

    python examples/minimal_loop.py        # half a minute on two CPU cores
"""

import random
from contextlib import closing
from dataclasses import replace
from functools import partial

import torch

import palestra
from palestra import GroupRequest, Progress, advantages, collect_groups, logprobs, losses, pack

ROOMS = 8


class Treasure(palestra.Environment):
    """Walk through a row of rooms, listen, and dig in the right one."""

    name = "treasure"
    max_turns = 8
    instructions = "Find the treasure. Actions: left, right, dig."

    def tasks(self, split):
        ids = {"train": range(1000), "test": range(1000, 1100)}[split]
        return [palestra.Task(self.name, split, str(number)) for number in ids]

    def reset(self, task):
        self.room, self.treasure = random.Random(int(task.id)).sample(range(ROOMS), 2)
        return self.look()

    def look(self):
        if self.room == self.treasure:
            return "the floor sounds hollow here"
        return f"a sound from the {self.expert()}"

    def step(self, action):
        if action == "dig":
            found = self.room == self.treasure
            return palestra.Step("the end", float(found), terminated=True, success=found)
        if action not in ("left", "right"):
            return palestra.Step("Actions: left, right, dig.", invalid=True)
        move = 1 if action == "right" else -1
        self.room = min(max(self.room + move, 0), ROOMS - 1)
        return palestra.Step(self.look())

    def actions(self):
        return ["left", "right", "dig"]

    def expert(self):
        if self.room == self.treasure:
            return "dig"
        return "left" if self.treasure < self.room else "right"

    def vocabulary(self):
        texts = f"{self.instructions} left right dig a sound from the floor sounds hollow here end"
        return sorted(set(texts.split()))


async def imitate(parts, tasks, *, epochs):
    """Learn what actions look like from an expert that takes any action half of the time."""
    clumsy = replace(parts.context, agent=partial(palestra.ExpertAgent, noise=0.5))
    requests = [GroupRequest(task, group=1, horizon=8) for task in tasks]
    rollouts = await collect_groups(clumsy, requests, seed=1, step=0)
    batch = pack([[t for t in group.valid if t.success] for group in rollouts.groups])
    model = parts.learner.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        for part in batch.split(8, generator):
            optimizer.zero_grad()
            (-logprobs(model, part).mean()).backward()
            optimizer.step()
    await parts.engine.sync_weights(version=0)


async def reinforce(parts, tasks, schedule, *, steps, seed):
    """Play, judge each episode by its group, learn, and play again with the new weights."""
    model = parts.learner.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rng, success = random.Random(seed), []
    for step in range(steps):
        # Rollouts: 8 tasks, 8 episodes of each, of as many turns as the schedule allows now.
        horizon = schedule(Progress(step, tuple(success)))
        requests = [GroupRequest(task, group=8, horizon=horizon) for task in rng.sample(tasks, 8)]
        rollouts = await collect_groups(parts.context, requests, seed=seed, step=step + 1)
        batch = pack([group.valid for group in rollouts.groups])

        # Advantages: a trajectory's reward against its group, the same for all its tokens.
        advantage_N = advantages.group_relative(batch.reward_N, batch.group_N)
        weight_C = losses.token_weights(batch.trajectory_C, len(batch), normalize="token")
        batch = batch.with_(advantage_C=advantage_N[batch.trajectory_C], weight_C=weight_C)

        # One gradient step, added up over micro-batches. Only sampled tokens are in the loss.
        optimizer.zero_grad()
        for micro in batch.microbatches(max_tokens=4096):
            logp_C = logprobs(model, micro)
            loss_C, _ = losses.clipped_policy_loss(
                logp_C - micro.old_logp_C, micro.advantage_C, clip_low=0.2, clip_high=0.28
            )
            (loss_C * micro.weight_C).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

        # The engine plays the next step with the new weights.
        await parts.engine.sync_weights(version=step + 1)
        success.append(success_rate(rollouts))
        print(f"step {step + 1:2d}  horizon {horizon}  success {success[-1]:.0%}")


async def measure(parts, tasks, horizon):
    """The share of held-out tasks that are solved."""
    requests = [GroupRequest(task, group=1, horizon=horizon) for task in tasks]
    rollouts = await collect_groups(parts.context, requests, seed=2, step=0)
    return success_rate(rollouts)


def success_rate(rollouts):
    solved = [t.success is True for group in rollouts.groups for t in group.valid]
    return sum(solved) / len(solved)


async def run(parts, *, steps, seed):
    train, test = parts.tasks("treasure", "train"), parts.tasks("treasure", "test")
    schedule = palestra.Stages(turns=[5, 8], every=max(steps // 2, 1))
    await imitate(parts, train[:200], epochs=8)
    before = await measure(parts, test, schedule.full)
    await reinforce(parts, train, schedule, steps=steps, seed=seed)
    after = await measure(parts, test, schedule.full)
    print(f"held-out success: {before:.0%} after imitation, {after:.0%} after RL")
    return before, after


def main(steps=40, seed=0):
    config = palestra.configure(
        Treasure,
        model=palestra.TinyModel(width=64, layers=2, heads=2, tokenizer="words"),
        agent={"format": "plain", "context_tokens": 128, "reply_tokens": 6},
        device="cpu",
        threads=2,
        seed=seed,
    )
    with closing(palestra.setup(config)) as parts:
        return parts.loop.run(run(parts, steps=steps, seed=seed))


if __name__ == "__main__":
    main()
