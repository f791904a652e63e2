"""The study of a sweep in Optuna: which values the next trial has, and whether a running one is worth its time.

It is in memory, and built from the trials with the values of their epochs.
"""

import contextlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.pruners import HyperbandPruner, SuccessiveHalvingPruner
from optuna.trial import TrialState, create_trial

from horovodjob.sweeps.definition import Component, Definition
from horovodjob.sweeps.parameters import Choices, Parameter, Value
from horovodjob.sweeps.trials import State, Trial
from horovodjob.training_history import Goal

# Their decisions about an epoch change later ones, so a study that is built again repeats them all.
STATEFUL_PRUNERS = (HyperbandPruner, SuccessiveHalvingPruner)
STATES = {State.COMPLETE: TrialState.COMPLETE, State.PRUNED: TrialState.PRUNED, State.FAILED: TrialState.FAIL}

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Study:
    """The study of the trials so far. Raises ValueError with a sentence for a sampler or a pruner without effect."""

    def __init__(self, definition: Definition, trials: Iterable[Trial] = ()) -> None:
        known = sorted(trials, key=lambda trial: trial.number)
        with warnings.catch_warnings():
            # Optuna warns of experimental samplers, and of a range that its step does not divide.
            warnings.simplefilter("ignore")
            self._distributions = {name: _distribution(each) for name, each in definition.parameters.items()}
            self._is_pruned = definition.goal is not None
            self._pruner = _component(definition.pruner, optuna.pruners, "pruner")
            self._study = optuna.create_study(
                study_name=definition.name,
                # Without a direction, nothing that depends on it is asked for.
                direction="maximize" if definition.goal is Goal.MAX else "minimize",
                sampler=_component(_advanced(definition.sampler, len(known)), optuna.samplers, "sampler"),
                pruner=self._pruner,
            )
        self._open: dict[int, optuna.Trial] = {}
        self._ended: set[int] = set()
        self._epochs: dict[int, int] = {}
        for trial in known:
            self._add(trial)
        # Not those that run: `observe` judges them when it first gets their epochs.
        for trial in known:
            if trial.state is not State.RUNNING:
                self.observe(trial)

    def ask(self, number: int) -> dict[str, Value]:
        """The values of a new trial. Raises ValueError with a sentence if the sampler does not take the parameters."""
        try:
            self._open[number] = asked = self._study.ask(self._distributions)
        except (ValueError, ImportError) as error:
            sampler = type(self._study.sampler).__name__
            raise ValueError(f"sampler: {sampler} cannot choose these parameters: {error}") from None
        return dict(asked.params)

    def observe(self, trial: Trial) -> bool:
        """Take over what a trial reports. Returns whether the pruner would end it now."""
        number = trial.number
        if number in self._ended:
            return False
        if number not in self._open:
            self._add(trial)
        is_pruned = False
        news = [point for point in trial.points if point[0] > self._epochs.get(number, 0)]
        for epoch, value in news:
            self._epochs[number] = epoch
            self._open[number].report(value, epoch)
            if not self._is_pruned:
                continue
            if isinstance(self._pruner, STATEFUL_PRUNERS) or (epoch == news[-1][0] and trial.state is State.RUNNING):
                is_pruned = self._open[number].should_prune()
        if trial.state is State.RUNNING:
            return is_pruned
        self._ended.add(number)
        objective = trial.value if trial.state is State.COMPLETE else None
        with contextlib.suppress(RuntimeError):  # BruteForceSampler stops a loop of Optuna, which there is not
            self._study.tell(self._open.pop(number), objective, STATES[trial.state])
        return False

    def _add(self, trial: Trial) -> None:
        try:
            template = create_trial(
                state=TrialState.RUNNING, params=dict(trial.parameters), distributions=self._distributions
            )
        except (ValueError, KeyError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"job {trial.job} has other parameters than its sweep ({reason}): delete it") from None
        self._study.add_trial(template)
        self._open[trial.number] = optuna.Trial(self._study, self._study.get_trials(deepcopy=False)[-1]._trial_id)


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Choices):
        return CategoricalDistribution(parameter.values)
    if parameter.scale.is_whole:
        low, high, step = int(parameter.low), int(parameter.high), int(parameter.step or 1)
        return IntDistribution(low, high, log=parameter.scale.is_logarithmic, step=step)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.scale.is_logarithmic, step=parameter.step)


def _advanced(sampler: Component | None, trials: int) -> Component | None:
    """The sampler with its seed shifted by the number of trials.

    With the same seed, a continued study would draw its first values again.
    """
    if sampler is None or not isinstance(sampler.options.get("seed"), int):
        return sampler
    options: Mapping[str, Any] = {**sampler.options, "seed": sampler.options["seed"] + trials}
    return Component(sampler.name, options)


def _component(component: Component | None, module: Any, kind: str) -> Any:
    """The sampler or pruner; None for Optuna's default. Raises ValueError with a sentence."""
    if component is None:
        return None
    names = sorted(each for each in module.__all__ if each.endswith(kind.title()) and not each.startswith("Base"))
    if component.name == optuna.samplers.GridSampler.__name__:
        raise ValueError("sampler: GridSampler forgets its grid between trials; use BruteForceSampler")
    if component.name not in names:
        raise ValueError(f"{kind}: Optuna has no {component.name}; it has {', '.join(names)}")
    try:
        return getattr(module, component.name)(**component.options)
    except (TypeError, ValueError, ImportError) as error:
        raise ValueError(f"{kind}: {component.name} does not take these options: {error}") from None
