"""rtx trains transformers from one TOML file; this package is the core: it checks the file, finds the parts, runs.

The names here are what a plugin needs. None of them imports torch.
"""

import importlib.util as _util
import sys as _sys

if _util.find_spec("attrs") is None and _sys.orig_argv[1:3] == ["-m", "rtx_core"]:
    _sys.stderr.write("rtx isn't installed in this Python; in the folder of the clone run: pip install -e .\n")
    _sys.exit(2)

from rtx_core.api import Pipeline
from rtx_core.components import (
    Architecture,
    Callback,
    Command,
    Component,
    Data,
    GroupRule,
    Head,
    InputPath,
    Layout,
    LoadRules,
    Loss,
    Metric,
    MetricPart,
    Optimizer,
    Outputs,
    ParameterGroup,
    Scheduler,
    Source,
    SpanRole,
    SpecialTokens,
    Strategy,
    Task,
    TextRole,
    Tokenizer,
)
from rtx_core.errors import DataError, InputError, PipelineError, PluginError, RtxError, RunError
from rtx_core.hooks import hookimpl
from rtx_core.lengths import Horizon, Interval, Length
from rtx_core.run import Run
from rtx_core.samples import Batch, Record, Sample

__all__ = [
    "Architecture",
    "Batch",
    "Callback",
    "Command",
    "Component",
    "Data",
    "DataError",
    "GroupRule",
    "Head",
    "Horizon",
    "InputError",
    "InputPath",
    "Interval",
    "Layout",
    "Length",
    "LoadRules",
    "Loss",
    "Metric",
    "MetricPart",
    "Optimizer",
    "Outputs",
    "ParameterGroup",
    "Pipeline",
    "PipelineError",
    "PluginError",
    "Record",
    "RtxError",
    "Run",
    "RunError",
    "Sample",
    "Scheduler",
    "Source",
    "SpanRole",
    "SpecialTokens",
    "Strategy",
    "Task",
    "TextRole",
    "Tokenizer",
    "hookimpl",
]
