"""Python without the packages of the extra `train`, as a core installation is.

A folder for PYTHONPATH: processes that a command starts are without them, too.
"""

import sys
from importlib.machinery import PathFinder

MISSING = {"torch", "transformers", "safetensors", "huggingface_hub", "numpy", "triton", "peft"}


class WithoutTrain(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in MISSING:
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutTrain
