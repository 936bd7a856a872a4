"""Parse the line, run the command, print the result; bad input is one sentence and exit code 2."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from .. import __version__
from .config import (
    ClassifierOptions,
    DemoOptions,
    EvaluateOptions,
    ReproduceOptions,
    SampleOptions,
    TrainOptions,
    add_options,
    merge,
    to_yaml,
)

_EPILOG = """\
from data to samples:
  levydiff train --data returns.csv --alpha 1.7 --out run
  levydiff sample run --number 100000 --out samples.csv
  levydiff evaluate run --data returns.csv

from images to images:
  levydiff train --data mnist --config small --out digits
  levydiff sample digits --number 64 --out digits.png
"""


_CONFIG_HELP = "a YAML file of options, or one that comes with levydiff (train: small, paper-mnist, \
paper-cifar10_lt); options on the line win"


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=110)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="levydiff", description="Heavy-tailed diffusion models.", epilog=_EPILOG, formatter_class=_Help
    )
    top.add_argument("--version", action="version", version=f"levydiff {__version__}")
    commands = top.add_subparsers(
        dest="command", required=True, metavar="train | sample | evaluate | demo | info | classifier | reproduce"
    )

    def command(name: str, text: str, options: type[Any] | None = None) -> argparse.ArgumentParser:
        words = {"reproduce": "NAME [options]"} | dict.fromkeys(("train", "demo", "classifier"), "[options]")
        usage = f"levydiff {name} {words.get(name, 'MODEL [options]')}"
        made = commands.add_parser(name, help=text, description=text, formatter_class=_Help, usage=usage)
        made.add_argument("--json", action="store_true", help="print one JSON object, and no progress bars")
        if options is not None:
            made.add_argument("--config", metavar="FILE", help=_CONFIG_HELP)
            made.add_argument("--print-config", action="store_true", help="print all options as YAML and stop")
            add_options(made, options)
        return made

    command("train", "Train a model and draw samples and pictures from it.", TrainOptions)
    model = "a run's or a model's folder, or a repository of the Hub"
    command("sample", "Draw samples of a model into a file.", SampleOptions).add_argument("model", help=model)
    made = command("evaluate", "Compare a model, or a file of samples, with data.", EvaluateOptions)
    made.add_argument("model", help=f"{model}, or a file of samples")
    command("info", "Say what a model is.").add_argument("model", help="a run's or a model's folder")
    command("demo", "Train heavy-tailed and Gaussian diffusion and compare their tails.", DemoOptions)
    command("classifier", "Train a classifier of images, for features to compare images in.", ClassifierOptions)
    made = command("reproduce", "Make a table or a figure of the paper, or of ours.", ReproduceOptions)
    made.add_argument("name", help="table1, table2, table3, figure-steps, figure-tails, ours or tails")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    args = parser().parse_args(argv)
    try:
        result = _run(args)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"levydiff: {_sentence(error)}", file=sys.stderr)
        return 2
    except FloatingPointError as error:
        print(f"levydiff: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "levydiff: stopped; a training run goes on where it was if the same command is given again", file=sys.stderr
        )
        return 130
    if result is not None:
        print(json.dumps(result) if args.json else _readable(result))
    return 0


def _run(args: argparse.Namespace) -> dict[str, Any] | None:
    line = vars(args)
    kinds: dict[str, type[Any]] = {
        "train": TrainOptions,
        "sample": SampleOptions,
        "evaluate": EvaluateOptions,
        "demo": DemoOptions,
        "classifier": ClassifierOptions,
        "reproduce": ReproduceOptions,
    }
    options: Any = None
    if args.command in kinds:
        options = merge(kinds[args.command], line, args.config)
        if args.print_config:
            print(to_yaml(options), end="")
            return None
    # Imported here: the parser and --help answer at once.
    from . import commands
    from .demo import demo
    from .evaluate import evaluate

    if args.command == "train":
        return commands.train(options, quiet=args.json)
    if args.command == "sample":
        return commands.sample(args.model, options, quiet=args.json)
    if args.command == "evaluate":
        return evaluate(args.model, options, quiet=args.json)
    if args.command == "demo":
        return demo(options, quiet=args.json)
    if args.command == "classifier":
        return commands.classifier(options, quiet=args.json)
    if args.command == "reproduce":
        return commands.reproduce(args.name, options, quiet=args.json)
    return commands.info(args.model)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())


def _readable(result: dict[str, Any], indent: str = "") -> str:
    width = max(len(key) for key in result)
    lines = []
    for key, value in result.items():
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        if isinstance(value, dict) and value:
            lines += [f"{indent}{key}", _readable(value, indent + "  ")]
        else:
            shown = f"{value:.4g}" if isinstance(value, float) else value
            lines.append(f"{indent}{key:{width}}  {shown}")
    return "\n".join(lines)
