"""Commands that answer at once, by the program under test: predict, advise, show, machines."""
from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import consist


@pytest.fixture(scope="module")
def prediction(program: str) -> consist.Prediction:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONSIST_PROGRAM", program)
        return consist.predict("llama-3-8b", "zero3-offload", ranks=8, precision="bf16", sequence=8192, batch=1, machine="h100",
                               zero3_offload__overlap_comm=True, time_limit=200)


def test_a_prediction(prediction: consist.Prediction) -> None:
    assert prediction.fits and prediction.ranks == 8 and prediction.machine == "h100"
    assert prediction.step_seconds_low < prediction.step_seconds < prediction.step_seconds_high
    assert prediction.tokens_per_second == pytest.approx(8 * 8192 / prediction.step_seconds, rel=1e-6)
    assert sum(prediction.parts.values()) == pytest.approx(prediction.step_seconds, rel=1e-3)
    assert "exposed_communication data" in prediction.parts
    assert 0.3 < prediction.mfu < 0.7
    assert prediction.device_bytes < prediction.capacity_bytes
    assert prediction.critical_path.seconds.is_monotonic_decreasing
    assert prediction.links[0]["transport"] == "nvlink", "keys without a property are attributes, too"


def test_a_prediction_shows_itself(prediction: consist.Prediction) -> None:
    assert "parts of the step's time" in str(prediction) and "GiB" in str(prediction)
    html = prediction._repr_html_()
    assert html.count("<table>") == 3 and html.count("<table>") == html.count("</table>")
    assert repr(prediction).startswith("Prediction(machine=h100, ranks=8")
    assert copy.copy(prediction).data == pickle.loads(pickle.dumps(prediction)).data
    assert "tokens_per_second" in dir(prediction) and "links" in dir(prediction)
    with pytest.raises(AttributeError, match="Prediction has no attribute 'nothing'; it has version"):
        _ = prediction.nothing


def test_what_does_not_fit_is_an_answer() -> None:
    prediction = consist.predict("llama-3-70b", precision="bf16", machine="h200", time_limit=200)
    assert not prediction.fits and prediction.device_bytes > prediction.capacity_bytes


def test_refusals_have_the_programs_words() -> None:
    with pytest.raises(consist.UsageError, match="there is no option '--nosuch'") as caught:
        consist.predict("llama-tiny", nosuch=3, time_limit=60)
    assert caught.value.status == 2 and caught.value.command[1:3] == ("predict", "--json")
    with pytest.raises(consist.UsageError, match="'nosuch' begins with no machine that is known here"):
        consist.predict("llama-tiny", machine="nosuch", time_limit=60)


def test_a_time_limit_ends_the_command() -> None:
    with pytest.raises(consist.WaitTimeoutError, match="consist predict took longer than 0.01 s and was ended"):
        consist.predict("llama-3-70b", precision="bf16", time_limit=0.01)
    assert issubclass(consist.WaitTimeoutError, TimeoutError)


def test_advice() -> None:
    advice = consist.advise("llama-tiny", "ddp", ranks=2, machine="cpu", time_limit=200)
    assert advice.table.options.iloc[0] == "--precision bf16" and advice.table.speed.iloc[0] > 1.5
    assert "--precision bf16" in str(advice) and "--precision bf16" in advice._repr_html_()


def test_advice_for_what_does_not_fit_is_the_programs_message() -> None:
    with pytest.raises(consist.ProgramError, match="(?s)DOES NOT FIT: .*GiB.*makes it fit"):
        consist.advise("llama-3-70b", precision="bf16", machine="h200", time_limit=200)


def test_a_run_on_one_screen(archive: Path) -> None:
    shown = consist.show(archive)
    assert shown.status == "finished" and shown.step == 24
    assert "llama-tiny" in str(shown) and "UTC" not in str(shown) and "evaluations" in shown._repr_html_()
    with pytest.raises(consist.ProgramError, match="No such file"):
        consist.show("/nowhere/run.h5")


def test_an_explanation() -> None:
    explanation = consist.explain("llama-tiny", "pipeline=2+zero2", ranks=4, global_batch=8, accumulation=4, machine="cpu", time_limit=200)
    assert explanation.ranks == 4 and explanation.step["ms"] > 0 and len(explanation.table) == 2
    assert set(explanation.collectives()["axis"]) >= {"data"} and (explanation.collectives().bytes_sent >= 0).all()
    assert "exposed_communication data" in str(explanation) and "stages" in explanation._repr_html_()
    without = consist.explain("llama-tiny", time_limit=200)
    assert len(without.table) == 1 and len(without.collectives()) == 0 and "program" in str(without)


def test_a_proof() -> None:
    proof = consist.prove("llama-tiny", "pipeline=2+zero2", ranks=4, accumulation=2, precision="bf16", small_only=True, time_limit=200)
    assert proof and list(proof.table.statement) == ["training", "evaluation", "checkpoint", "other layout", "order"]
    assert "the loss" in str(proof) and "statements" in proof._repr_html_()


def test_plugins() -> None:
    every = consist.plugins()
    assert {"zero2", "llama", "cpu", "socket"} <= {part.name for part in every} and len(every.table) == len(every)
    stage = next(option for option in every.part("zero2").options if option["name"] == "stage")
    assert stage["default"] == "2" and "strategy" in str(every) and "<td>zero2</td>" in every._repr_html_()
    one = consist.plugins("zero2")
    assert [part.name for part in one] == ["zero2"] and "allgather-bucket-size" in str(one[0])
    with pytest.raises(KeyError, match="there is no plugin 'nosuch'; there are zero2"):
        one.part("nosuch")
    with pytest.raises(consist.ProgramError, match="there is no plugin 'nosuch'"):
        consist.plugins("nosuch")


def test_machines() -> None:
    assert {"h200", "h100", "a100", "cpu"} <= set(consist.machines())


def test_every_public_name_is_there() -> None:
    assert all(getattr(consist, name) is not None for name in consist.__all__)
    assert set(consist.__all__) <= set(dir(consist))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = consist.nothing
