"""Preference learning of TRL's and Axolotl's files, as --loss dpo."""
from __future__ import annotations

from .messages import as_text, shown
from .rules import is_enabled
from .stored import StoredValues
from .target import GOES_BEFORE

NO_RL = "there is no reinforcement learning, and of preferences --loss dpo alone"
ONE_LOSS = "the loss is DPO's alone, beside the model at its start"
# Values of DPO's settings by their short names. Those behind the first three have no effect.
OF_DPO = ("beta", "loss_type", "label_smoothing", "max_prompt_length", "max_completion_length", "truncation_mode",
          "precompute_ref_log_probs")


def read_preferences(values: StoredValues, by_name: bool) -> bool:
    """Sets the loss and its data if preferences are learned, and returns whether they are.

    Axolotl's files name the loss (`by_name`); of TRL's --loss says which script they are for.
    """
    target = values.target
    given = target.value("loss") if target.given("loss") else ""
    if given and given != "dpo":
        values.note(f"--loss {given}{GOES_BEFORE}", "rl", *OF_DPO)
        return False
    if not (values.has("rl") if by_name else given):
        _refuse_unasked(values, by_name)
        return False
    if by_name:
        values.choice("rl", "", ("dpo",))
        values.state("rl", "loss", "dpo")
    target.set("dataset", "preferences")
    target.detail(f"the loss: --dataset {target.value('dataset')}")
    if values.has("loss_type") and values["loss_type"] not in ("sigmoid", ["sigmoid"]):
        values.refuse("loss_type", f"is {shown(values['loss_type'])}, which is not done here; sigmoid is")
    values.note("as it is here", "loss_type")
    values.state_plugin("beta", "dpo", "beta", as_text(values.number("beta", 0.1)))
    values.state_plugin("label_smoothing", "dpo", "label-smoothing", as_text(values.number("label_smoothing", 0.0)))
    values.note("no effect: pairs are not cut", "max_prompt_length", "max_completion_length", "truncation_mode")
    values.note("no effect: the reference is computed in each step", "precompute_ref_log_probs")
    target.differs("a sequence holds a pair here, so that --sequence is twice the length of the file. Pairs that do "
                   "not fit are cut there; here they are refused, or left out with --preferences.long skip")
    return True


def _refuse_unasked(values: StoredValues, by_name: bool) -> None:
    if by_name:
        values.note("no effect: rl is not set", *OF_DPO)
        return
    for name in OF_DPO:
        if not values.has(name) or not is_enabled(values[name]) or name == "label_smoothing" and values[name] == 0:
            values.note("off", name)
        else:
            values.refuse(name, "is of preference learning: give --loss dpo if the file is for TRL's DPO (others of "
                                "its trainers, which are not done here, have the same keys), or --loss next-token")
