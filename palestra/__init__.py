"""Palestra trains LLM agents for long-horizon, multi-turn decision making by reinforcement
learning.

Names are imported when they are first used: `import palestra` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from palestra.core.extras import naming_extras as _naming_extras
from palestra.core.version import __version__ as __version__

if TYPE_CHECKING:
    from palestra.agents.base import Action as Action
    from palestra.agents.base import Agent as Agent
    from palestra.agents.base import EpisodeContext as EpisodeContext
    from palestra.agents.chat import ChatAgent as ChatAgent
    from palestra.agents.scripted import ExpertAgent as ExpertAgent
    from palestra.agents.scripted import RandomAgent as RandomAgent
    from palestra.algos import advantages as advantages
    from palestra.algos import losses as losses
    from palestra.algos.base import Algorithm as Algorithm
    from palestra.algos.batch import Batch as Batch
    from palestra.algos.batch import pack as pack
    from palestra.algos.cispo import CISPO as CISPO
    from palestra.algos.dpo import DPO as DPO
    from palestra.algos.dr_grpo import DrGRPO as DrGRPO
    from palestra.algos.evol import AgentEvol as AgentEvol
    from palestra.algos.gigpo import GiGPO as GiGPO
    from palestra.algos.grpo import GRPO as GRPO
    from palestra.algos.gspo import GSPO as GSPO
    from palestra.algos.mt_grpo import MultiTurnGRPO as MultiTurnGRPO
    from palestra.algos.policy import CriticFree as CriticFree
    from palestra.algos.ppo import PPO as PPO
    from palestra.algos.reinforce_pp import ReinforcePP as ReinforcePP
    from palestra.algos.remax import ReMax as ReMax
    from palestra.algos.rft import RFT as RFT
    from palestra.algos.rloo import RLOO as RLOO
    from palestra.algos.sft import SFT as SFT
    from palestra.api.environments import check_environment as check_environment
    from palestra.api.environments import make as make
    from palestra.api.environments import register as register
    from palestra.api.evaluate import evaluate as evaluate
    from palestra.api.run import Rows as Rows
    from palestra.api.run import Run as Run
    from palestra.api.run import load_run as load_run
    from palestra.api.train import configure as configure
    from palestra.api.train import load_config as load_config
    from palestra.api.train import train as train
    from palestra.api.viewing import Viewer as Viewer
    from palestra.config.config import Config as Config
    from palestra.config.lora import LoraSettings as LoraSettings
    from palestra.config.model import PretrainedModel as PretrainedModel
    from palestra.config.model import TinyModel as TinyModel
    from palestra.config.run import WarmStart as WarmStart
    from palestra.core.errors import ConfigError as ConfigError
    from palestra.core.errors import UserError as UserError
    from palestra.core.evaluation import Estimate as Estimate
    from palestra.core.evaluation import EvalResult as EvalResult
    from palestra.core.evaluation import Score as Score
    from palestra.core.types import Example as Example
    from palestra.core.types import Group as Group
    from palestra.core.types import Message as Message
    from palestra.core.types import Sampling as Sampling
    from palestra.core.types import Segment as Segment
    from palestra.core.types import Step as Step
    from palestra.core.types import Stop as Stop
    from palestra.core.types import Task as Task
    from palestra.core.types import Trajectory as Trajectory
    from palestra.core.types import Turn as Turn
    from palestra.engines.base import Engine as Engine
    from palestra.engines.torch.engine import TorchEngine as TorchEngine
    from palestra.envs.base import Environment as Environment
    from palestra.envs.gym import GymEnv as GymEnv
    from palestra.horizons.adaptive import Adaptive as Adaptive
    from palestra.horizons.base import Horizon as Horizon
    from palestra.horizons.base import Progress as Progress
    from palestra.horizons.fixed import Fixed as Fixed
    from palestra.horizons.linear import Linear as Linear
    from palestra.horizons.scaling_inter import Stages as Stages
    from palestra.learner.learner import Learner as Learner
    from palestra.learner.logprobs import logprobs as logprobs
    from palestra.rollout.episode import RolloutContext as RolloutContext
    from palestra.rollout.groups import GroupRequest as GroupRequest
    from palestra.rollout.groups import collect_groups as collect_groups
    from palestra.training.setup import Components as Components
    from palestra.training.setup import setup as setup

_MODULES = {
    "palestra.agents.base": ("Action", "Agent", "EpisodeContext"),
    "palestra.agents.chat": ("ChatAgent",),
    "palestra.agents.scripted": ("ExpertAgent", "RandomAgent"),
    "palestra.algos": ("advantages", "losses"),
    "palestra.algos.base": ("Algorithm",),
    "palestra.algos.batch": ("Batch", "pack"),
    "palestra.algos.cispo": ("CISPO",),
    "palestra.algos.dpo": ("DPO",),
    "palestra.algos.dr_grpo": ("DrGRPO",),
    "palestra.algos.evol": ("AgentEvol",),
    "palestra.algos.gigpo": ("GiGPO",),
    "palestra.algos.grpo": ("GRPO",),
    "palestra.algos.gspo": ("GSPO",),
    "palestra.algos.mt_grpo": ("MultiTurnGRPO",),
    "palestra.algos.policy": ("CriticFree",),
    "palestra.algos.ppo": ("PPO",),
    "palestra.algos.reinforce_pp": ("ReinforcePP",),
    "palestra.algos.remax": ("ReMax",),
    "palestra.algos.rft": ("RFT",),
    "palestra.algos.rloo": ("RLOO",),
    "palestra.algos.sft": ("SFT",),
    "palestra.api.environments": ("check_environment", "make", "register"),
    "palestra.api.evaluate": ("evaluate",),
    "palestra.api.run": ("Rows", "Run", "load_run"),
    "palestra.api.train": ("configure", "load_config", "train"),
    "palestra.api.viewing": ("Viewer",),
    "palestra.config.config": ("Config",),
    "palestra.config.lora": ("LoraSettings",),
    "palestra.config.model": ("PretrainedModel", "TinyModel"),
    "palestra.config.run": ("WarmStart",),
    "palestra.core.errors": ("ConfigError", "UserError"),
    "palestra.core.evaluation": ("Estimate", "EvalResult", "Score"),
    "palestra.core.types": (
        "Example",
        "Group",
        "Message",
        "Sampling",
        "Segment",
        "Step",
        "Stop",
        "Task",
        "Trajectory",
        "Turn",
    ),
    "palestra.engines.base": ("Engine",),
    "palestra.engines.torch.engine": ("TorchEngine",),
    "palestra.envs.base": ("Environment",),
    "palestra.envs.gym": ("GymEnv",),
    "palestra.horizons.adaptive": ("Adaptive",),
    "palestra.horizons.base": ("Horizon", "Progress"),
    "palestra.horizons.fixed": ("Fixed",),
    "palestra.horizons.linear": ("Linear",),
    "palestra.horizons.scaling_inter": ("Stages",),
    "palestra.learner.learner": ("Learner",),
    "palestra.learner.logprobs": ("logprobs",),
    "palestra.rollout.episode": ("RolloutContext",),
    "palestra.rollout.groups": ("GroupRequest", "collect_groups"),
    "palestra.training.setup": ("Components", "setup"),
}
_SUBMODULES = ("advantages", "losses")
"""Names that stand for a whole module."""
_WHERE = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'palestra' has no attribute {name!r}")
    module = _WHERE[name]
    with _naming_extras(f"palestra.{name}"):
        if name in _SUBMODULES:
            value = import_module(f"{module}.{name}")
        else:
            value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
