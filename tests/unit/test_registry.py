"""Which plugin a name means, what is loaded for it, and how a broken one is reported (case 30)."""

import sys

import pytest

from rtx_core.config.pipeline import PluginSettings
from rtx_core.errors import PluginError
from rtx_core.registry import OURS, Registry, built, nearest

LINEAR = """
import attrs
from rtx_core import Scheduler, hookimpl

@attrs.frozen(kw_only=True)
class Linear(Scheduler):
    '''Another linear.'''

@hookimpl
def scheduler():
    return {"linear": Linear, "acme": Linear}
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a distribution with one module on the path, as an installer would."""

    def installed(name, code, *points, version="1.2", group="rtx.v1"):
        module = name.replace("-", "_")
        site = tmp_path / name
        info = site / f"{module}-{version}.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = "".join(f"{point} = {module}\n" for point in points)
        (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, module, raising=False)
        return module

    return installed


def test_ours_is_found_like_anyones():
    """A shipped component comes from the metadata of rtx-transformers."""
    chosen = Registry.discover().find("scheduler", "linear")
    assert (chosen.distribution, chosen.replaces) == (OURS, None)


def test_an_installed_package_replaces_ours(install):
    """Another distribution wins over rtx-transformers, and says what it replaces."""
    install("acme-one", LINEAR, "scheduler.linear")
    chosen = Registry.discover().find("scheduler", "linear")
    assert (chosen.distribution, chosen.version, chosen.replaces) == ("acme-one", "1.2", OURS)


def test_blocking_gives_ours_back(install):
    """A blocked distribution supplies nothing."""
    install("acme-one", LINEAR, "scheduler.linear", "scheduler.acme")
    registry = Registry.discover().configured(PluginSettings(block=("Acme_One",)))
    assert registry.find("scheduler", "linear").distribution == OURS
    assert "acme" not in registry.names("scheduler")


def test_two_others_need_a_choice(install):
    """Two packages with one name are an error that prints the lines that settle it; they settle it."""
    install("acme-one", LINEAR, "scheduler.linear")
    install("beta-two", LINEAR, "scheduler.linear")
    registry = Registry.discover()
    with pytest.raises(
        PluginError, match='acme-one and by beta-two(?s:.*)prefer = { "scheduler.linear" = "acme-one" }'
    ):
        registry.find("scheduler", "linear")
    settled = registry.configured(PluginSettings(prefer={"scheduler.linear": "beta-two"}))
    assert settled.find("scheduler", "linear").distribution == "beta-two"


def test_a_name_can_pin_its_distribution(install):
    """``distribution:name`` takes that one, ours included."""
    install("acme-one", LINEAR, "scheduler.linear")
    registry = Registry.discover()
    assert registry.find("scheduler", "rtx-transformers:linear").distribution == OURS
    with pytest.raises(PluginError, match="supplied by acme-one, rtx-transformers"):
        registry.find("scheduler", "nobody:linear")


def test_finding_one_part_runs_no_other_package(install):
    """A package that raises on import harms only those who name it (case 30)."""
    module = install("broken-one", "raise RuntimeError('no licence')", "scheduler.broken")
    registry = Registry.discover()
    registry.find("scheduler", "linear")
    assert "broken" in registry.names("scheduler")
    assert module not in sys.modules
    with pytest.raises(
        PluginError, match="broken-one 1.2 can't be imported: module broken_one: RuntimeError: no licence"
    ):
        registry.find("scheduler", "broken")


def test_another_plugin_api_is_named(install):
    """A part for rtx.v2 alone says so."""
    install("future-one", LINEAR, "scheduler.acme", group="rtx.v2")
    with pytest.raises(PluginError, match="future-one 1.2 needs plugin API v2, this is v1"):
        Registry.discover().find("scheduler", "acme")


def test_a_misspelt_name_gets_a_suggestion():
    """The nearest name, or what there is."""
    with pytest.raises(PluginError, match='no scheduler "liner" is installed; did you mean "linear"?'):
        Registry.discover().find("scheduler", "liner")
    with pytest.raises(PluginError, match="there are: .*cosine"):
        Registry.discover().find("scheduler", "something_else")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1", "offers nothing as scheduler"),
        (
            "from rtx_core import hookimpl\n@hookimpl\ndef scheduler():\n    return {'acme': dict}",
            "no attrs class derived",
        ),
        ("from rtx_core import hookimpl\n@hookimpl\ndef schedular():\n    return {}", "unknown hook 'schedular'"),
    ],
)
def test_a_module_that_breaks_the_contract_is_explained(install, code, message):
    """What an entry point leads to must offer an attrs class of the kind under that name."""
    install("acme-one", code, "scheduler.acme")
    with pytest.raises(PluginError, match=message):
        Registry.discover().find("scheduler", "acme")


@pytest.mark.parametrize(
    ("require", "message"),
    [("nobody-has>=1", "is not installed"), ("attrs>=999", "is installed"), ("a b c", "is no requirement")],
)
def test_required_distributions_are_checked(require, message):
    """``[plugins] require`` is refused with what is wrong."""
    with pytest.raises(PluginError, match=message):
        Registry.discover().configured(PluginSettings(require=(require,)))


def test_a_file_wins_over_everything_installed(install, tmp_path):
    """``--plugin`` puts one file's components in front, with its hash as version."""
    install("acme-one", LINEAR, "scheduler.linear")
    file = tmp_path / "mine.py"
    file.write_text(LINEAR)
    registry = Registry.discover([file])
    chosen = registry.find("scheduler", "linear")
    assert (chosen.distribution, chosen.version) == ("mine.py", registry.files[0].sha256[:12])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def", "can't be loaded: SyntaxError"),
        ("1/0", "ZeroDivisionError"),
        ("x = 1", "no function marked @rtx_core.hookimpl"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, text, message):
    """A plugin file that can't be used says why."""
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(PluginError, match=message) as caught:
        Registry.discover([file])
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path):
    """So does one that isn't there."""
    with pytest.raises(PluginError, match="no such Python file"):
        Registry.discover([tmp_path / "nobody.py"])


def test_summaries_are_read_without_importing(install):
    """``plugins list`` runs no third party's code."""
    module = install("broken-one", '"""A fine scheduler.\n\nMore."""\nraise RuntimeError', "scheduler.broken")
    entry = next(e for e in Registry.discover().entries if e.name == "broken")
    assert entry.summary() == "A fine scheduler."
    assert module not in sys.modules


def test_near_names_know_transpositions():
    """``lr`` for ``rl`` is one edit, and a far name is none."""
    assert nearest("weight_decy", ["weight_decay", "lr"]) == "weight_decay"
    assert nearest("rl", ["lr"]) == "lr"
    assert nearest("zzz", ["weight_decay", "lr"]) is None


@pytest.mark.parametrize(
    ("point", "told"), [("nokind.x", "nokind is no kind"), ("acme", "its name is not KIND.NAME")], ids=["kind", "dot"]
)
def test_an_entry_point_of_no_kind_is_set_aside(install, point, told):
    """Nothing can mean it, and it says why; the others are found as before."""
    install("acme-one", LINEAR, point, "scheduler.acme")
    registry = Registry.discover()
    (entry,) = registry.malformed
    assert entry.problem.startswith(f'entry point "{point}" of acme-one 1.2: {told}; kinds are architecture, ')
    assert registry.find("scheduler", "acme").distribution == "acme-one"


def test_a_plugin_that_exits_on_import_ends_nothing(install, tmp_path):
    """``sys.exit(0)`` in a package or a file is that plugin's mistake, not a success."""
    install("acme-one", "import sys\nsys.exit(0)", "scheduler.acme")
    with pytest.raises(PluginError, match=r"scheduler.acme of acme-one 1.2 can't be imported: .* it calls sys.exit\(0"):
        Registry.discover().find("scheduler", "acme")
    (tmp_path / "mine.py").write_text("raise SystemExit")
    with pytest.raises(PluginError, match=r"mine.py can't be loaded: it calls sys.exit\(None\)"):
        Registry.discover([tmp_path / "mine.py"])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise KeyError('x')", r"scheduler\(\) fails: KeyError: 'x'"),
        ("raise SystemExit(3)", r"scheduler\(\) fails: it calls sys.exit\(3\)"),
        ("return ['acme']", r"scheduler\(\) gives no dict of components by name, but \['acme'\]"),
    ],
)
def test_a_module_that_cannot_say_what_it_offers_is_explained(install, body, told):
    """Its function named for the kind is called by us, so its failure gets our words."""
    install("acme-one", f"from rtx_core import hookimpl\n@hookimpl\ndef scheduler():\n    {body}", "scheduler.acme")
    with pytest.raises(PluginError, match=f"scheduler.acme of acme-one 1.2: {told}"):
        Registry.discover().find("scheduler", "acme")


def test_what_build_gives_is_handed_on():
    """With its arguments, by place and by name."""
    assert built("callback.a", "", lambda x, *, y: (x, y), 1, y=2) == (1, 2)


def test_a_build_that_gives_nothing_is_refused():
    """A forgotten ``return`` is named before anything uses the part."""
    with pytest.raises(PluginError, match="callback.a: build returned None"):
        built("callback.a", "a.py 12", lambda: None)


def test_an_error_in_build_says_whose_it_is():
    """The note has the part and what supplies it; the error stays what it was."""
    with pytest.raises(ZeroDivisionError) as caught:
        built("callback.a", "a.py 12", lambda: 1 / 0)
    assert caught.value.__notes__ == ["in build of callback.a (a.py 12)"]


def test_a_build_may_not_end_the_process():
    """SystemExit is the part's mistake; Ctrl-C stays Ctrl-C."""

    def ends(error):
        raise error

    with pytest.raises(PluginError, match=r"callback.a: build calls sys.exit\(0\)"):
        built("callback.a", "", ends, SystemExit(0))
    with pytest.raises(KeyboardInterrupt):
        built("callback.a", "", ends, KeyboardInterrupt)
