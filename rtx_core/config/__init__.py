"""From a TOML file to a checked pipeline."""

from rtx_core.config.load import Checked, ModelParts, check, load, load_parts, run_name
from rtx_core.config.pipeline import Pipeline
from rtx_core.config.render import render
from rtx_core.config.resolved import resolved_toml
from rtx_core.config.tree import Origin

__all__ = [
    "Checked",
    "ModelParts",
    "Origin",
    "Pipeline",
    "check",
    "load",
    "load_parts",
    "render",
    "resolved_toml",
    "run_name",
]
