"""The lab's command line; `./dev lab` calls it after it has built the binary."""

import argparse
import signal
import sys
from pathlib import Path

from tools.harness.cluster import ROOT

from . import experiments, report, results, runner, targets
from .plan import PlanError, load

RESULTS_FOLDER = ROOT / ".lab"
SAMPLE_FOLDER = ROOT / "docs" / "lab"


def arguments(words):
    parser = argparse.ArgumentParser(prog="./dev lab", description="Published storage experiments, repeated here.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run what is not measured yet; goes on where a cut-off run stopped")
    run.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="E0, E2, E3, E4")
    run.add_argument("--all", action="store_true", help="every experiment of the plan")
    run.add_argument("--targets", metavar="A,B", help="these targets instead of the plan's")
    run.add_argument("--rounds", type=int, help="rounds instead of the plan's")
    run.add_argument("--fresh", action="store_true", help="forget what this plan has measured and begin anew")
    run.add_argument("--dry-run", action="store_true", help="only say what would run and how long it would take")
    show = commands.add_parser("report", help="write the report from what is measured")
    show.add_argument("--into", metavar="FOLDER", type=Path, help="default: .lab/report")
    show.add_argument("--sample", action="store_true", help="into docs/lab, as the project's sample report")
    show.add_argument("--note", metavar="TEXT", help="how it was measured, shown at the top of the report")
    for command in (run, show):
        plans = command.add_mutually_exclusive_group()
        plans.add_argument("--quick", dest="plan", action="store_const", const="quick", help="the plan 'quick'")
        plans.add_argument("--full", dest="plan", action="store_const", const="full", help="as published; takes hours")
        plans.add_argument("--plan", dest="plan", metavar="NAME|FILE", help="another plan, in YAML")
        command.add_argument("--results", metavar="FILE", type=Path, help="default: .lab/PLAN.jsonl")
        command.set_defaults(plan=None)
    commands.add_parser("list", help="experiments and targets")
    return parser.parse_args(words)


def list_everything():
    for name, experiment in experiments.known().items():
        print(f"{name:24} {experiment.title}")
    print()
    for name, (kind, options) in targets.known().items():
        shown = ", ".join(f"{option} {value}" for option, value in options.items())
        print(f"{name:24} {kind.title}{': ' + shown if shown else ''}")


def run(options):
    if not options.experiments and not options.all:
        raise PlanError("which experiments? For example: ./dev lab run E3 --quick, or --all")
    plan = load(options.plan or "quick")
    chosen = options.targets.split(",") if options.targets else None
    for name in chosen or []:
        targets.lookup(name)
    plan = plan.restricted(None if options.all else options.experiments, chosen, options.rounds)
    path = options.results or RESULTS_FOLDER / f"{plan.name}.jsonl"
    if options.dry_run:
        pending = runner.pending_steps(plan, results.Results(path))
        print(f"{len(pending)} steps, about {runner.duration(runner.estimate_s(pending))}")
        return 0
    if options.fresh:
        path.unlink(missing_ok=True)
    failed = runner.run(plan, results.Results(path), sys.argv[1:])
    print(f"results: {path}", file=sys.stderr)
    if failed:
        print(f"{failed} steps failed; run again to repeat them", file=sys.stderr)
    return 1 if failed else 0


def show(options):
    plan_name = options.plan or "quick"
    plan = load(plan_name)
    path = options.results or RESULTS_FOLDER / f"{plan.name}.jsonl"
    kept = results.Results(path)
    if not kept.sessions():
        raise PlanError(f"nothing is measured in {path}: ./dev lab run --all --{plan.name}")
    folder = SAMPLE_FOLDER if options.sample else options.into or path.parent / "report"
    for written in report.write(kept, folder, options.note):
        print(written)
    return 0


def main():
    options = arguments(sys.argv[1:])
    # A stop by signal takes the targets down like any other end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if options.command == "list":
            list_everything()
            return 0
        return run(options) if options.command == "run" else show(options)
    except (PlanError, KeyError, ValueError) as error:
        sys.exit(f"lab: {error.args[0]}")
    except KeyboardInterrupt:
        sys.exit("lab: stopped; the same command goes on from here")


if __name__ == "__main__":
    sys.exit(main())
