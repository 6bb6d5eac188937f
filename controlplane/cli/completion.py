"""``completion``: a script that lets bash or zsh complete verbs, kinds, options and names.

Invariant: the script is made from the parser itself, so it never offers what is not there. Names
are asked of the control plane when they are wanted, within ``ASK_S`` seconds, and silently.
"""

from __future__ import annotations

import argparse

from controlplane.cli import task, telemetry
from controlplane.cli.client import OK
from controlplane.cli.explain import kinds

ASK_S = 3
_KIND_VERBS = "get watch describe history rollback delete explain"
_SCRIPT = """\
# switchgear completion: source <(switchgear completion {shell})
_switchgear() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" verb="${{COMP_WORDS[1]}}" said=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{verbs}" -- "$word"))
    return
  fi
  if [ "${{word#-}}" != "$word" ]; then
    case "$verb" in
{options}
    esac
    COMPREPLY=($(compgen -W "$said" -- "$word"))
    return
  fi
  if [ "$COMP_CWORD" -eq 2 ]; then
    case "$verb" in
      get) said="{kinds} {others}" ;;
      {kind_verbs}) said="{kinds}" ;;
      create) said="gateway token" ;;
      completion) said="bash zsh" ;;
      extend|release) said="$(_switchgear_names overrides)" ;;
      {force_verbs}) said="$(_switchgear_names circuits)" ;;
    esac
  elif [ "$COMP_CWORD" -eq 3 ]; then
    case "$verb" in
      {kind_verbs}) said="$(_switchgear_names "${{COMP_WORDS[2]}}")" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$said" -- "$word"))
}}
_switchgear_names() {{
  timeout {ask_s} switchgear get "$1" -o name 2>/dev/null | cut -d/ -f2-
}}
complete -F _switchgear switchgear
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def completion(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Print the script for one shell."""
    found = _verbs(parser)
    force = [verb for verb, one in found.items() if "--selector" in _options(one)]
    cases = "\n".join(
        f'      {verb}) said="{" ".join(_options(one))}" ;;' for verb, one in found.items()
    )
    script = _SCRIPT.format(
        shell=options.shell,
        verbs=" ".join(found),
        options=cases,
        kind_verbs=_KIND_VERBS.replace(" ", "|"),
        force_verbs="|".join(force),
        kinds=" ".join(kinds()),
        others=f"{task.NAMES[0]} {telemetry.NAMES[0]}",
        ask_s=ASK_S,
    )
    print((_ZSH if options.shell == "zsh" else "") + script, end="")
    return OK


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [name for a in parser._actions for name in a.option_strings if name.startswith("--")]
