"""Inputs for a transformers model: guessed from `main_input_name`, the forward's signature and docstring and the configuration.

The first guess gives what the forward needs. Where it fails, `Guess.improve` reads the error: an argument that the error or the failing
line names is added, or the next shape of one that is given already is tried.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from skipway._errors import TargetError
from skipway.targets import _hf_images, _hf_series, _hf_sound, _hf_text
from skipway.targets._given import Given
from skipway.targets._hf_blame import cause, dimensions, placeholders, sizes, sources
from skipway.targets._hf_context import BATCH, Context

MAIN = ("input_ids", "pixel_values", "input_values", "input_features", "inputs_embeds")
MOST_FORMS = 24                                 # shapes tried of one argument
# Not inputs, or another form of one.
NEVER = re.compile(r"labels|past_key_values|cache|return_\w+|output_\w+|use_\w+|position_ids|decoder_position_ids|encoder_outputs|mm_encoder_outputs")


def maker(name: str) -> Callable[[str, Context], Sequence[Any]] | None:
    """What makes the values of an argument of this name, or None."""
    makers = [(p, m) for part in (_hf_images, _hf_sound, _hf_series, _hf_text) for p, m in part.MAKERS.items()]
    return next((m for pattern, m in makers if re.fullmatch(pattern, name)), None)


class Guess:
    """The arguments of one forward and which of their forms are tried."""

    def __init__(self, model: nn.Module, config: Any, name: str, words_alone: bool = False) -> None:
        self.context = Context(model, config)
        self.name = name
        self.now: dict[str, Any] = dict.fromkeys(self._words_alone() if words_alone else self._first())     # argument -> its form, None: the first
        self.tried: dict[str, set[Any]] = {}
        self.states: set[frozenset[tuple[str, Any]]] = set()       # what was tried after a change
        self.refused: set[tuple[str, int]] = set()                 # numbers of axes that are not worth another trial
        self.best: tuple[int, BaseException, dict[str, Any]] | None = None      # how far it came, what stopped it, with what

    def given(self) -> Given:
        """The keyword arguments, with real values also where the model has none, filled from fixed seeds. Raises TargetError."""
        self.context.values, self.context.wanted = {}, frozenset(self.now)
        for name, form in list(self.now.items()):
            forms = self._forms(name)
            if not forms:
                how = f'--input "{name}=float32[2,16,64]" or --inputs FILE.py:FUNCTION'
                raise TargetError(f"{self.name}: its input {name!r} cannot be guessed; give it: {how}")
            self.now[name] = form if form in forms else next(iter(forms))       # another one, where what it is made like has changed
            self.tried.setdefault(name, set()).add(self.now[name])
            self.context.values[name] = forms[self.now[name]]
        return Given((), dict(self.context.values))

    def learn(self, error: BaseException, reached: int, mendable: Callable[[BaseException], bool]) -> bool:
        """Changes one thing after a forward that failed when `reached` modules had been called. False where nothing is left to change.

        A change that did not bring the forward further, nor to another error, is taken back.
        """
        if self.best is not None and reached < self.best[0]:
            self._refuse(self.best[2])
        if self.best is None or reached > self.best[0] or (reached == self.best[0] and str(cause(error)) != str(cause(self.best[1]))):
            self.best = (reached, error, dict(self.now))
            if self._add(error):
                return True
            if mendable(error):
                return False
        _, error, now = self.best
        while True:
            self.now = dict(now)
            if not self._change(error):
                return False
            state = frozenset(self.now.items())
            if state not in self.states:
                self.states.add(state)
                return True

    def _refuse(self, better: dict[str, Any]) -> None:
        """Notes the number of axes of what was changed and brought the forward less far."""
        for name, form in self.now.items():
            value, other = self.context.values.get(name), self._forms(name).get(better.get(name))
            if form != better.get(name) and isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor) and value.ndim != other.ndim:
                self.refused.add((name, value.ndim))

    def like(self, other: "Guess") -> "Guess":
        """This guess, with the arguments and forms that were found for another size of the same model."""
        self.now = {}
        self.context.sizes = list(other.context.sizes)
        self.context.placeholders = dict(other.context.placeholders)
        for name, form in other.now.items():
            mine, theirs = list(self._forms(name)), list(other._forms(name))
            self.now[name] = form if form in mine else mine[theirs.index(form)] if form in theirs and theirs.index(form) < len(mine) else None
        return self

    def _add(self, error: BaseException) -> bool:
        """Adds what the error says is missing: arguments, or placeholders among the words. False where it names none."""
        wanted = placeholders(error)
        if wanted is not None and self.context.placeholders.get(wanted[0]) != max(1, wanted[1] // BATCH):
            self.context.placeholders[wanted[0]] = max(1, wanted[1] // BATCH)
            return True
        for text in sources(error):
            words = _words(text)
            missing = self._missing(words)
            if missing:
                self.now.update(dict.fromkeys(missing))
                return True
            if any(word in self.now for word in words):
                return False
        return False

    def _change(self, error: BaseException) -> bool:
        """Gives another form of an argument that the error points to, or of any. False where none is left, or forms are not what is wrong."""
        if isinstance(cause(error), AttributeError) or "NoneType" in str(cause(error)):
            return False
        self.context.sizes = sizes(error)
        named = [word for text in sources(error) for word in _words(text)]
        return any(self._next(name, dimensions(error)) for name in (*named, *self.now))

    def _first(self) -> list[str]:
        """What the forward needs: its main input, what has no default, the decoder's words, both sides of a model that compares two."""
        accepted, config = self.context.parameters, self.context.config
        mains = getattr(self.context.model, "main_input_name", "input_ids")
        wanted = [m for m in (mains if isinstance(mains, (list, tuple)) else (mains,)) if m in accepted]
        needed = self._needed()
        if not wanted and not needed:
            wanted = [n for n in MAIN if n in accepted][:1]
        if "decoder_input_ids" in accepted and (getattr(config, "is_encoder_decoder", False) or "input_ids" not in wanted):
            wanted.append("decoder_input_ids")
        if _compares(self.context.model, config):
            wanted += [n for n in ("input_ids", "pixel_values") if n in accepted]
        wanted = list(dict.fromkeys((*wanted, *needed)))
        if type(self.context.model).forward is nn.Module.forward:
            raise TargetError(f"{self.name}: {type(self.context.model).__name__} has no forward of its own; name one of its parts")
        missing = [n for n in wanted if maker(n) is None and n not in self.context.documented]
        if missing or not wanted:
            names = wanted or [n for n, p in accepted.items() if p.kind is p.POSITIONAL_OR_KEYWORD] or list(accepted)
            how = " ".join(f'--input "{n}=float32[2,16,64]"' for n in names) + ", or --inputs FILE.py:FUNCTION"
            raise TargetError(f"{self.name}: its forward needs {', '.join(missing or names)}, which cannot be guessed; give all: {how}")
        return wanted

    def _words_alone(self) -> list[str]:
        """The words, where the model can do without what they are about. Raises TargetError where that is the first guess already, or cannot be."""
        if "input_ids" not in self.context.parameters or self._needed() not in ([], ["input_ids"]) or self._first() == ["input_ids"]:
            raise TargetError(f"{self.name}: its forward does not take words alone")
        return ["input_ids"]

    def _needed(self) -> list[str]:
        return [n for n, p in self.context.parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]

    def _forms(self, name: str) -> dict[Any, Any]:
        """The values to try for an argument, in order, by shape and type."""
        make = maker(name)
        made = list(make(name, self.context)) if make is not None else []
        made += self.context.by_documentation(name)
        forms: dict[Any, Any] = {}
        for value in made:
            forms.setdefault((tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__, value)
        return dict(list(forms.items())[:MOST_FORMS])

    def _missing(self, words: list[str]) -> list[str]:
        """Arguments among the words that are not given yet and can be made; words go before their embeddings."""
        accepted = self.context.parameters
        words = [w.replace("inputs_embeds", "input_ids") if w.endswith("inputs_embeds") else w for w in words]
        found = [w for w in words if w in accepted and not NEVER.fullmatch(w) and (maker(w) or w in self.context.documented)]
        plain = [w for w in found if not w.endswith("embeds")]
        return [w for w in dict.fromkeys(plain or found) if w not in self.now]

    def _next(self, name: str, axes: int | None) -> bool:
        """Gives the next form of an argument: of the number of axes that is asked for, else of the same number and a size that the error names."""
        if name not in self.now or name not in self.context.values:
            return False
        forms = {form: value for form, value in self._forms(name).items() if form not in self.tried[name] and not self._hopeless(name, value)}
        now = self.context.values[name]
        asked = [form for form, v in forms.items() if axes is not None and getattr(v, "ndim", None) == axes]
        named = [form for form, v in forms.items() if isinstance(v, torch.Tensor) and isinstance(now, torch.Tensor) and v.ndim == now.ndim
                 and set(v.shape) & (set(self.context.sizes) - set(now.shape))]
        form = next(iter((*asked, *named, *forms)), None)
        if form is not None:
            self.now[name] = form
            self.tried[name].add(form)
        return form is not None

    def _hopeless(self, name: str, value: Any) -> bool:
        """True for a number of axes that stopped the forward earlier."""
        return isinstance(value, torch.Tensor) and (name, value.ndim) in self.refused


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text)))


def _compares(model: nn.Module, config: Any) -> bool:
    """True for models that hold a text and an image side and compare them, instead of one that may read text alone."""
    sides = [getattr(config, name, None) is not None for name in ("vision_config", "text_config")]
    main = getattr(model, "main_input_name", "input_ids")
    return sides[0] and (sides[1] or main == "pixel_values") and not getattr(type(model), "can_generate", lambda: False)()
