"""The hooks of a run's parts: whose is called, in which order, and what is refused."""

import re
from types import SimpleNamespace

import pytest
import torch

from rtx_core import hookimpl
from rtx_core.errors import PluginError
from rtx_core.registry import PartHooks


class Default:
    """Stands where the strategy does: the answers that others may replace."""

    def __init__(self, calls):
        self.calls = calls

    @hookimpl(trylast=True)
    def backward(self, run, loss):
        self.calls.append("default")
        return True


def hooks_of(calls=None, **parts):
    """Hooks over the given parts, in the order of the arguments, with a stand-in for the run."""
    named = {f"callback.{name}": part for name, part in parts.items()}
    hooks = PartHooks({**named, "strategy": Default(calls if calls is not None else [])}, default="strategy")
    hooks.run = SimpleNamespace(speaker=None)
    return hooks


def recorder(name, calls):
    """A part that writes its name down."""

    class Recorder:
        def on_step_end(self, run):
            calls.append((name, run.speaker))

    return Recorder()


def test_parts_are_called_in_file_order_under_their_own_names():
    """The first table is called first, and what it logs carries its name."""
    calls = []
    hooks = hooks_of(a=recorder("a", calls), b=recorder("b", calls), c=recorder("c", calls))
    hooks.call.on_step_end(run=hooks.run)
    assert calls == [("a", "a"), ("b", "b"), ("c", "c")]
    assert hooks.run.speaker is None


def test_the_first_table_is_the_outermost_wrapper():
    """Wrappers nest in file order around the default."""
    calls = []

    def wrapper(name):
        class Wrapper:
            @hookimpl(wrapper=True)
            def backward(self, run, loss):
                calls.append(f"{name} in")
                answer = yield
                calls.append(f"{name} out")
                return answer

        return Wrapper()

    hooks = hooks_of(calls, a=wrapper("a"), b=wrapper("b"))
    assert hooks.call.backward(run=hooks.run, loss=1) is True
    assert calls == ["a in", "b in", "default", "b out", "a out"]


def test_a_wrapper_sees_the_error_of_what_it_wraps():
    """An exception passes through a wrapper's own try."""
    seen = []

    class Wrapper:
        @hookimpl(wrapper=True)
        def backward(self, loss):
            try:
                return (yield)
            except ZeroDivisionError:
                seen.append(loss)
                raise

    class Broken:
        def backward(self):
            return 1 / 0

    hooks = hooks_of(a=Wrapper(), b=Broken())
    with pytest.raises(ZeroDivisionError) as caught:
        hooks.call.backward(run=hooks.run, loss=5)
    assert seen == [5]
    assert caught.value.__notes__ == ["in backward of callback.b"]


def test_a_part_may_replace_a_default():
    """One answer is enough: the default is not called as well."""
    calls = []

    class Mine:
        def backward(self, loss):
            calls.append("mine")
            return True

    hooks = hooks_of(calls, mine=Mine())
    assert hooks.call.backward(run=hooks.run, loss=1)
    assert calls == ["mine"]


def test_two_parts_may_not_replace_the_same_default():
    """The error names both, and the hook."""

    class Mine:
        def backward(self, loss):
            return True

    with pytest.raises(PluginError, match="callback.a and callback.b both replace backward"):
        hooks_of(a=Mine(), b=Mine())


def test_a_replacement_must_answer():
    """None would mean two backward passes, so it is an error and the default is not called."""
    calls = []

    class Silent:
        def backward(self, loss):
            return None

    hooks = hooks_of(calls, a=Silent())
    with pytest.raises(PluginError, match="callback.a: backward returned None"):
        hooks.call.backward(run=hooks.run, loss=1)
    assert calls == []


def test_a_misspelt_hook_is_refused():
    """A public method on_… that is no hook gets the near name."""

    class Misspelt:
        def on_step_edn(self, run):
            pass

    with pytest.raises(PluginError, match='callback.a: method on_step_edn is no hook; did you mean "on_step_end"?'):
        hooks_of(a=Misspelt())


@pytest.mark.parametrize("misspelt", ["apply_gradient", "computes_loss", "backwards", "finish_gradeints"])
def test_a_near_name_of_a_hook_with_one_answer_is_refused(misspelt):
    """Otherwise the default would go on answering, and nobody would see that the part does nothing."""
    part = type("Misspelt", (), {misspelt: lambda self, run: True})()
    with pytest.raises(PluginError, match=f'callback.a: method {misspelt} is no hook; did you mean "'):
        hooks_of(a=part)


def test_methods_that_only_resemble_hooks_are_left_alone():
    """What torch's classes have, what is private, and what is no method means no hook."""
    foreign = type("Optimizer", (), {"backwards": lambda self: None, "__module__": "torch.optim.optimizer"})

    class Fine(foreign):
        computes_loss = True

        def _apply_gradient(self):
            pass

        def forward(self):
            pass

    hooks_of(a=Fine())


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def on_step_end(self, run, loss): pass", 'on_step_end takes run, not "loss"'),
        ("def on_log(self, row): pass", 'on_log takes run, values, not "row"'),
        ("def on_step_end(self, *, run): pass", "on_step_end gets its arguments by place, so run can't stand after *"),
        ("on_step_end = None", "on_step_end is the name of a hook, so it must be a method, not None"),
        ("@hookimpl(wrapper=True)\n def backward(self): return 1", "backward is a wrapper, so it must yield once"),
    ],
)
def test_a_hook_that_cannot_be_called_is_refused_in_our_words(code, told):
    """With the part, the hook and the arguments that it may take, in one line."""
    names = {"hookimpl": hookimpl}
    exec(f"class Wrong:\n {code}", names)  # noqa: S102 - our own text
    with pytest.raises(PluginError) as caught:
        hooks_of(a=names["Wrong"]())
    assert str(caught.value).startswith(f"callback.a: {told}")
    assert "\n" not in str(caught.value)


def test_a_hook_may_leave_arguments_out_and_have_its_own():
    """Only those without a default have to be the hook's."""
    seen = []

    class Fine:
        def on_log(self, values, scale=2):
            seen.append((values, scale))

    hooks = hooks_of(a=Fine())
    hooks.call.on_log(run=hooks.run, values={"lr": 1})
    assert seen == [({"lr": 1}, 2)]


def test_a_hook_may_not_end_the_process():
    """``sys.exit(0)`` is no success of the run but an error of the part; Ctrl-C stays Ctrl-C."""

    class Ends:
        def __init__(self, error):
            self.error = error

        def on_step_end(self):
            raise self.error

        def on_run_end(self):
            raise self.error

    hooks = hooks_of(a=Ends(SystemExit(0)))
    with pytest.raises(PluginError, match=r"callback.a: on_step_end calls sys.exit\(0\); run.stop\(reason\)"):
        hooks.call.on_step_end(run=hooks.run)
    hooks.call.on_run_end(run=hooks.run)
    assert [type(failure) for failure in hooks.failures] == [PluginError]
    hooks = hooks_of(a=Ends(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        hooks.call.on_step_end(run=hooks.run)


@pytest.mark.parametrize(
    ("code", "error", "told"),
    [
        ("yield 1 / 0", ZeroDivisionError, ["in backward of callback.a"]),
        ("yield; 1 / 0", ZeroDivisionError, ["in backward of callback.a"]),
        ("yield; raise SystemExit(0)", PluginError, "callback.a: backward calls sys.exit(0)"),
        ("yield; yield", PluginError, "callback.a: a wrapper yields once, this one did twice"),
        ("return\n  yield", PluginError, "callback.a: a wrapper yields once, this one did never"),
    ],
)
def test_a_wrapper_that_fails_is_named(code, error, told):
    """Its own error gets the note that any hook's gets, before and after the yield."""
    names = {"hookimpl": hookimpl}
    exec(f"class Wrong:\n @hookimpl(wrapper=True)\n def backward(self):\n  {code}", names)  # noqa: S102 - our own text
    hooks = hooks_of(a=names["Wrong"]())
    with pytest.raises(error) as caught:
        hooks.call.backward(run=hooks.run, loss=1)
    if error is PluginError:
        assert str(caught.value).startswith(told)
    else:
        assert caught.value.__notes__ == told


@pytest.mark.parametrize(
    ("hook", "answer", "told"),
    [
        ("backward", "yes", "'yes'; expected True or False"),
        ("backward", torch.ones(2), "a tensor of shape [2]; expected True or False"),
        ("compute_loss", 1.5, "1.5; expected the summed loss, a tensor without axes"),
        ("compute_loss", True, "True; expected the summed loss, a tensor without axes"),
        ("compute_loss", torch.ones(2, 2), "a tensor of shape [2, 2]; expected the summed loss, a tensor without axes"),
    ],
)
def test_an_answer_of_another_type_is_refused(hook, answer, told):
    """What replaces a default answers with what the loop goes on with: its author is told, and not the strategy's."""

    class Wrong:
        def backward(self):
            return answer

    class Loss:
        def compute_loss(self):
            return answer

    hooks = hooks_of(a=Wrong() if hook == "backward" else Loss())
    with pytest.raises(PluginError, match=f"^{re.escape(f'callback.a: {hook} returned {told}')}$"):
        getattr(hooks.call, hook)(run=hooks.run, **{"loss": 1} if hook == "backward" else {"batch": None})


def test_what_fails_while_an_error_is_told_hides_neither_it_nor_the_others():
    """on_exception reaches every part; what one raises there is a warning, and the run ends with its first error."""
    told, warned = [], []

    class Broken:
        def on_exception(self):
            raise ValueError("again")

    class Fine:
        def on_exception(self, error):
            told.append(error)

    hooks = hooks_of(a=Broken(), b=Fine())
    hooks.run.console = SimpleNamespace(warn=warned.append)
    first = KeyError("first")
    hooks.call.on_exception(run=hooks.run, error=first)
    assert told == [first]
    assert warned == ["callback.a: on_exception failed too: ValueError: again"]


def test_a_part_that_fails_at_the_end_keeps_nobody_from_theirs():
    """on_run_end is always called on all parts; the failure is kept."""
    ended = []

    class Broken:
        def on_run_end(self):
            raise ValueError("late")

    class Fine:
        def on_run_end(self):
            ended.append(1)

    hooks = hooks_of(a=Broken(), b=Fine())
    hooks.call.on_run_end(run=hooks.run)
    assert ended == [1]
    assert [str(failure) for failure in hooks.failures] == ["late"]
