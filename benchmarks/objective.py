"""Computes an objective from the text that `palestra explain` prints, and from nothing else of
Palestra.

The text is the program: names and numbers come from it, so a formula that says something else than
what is minimized gives another number. `tests/golden/test_explain.py` holds it against the losses,
and `benchmarks/oracle.py` against whole training steps.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

FINER = {"": 0, "i": 1, "u": 2, "c": 3}
"""A name of a coarser index has one number for all that belong to it: R_i is the same for each
action token c of trajectory i.
"""

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}


@dataclass(frozen=True)
class Value:
    numbers: Tensor
    index: str
    """What there is one number for: "c" action tokens, "u" turns, "i" trajectories, "p" pairs, ""
    for the whole batch.
    """


@dataclass(frozen=True)
class Facts:
    """What a step learns from: who belongs to whom, and the numbers that are given."""

    turn_c: Tensor
    """The turn of each action token."""
    trajectory_u: Tensor
    group_i: Tensor
    observation_u: Tensor
    """Turns that began with the same observation share a number."""
    given: dict[str, Tensor] = field(default_factory=dict)
    """By the names of the formulas, such as `logp_c`, `r_u` or `baseline_i`."""

    @property
    def trajectory_c(self) -> Tensor:
        return self.trajectory_u[self.turn_c]


class Objective:
    """What is maximized, as `explain` says it."""

    def __init__(self, lines: Sequence[str]) -> None:
        formulas = [line.split("#")[0].strip() for line in lines]
        (self.maximized,) = (
            f.removeprefix("maximize").strip() for f in formulas if f.startswith("maximize")
        )
        self.formulas: dict[str, str] = {}
        for formula in formulas:
            if " = " in formula:
                name, expression = formula.split(" = ", 1)
                self.formulas[name.strip()] = expression

    def __call__(self, facts: Facts) -> Tensor:
        """Its value, through which gradients flow to what was given."""
        return _Evaluation(self.formulas, facts).of(self.maximized).numbers

    def named(self, name: str, facts: Facts) -> Tensor:
        """One of its formulas, such as `A_c`."""
        return _Evaluation(self.formulas, facts).name(name).numbers


class _Evaluation:
    def __init__(self, formulas: dict[str, str], facts: Facts) -> None:
        self.formulas, self.facts = formulas, facts
        self.known: dict[str, Value] = {}

    def of(self, expression: str) -> Value:
        return self.node(ast.parse(expression, mode="eval").body)

    def name(self, name: str) -> Value:
        if name not in self.known:
            self.known[name] = self._looked_up(name)
        return self.known[name]

    def _looked_up(self, name: str) -> Value:
        facts = self.facts
        sizes = {"tokens": len(facts.turn_c), "trajectories": len(facts.group_i)}
        if name in sizes:
            return Value(torch.tensor(float(sizes[name]), dtype=torch.float64), "")
        if name == "tokens_i":
            return Value(facts.trajectory_c.bincount(minlength=len(facts.group_i)).double(), "i")
        index = name.rpartition("_")[2] if "_" in name and name[-2] == "_" else ""
        if name in self.formulas:
            found = self.of(self.formulas[name])
            return self.lifted(found, index) if found.index != index else found
        return Value(facts.given[name].double(), index)

    def node(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Constant):
            return Value(torch.tensor(float(node.value), dtype=torch.float64), "")
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.node(node.operand)
            return Value(-value.numbers, value.index)
        if isinstance(node, ast.BinOp):
            left, right = self.together(self.node(node.left), self.node(node.right))
            return Value(OPERATORS[type(node.op)](left.numbers, right.numbers), left.index)
        if isinstance(node, ast.Compare):
            left, right = self.together(self.node(node.left), self.node(node.comparators[0]))
            return Value(OPERATORS[type(node.ops[0])](left.numbers, right.numbers), left.index)
        assert isinstance(node, ast.Call), ast.dump(node)
        assert isinstance(node.func, ast.Name)
        return FUNCTIONS[node.func.id](self, *[self.node(argument) for argument in node.args])

    def together(self, *values: Value) -> list[Value]:
        """All of them at the finest index of any."""
        finest = max((value.index for value in values), key=lambda index: FINER.get(index, 1))
        return [self.lifted(value, finest) for value in values]

    def lifted(self, value: Value, index: str) -> Value:
        if value.index == index:
            return value
        numbers = value.numbers
        if value.index == "":
            sizes = {
                "c": len(self.facts.turn_c),
                "u": len(self.facts.trajectory_u),
                "i": len(self.facts.group_i),
            }
            return Value(numbers.expand(sizes[index]) if index in sizes else numbers, index)
        belongs = {
            "iu": self.facts.trajectory_u,
            "ic": self.facts.trajectory_c,
            "uc": self.facts.turn_c,
        }
        return Value(numbers[belongs[value.index + index]], index)


def _elementwise(apply: Callable[..., Tensor]) -> Callable[..., Value]:
    def function(evaluation: _Evaluation, *values: Value) -> Value:
        aligned = evaluation.together(*values)
        return Value(apply(*(value.numbers for value in aligned)), aligned[0].index)

    return function


def _clip(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, low), high)


def _summed(numbers: Tensor, owner: Tensor, owners: int) -> Tensor:
    return torch.stack([numbers[owner == one].sum() for one in range(owners)])


def _sum_tokens(evaluation: _Evaluation, x: Value) -> Value:
    facts = evaluation.facts
    numbers = evaluation.lifted(x, "c").numbers
    return Value(_summed(numbers, facts.trajectory_c, len(facts.group_i)), "i")


def _mean_tokens(evaluation: _Evaluation, x: Value) -> Value:
    return Value(_sum_tokens(evaluation, x).numbers / evaluation.name("tokens_i").numbers, "i")


def _sum_turns(evaluation: _Evaluation, x: Value) -> Value:
    facts = evaluation.facts
    return Value(_summed(x.numbers, facts.trajectory_u, len(facts.group_i)), "i")


def _sum_of_turn(evaluation: _Evaluation, x: Value) -> Value:
    return Value(
        _summed(x.numbers, evaluation.facts.turn_c, len(evaluation.facts.trajectory_u)), "u"
    )


def _is_first(owner: Tensor) -> Tensor:
    return torch.tensor(
        [place == 0 or owner[place] != owner[place - 1] for place in range(len(owner))]
    )


def _at_first_token(evaluation: _Evaluation, x: Value) -> Value:
    return Value(x.numbers[_is_first(evaluation.facts.turn_c)], "u")


def _at_last_token(evaluation: _Evaluation, x: Value) -> Value:
    is_last = _is_first(evaluation.facts.turn_c.flip(0)).flip(0)
    return Value(torch.where(is_last, evaluation.lifted(x, "c").numbers, 0.0), "c")


def _to_go(numbers: Tensor, owner: Tensor, discount: float) -> Tensor:
    """Backwards, one at a time."""
    later: list[Tensor] = []
    for place in reversed(range(len(numbers))):
        goes_on = bool(later) and owner[place] == owner[place + 1]
        later.append(numbers[place] + (discount * later[-1] if goes_on else 0.0))
    return torch.stack(later[::-1])


def _to_go_tokens(evaluation: _Evaluation, x: Value) -> Value:
    return Value(_to_go(x.numbers, evaluation.facts.trajectory_c, 1.0), "c")


def _to_go_turns(evaluation: _Evaluation, x: Value, discount: Value) -> Value:
    return Value(_to_go(x.numbers, evaluation.facts.trajectory_u, float(discount.numbers)), "u")


def _gae(
    evaluation: _Evaluation, reward: Value, value: Value, end: Value, gamma: Value, lam: Value
) -> Value:
    owner = evaluation.facts.trajectory_u if reward.index == "u" else evaluation.facts.trajectory_c
    ends = evaluation.lifted(end, "i").numbers
    surprises = []
    for place in range(len(owner)):
        is_last = place + 1 == len(owner) or owner[place] != owner[place + 1]
        after = ends[owner[place]] if is_last else value.numbers[place + 1]
        surprises.append(
            reward.numbers[place] + float(gamma.numbers) * after - value.numbers[place]
        )
    return Value(
        _to_go(torch.stack(surprises), owner, float(gamma.numbers * lam.numbers)), reward.index
    )


def _over(
    members_of: Callable[[Facts], Tensor], apply: Callable[[Tensor, int], Tensor]
) -> Callable[..., Value]:
    """A function of each one's number and those of its fellows."""

    def function(evaluation: _Evaluation, x: Value) -> Value:
        members = members_of(evaluation.facts)
        fellows = [(members == own).nonzero().flatten() for own in members]
        places = [fellow.tolist().index(place) for place, fellow in enumerate(fellows)]
        numbers = [
            apply(x.numbers[fellow], place) for fellow, place in zip(fellows, places, strict=True)
        ]
        return Value(torch.stack(numbers), x.index)

    return function


def _std(numbers: Tensor, _: int) -> Tensor:
    return numbers.std() if len(numbers) > 1 else numbers.sum() * 0


def _mean_without(numbers: Tensor, place: int) -> Tensor:
    others = torch.cat([numbers[:place], numbers[place + 1 :]])
    return others.mean() if len(others) else numbers[place] * 0


def _mean_same_turn(evaluation: _Evaluation, x: Value) -> Value:
    facts = evaluation.facts
    starts = [(facts.trajectory_u == i).nonzero().flatten() for i in range(len(facts.group_i))]
    found = []
    for i, own in enumerate(starts):
        fellows = [
            starts[j]
            for j in range(len(starts))
            if j != i and facts.group_i[j] == facts.group_i[i] and len(starts[j])
        ]
        for number in range(len(own)):
            same = [x.numbers[other[number]] for other in fellows if len(other) > number]
            same = same or [x.numbers[other[0]] for other in fellows] or [x.numbers[own[number]]]
            found.append(torch.stack(same).mean())
    return Value(torch.stack(found), "u")


def _whiten_step(evaluation: _Evaluation, x: Value) -> Value:
    numbers = evaluation.lifted(x, "c").numbers
    return Value((numbers - numbers.mean()) / (numbers.std() + 1e-8), "c")


def _side(which: int) -> Callable[..., Value]:
    """Of each pair, which is a group of two: the chosen trajectory, or the rejected one."""

    def function(evaluation: _Evaluation, x: Value) -> Value:
        pairs = evaluation.facts.group_i
        return Value(torch.stack([x.numbers[pairs == pair][which] for pair in pairs.unique()]), "p")

    return function


def _total(evaluation: _Evaluation, x: Value) -> Value:
    return Value(x.numbers.sum(), "")


def _mean(evaluation: _Evaluation, x: Value) -> Value:
    return Value(x.numbers.mean(), "")


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": _elementwise(torch.exp),
    "log_sigmoid": _elementwise(torch.nn.functional.logsigmoid),
    "stop": _elementwise(Tensor.detach),
    "min": _elementwise(torch.minimum),
    "max": _elementwise(torch.maximum),
    "clip": _elementwise(_clip),
    "where": _elementwise(torch.where),
    "sum_c": _total,
    "mean_c": _mean,
    "mean_p": _mean,
    "mean_step": _mean,
    "whiten_step": _whiten_step,
    "sum_tokens": _sum_tokens,
    "mean_tokens": _mean_tokens,
    "sum_turns": _sum_turns,
    "sum_of_turn": _sum_of_turn,
    "at_first_token": _at_first_token,
    "at_last_token": _at_last_token,
    "to_go_tokens": _to_go_tokens,
    "to_go_turns": _to_go_turns,
    "gae": _gae,
    "mean_group": _over(lambda facts: facts.group_i, lambda numbers, _: numbers.mean()),
    "std_group": _over(lambda facts: facts.group_i, _std),
    "mean_others": _over(lambda facts: facts.group_i, _mean_without),
    "mean_same_turn": _mean_same_turn,
    "mean_same_observation": _over(
        lambda facts: facts.observation_u, lambda numbers, _: numbers.mean()
    ),
    "std_same_observation": _over(lambda facts: facts.observation_u, _std),
    "chosen": _side(0),
    "rejected": _side(1),
}
