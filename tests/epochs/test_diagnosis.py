"""The rules: each names its cause where the evidence is there, and says nothing just below its threshold."""

from dataclasses import fields, replace
from typing import Any

import pytest

from oneop.epochs import Compilation, ContextTensor, Denormals, Diagnosis, Epoch, OperatorTime, Place
from oneop.epochs.diagnosis import LIMITS, Case, diagnose, keeps_graphs, verdict
from oneop.epochs.holders import Holder

MB = 1 << 20
PLAIN = Epoch(
    number=1,
    steps=100,
    watched_steps=100,
    backwards=100,
    complete=True,
    seconds=1.0,
    between=0.0,
    data=0.1,
    first_wait=0.01,
    long_waits=0.0,
    forward=0.3,
    backward=0.4,
    optimizer=0.1,
    other=0.1,
    watching=0.0,
    first_step=0.01,
    median_step=0.01,
    processor=1.0,
    forward_is_measured=True,
    operators=(),
    live_tensors=None,
    live_bytes=None,
    kept_graphs=1,
    kept_of_epoch=1,
    graph_nodes=50,
    autograd_nodes=0,
    retained_backwards=0,
    context_tensors=(),
    hooks=0,
    resident_bytes=500 * MB,
    available_bytes=8000 * MB,
    disk_bytes=0,
    requested_bytes=0,
    major_faults=0,
    process_swap_bytes=0,
    system_swap_bytes=0,
    refaulted_bytes=0,
    denormals=Denormals(0.0, 0.0, None),
    collector=0.0,
    collections=(1, 0, 0),
    threads=4,
    compilations=(),
    compiling=0.0,
    built_operators=(),
)


def course(count: int = 6, **values: Any) -> tuple[Epoch, ...]:
    """Epochs; a value that is a list has one entry an epoch, and its last one goes on."""
    epochs = []
    for index in range(count):
        given = {k: v[min(index, len(v) - 1)] if isinstance(v, list) else v for k, v in values.items()}
        epochs.append(replace(PLAIN, number=index + 1, **given))
    return tuple(epochs)


def the_one(found: tuple[Diagnosis, ...], kind: str, severity: str = "problem") -> Diagnosis:
    assert [(item.kind, item.severity) for item in found] == [(kind, severity)], found
    assert found[0].evidence
    assert found[0].remedy
    return found[0]


def test_a_healthy_training_has_no_diagnosis() -> None:
    epochs = course()
    assert diagnose(Case(epochs)) == ()
    assert (
        verdict(epochs, ())
        == "Healthy: epochs 2 to 6 took 1 s. At the end 1 graph alive, 0 hooks more than in the beginning, +0 B of"
        " memory"
        " since epoch 2."
    )


def test_one_epoch_is_too_few() -> None:
    epochs = course(1, hooks=100)
    assert diagnose(Case(epochs)) == ()
    assert verdict(epochs, ()) == "1 epoch recorded: too few to tell. A diagnosis compares two epochs or more."


def test_unknown_figures_are_no_evidence() -> None:
    unknown = {item.name: None for item in fields(Epoch) if "None" in str(item.type)}
    assert diagnose(Case(course(**unknown))) == ()


def test_warm_up() -> None:
    found = the_one(diagnose(Case(course(seconds=[2.0, 1.0], first_step=[1.01, 0.01]))), "warm-up", "note")
    assert found.evidence == (
        (
            "a step of epoch 1 took 20 ms on average, one of the later epochs 10 ms (threshold: 1.25 times); 1 s more"
            " in all"
        ),
        "its first step took 1.01 s, the median 10 ms",
    )
    assert diagnose(Case(course(seconds=[1.2, 1.0], first_step=[0.21, 0.01]))) == ()


def test_compilation_in_the_first_epoch() -> None:
    compilation = Compilation("forward", "net.py", 3, 1.5)
    values: dict[str, Any] = {"seconds": [3.0, 1.0], "first_step": [2.0, 0.01]}
    found = the_one(
        diagnose(Case(course(compilations=[(compilation,), ()], compiling=[1.5, 0.0], **values))), "compilation", "note"
    )
    assert found.summary == "The first epoch compiled forward with torch.compile."
    assert found.evidence[1] == "1 compilation took 1.5 s of it"
    found = the_one(diagnose(Case(course(built_operators=[("demo::add",), ()], **values))), "compilation", "note")
    assert found.summary == "The first epoch built or loaded the kernels of demo::add."


def test_disk_first() -> None:
    values: dict[str, Any] = {"requested_bytes": 100 * MB, "data": [0.4, 0.1]}
    found = the_one(diagnose(Case(course(disk_bytes=[90 * MB, 0], **values))), "disk", "note")
    assert found.evidence[0].startswith("94.4 MB of the 105 MB that were read came from disk in epoch 1, 0 B of 105 MB")
    assert diagnose(Case(course(disk_bytes=[7 * MB, 0], **values))) == ()
    assert diagnose(Case(course(disk_bytes=[90 * MB, 0], requested_bytes=100 * MB, data=0.1))) == ()


def test_disk_in_every_epoch() -> None:
    found = the_one(diagnose(Case(course(disk_bytes=90 * MB, data=0.35))), "disk")
    assert found.summary.startswith("Every epoch reads its data from disk again")
    assert diagnose(Case(course(disk_bytes=90 * MB, data=0.1))) == ()


def test_graphs_that_are_kept() -> None:
    place = Place("losses", "the variable `losses` of main()", "train.py", 7, "losses.append(loss)")
    case = Case(
        course(kept_graphs=[100, 200, 300, 400, 500, 600], kept_of_epoch=100),
        holders=lambda: (Holder(place, 600, 600),),
    )
    found = the_one(diagnose(case), "graph")
    assert (
        found.summary
        == "Autograd graphs are kept alive by the variable `losses` of main(), a collection of 600 tensors."
    )
    assert found.places == (place,)
    assert keeps_graphs(case.epochs)
    below = course(kept_graphs=24, kept_of_epoch=24)
    assert diagnose(Case(below)) == ()
    assert not keeps_graphs(below)
    # One epoch that keeps nothing: what was kept is freed.
    assert diagnose(Case(course(kept_graphs=[100, 1], kept_of_epoch=[100, 1]))) == ()


def test_graphs_that_are_kept_of_few_steps() -> None:
    """A short epoch has few watched steps, and a loop may well hold the last of them, or the last two."""
    few = [5, 3, 4, 3, 3, 3]
    total = [5, 8, 12, 15, 18, 21]
    found = the_one(diagnose(Case(course(watched_steps=few, kept_of_epoch=few, kept_graphs=total))), "graph")
    assert "and they add up" in found.evidence[0]
    half = course(watched_steps=4, kept_of_epoch=2, kept_graphs=[2, 4, 6, 8, 10, 12])
    assert the_one(diagnose(Case(half)), "graph")
    freed = the_one(diagnose(Case(course(watched_steps=3, kept_of_epoch=3, kept_graphs=3))), "graph")
    assert "and they are freed when the next epoch begins or later" in freed.evidence[0]
    for watched, kept in ((3, 2), (4, 2), (2, 2), (1, 1), (4, 3)):
        held = course(watched_steps=watched, kept_of_epoch=kept, kept_graphs=kept)
        assert diagnose(Case(held)) == (), (watched, kept)


def test_graphs_whose_holder_is_not_found() -> None:
    found = the_one(diagnose(Case(course(kept_graphs=100, kept_of_epoch=100))), "graph")
    assert found.summary.endswith("what holds them could not be found: it may be an extension, or be gone by now.")


def test_parts_of_graphs() -> None:
    the_one(diagnose(Case(course(autograd_nodes=[500, 1000, 1500, 2000, 2500, 3000]))), "graph")
    assert diagnose(Case(course(autograd_nodes=240))) == ()


def test_a_growing_graph() -> None:
    the_one(diagnose(Case(course(graph_nodes=[50, 60, 70, 80, 90, 100]))), "graph")
    assert diagnose(Case(course(graph_nodes=[50, 60, 70, 70, 90, 100]))) == ()


def test_hooks() -> None:
    place = Place("spy", "a hook on module `fc` (Linear)", "net.py", 3, "self.fc.register_forward_hook(spy)", "fc")
    case = Case(course(hooks=[1, 2, 3, 4, 5, 6]), grown_hook=lambda: ("`_forward_hooks` of `fc`", place))
    found = the_one(diagnose(case), "hooks")
    assert found.summary == "Hooks are registered again and again: a hook on module `fc` (Linear)."
    assert diagnose(Case(course(hooks=[1, 2, 3, 3, 4, 5]))) == ()


@pytest.mark.parametrize("outlives", [True, False])
def test_ctx(outlives: bool) -> None:
    kept = ContextTensor("Exp", "y", "exp.py", 4, "ctx.y = y", 4096, is_output=True, outlives_step=outlives)
    found = diagnose(Case(course(context_tensors=(kept,), autograd_nodes=500 if outlives else 0)))
    if outlives:
        assert the_one(found, "ctx").summary == "Tensors are kept on ctx: Exp: ctx.y."
    else:
        assert found == ()


def test_denormals_are_a_problem_where_they_cost_time() -> None:
    epochs = course(denormals=[Denormals(0.0, 0.0, None), Denormals(0.3, 0.0, None)])
    slow = the_one(diagnose(Case(epochs, penalty=lambda group: {"mul": 12.0})), "denormals")
    assert slow.summary == "30% of the parameters are denormal numbers."
    free = the_one(diagnose(Case(epochs, penalty=lambda group: {"mul": 1.1})), "denormals", "note")
    assert free.summary == "30% of the parameters are denormal numbers, which cost nothing on this machine."
    assert diagnose(Case(course(denormals=Denormals(0.009, 0.009, 0.009)), penalty=lambda group: {"mul": 12.0})) == ()


def test_recompilation() -> None:
    again = Compilation("forward", "net.py", 3, 0.2, "self.epoch == 1")
    found = the_one(diagnose(Case(course(compilations=(again,), compiling=0.2))), "recompilation")
    assert "what had changed: self.epoch == 1" in found.evidence
    # A size that changes once, and is compiled as one that may change.
    assert diagnose(Case(course(compilations=[(again,), (again,), ()], compiling=[0.2, 0.2, 0.0]))) == ()


def test_memory_pressure_needs_swapping_and_faults() -> None:
    found = the_one(diagnose(Case(course(system_swap_bytes=[0, 64 * MB], major_faults=[0, 2000]))), "memory")
    assert found.summary == "The machine runs out of memory and swaps."
    assert diagnose(Case(course(system_swap_bytes=64 * MB, major_faults=100))) == ()  # others swap
    assert diagnose(Case(course(system_swap_bytes=MB, major_faults=2000))) == ()  # a file is mapped


def test_memory_pressure_without_swap_takes_pages_out_of_memory() -> None:
    found = the_one(diagnose(Case(course(refaulted_bytes=[0, 64 * MB], major_faults=[0, 2000]))), "memory")
    assert found.summary.startswith("The machine runs out of memory: pages of mapped files are taken out of it")
    assert diagnose(Case(course(refaulted_bytes=64 * MB, major_faults=100))) == ()  # others run out
    assert diagnose(Case(course(refaulted_bytes=MB, major_faults=2000))) == ()  # a file is mapped, read for once


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_a_loader_that_starves(workers: int) -> None:
    long = 0.5 / max(workers, 1)
    found = the_one(diagnose(Case(course(data=0.55, long_waits=long), workers=workers)), "loader")
    said = {0: "it is loaded in between.", 1: "the worker delivers too slowly.", 4: "4 workers deliver too slowly."}
    assert found.summary == f"The training waits for its data: {said[workers]}"
    assert diagnose(Case(course(data=0.35, long_waits=1.0), workers=workers)) == ()
    assert diagnose(Case(course(data=0.55, long_waits=long - 0.01), workers=workers)) == ()
    quick = course(data=0.55, steps=1000, watched_steps=1000, long_waits=1.0)
    assert diagnose(Case(quick, workers=workers)) == ()


def test_workers_that_are_started_for_each_epoch() -> None:
    epochs = course(data=0.5, first_wait=0.45)
    found = the_one(diagnose(Case(epochs, workers=2)), "loader")
    assert found.summary == "Every epoch waits for its first batch, while workers are started."
    assert diagnose(Case(epochs, workers=0)) == ()


def test_the_garbage_collector() -> None:
    the_one(diagnose(Case(course(collector=0.15, collections=(50, 5, 2)))), "gc")
    assert diagnose(Case(course(collector=0.09, collections=(50, 5, 2)))) == ()
    assert diagnose(Case(course(collector=0.15, collections=(50, 5, 0)))) == ()
    often = the_one(diagnose(Case(course(collector=0.15, collections=(400, 5, 0)))), "gc")
    assert often.evidence[-1] == "collections of young objects in a step: 4 (threshold: 2)"


def test_memory_that_grows_is_a_note() -> None:
    growing = [500 * MB + number * 20 * MB for number in range(6)]
    the_one(diagnose(Case(course(resident_bytes=growing))), "memory-growth", "note")
    assert diagnose(Case(course(resident_bytes=[*growing[:4], growing[4] - 13 * MB, growing[4] - 13 * MB]))) == ()


def test_epochs_that_become_slower_for_no_known_reason() -> None:
    times = [1.0, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    forward = [value - 0.7 for value in times]
    operators = [(OperatorTime("aten::mm", 4, 0.001 * number),) for number in range(7)]
    values: dict[str, Any] = {"seconds": times, "forward": forward, "operators": operators}
    found = the_one(diagnose(Case(course(7, processor=times, **values))), "slower")
    assert found.summary == "Epochs become slower, most of all in forward; no known cause shows."
    assert found.evidence[2] == "aten::mm took 1 ms in a sampled step, and 6 ms later"
    # Not in processor time: the machine is busy with something else.
    assert diagnose(Case(course(7, processor=1.0, **values))) == ()
    noisy = [1.0, 1.0, 1.8, 1.2, 1.6, 1.1, 1.9]
    assert diagnose(Case(course(7, seconds=noisy, processor=noisy))) == ()
    # One epoch, the last, that something else disturbed, by chance in order: these were measured.
    wall, processor = [0.5, 0.347, 0.358, 0.361, 0.370, 0.551], [0.5, 0.347, 0.357, 0.362, 0.371, 0.474]
    assert diagnose(Case(course(6, seconds=wall, processor=processor))) == ()


def test_epochs_of_different_lengths_are_compared_by_step() -> None:
    assert diagnose(Case(course(seconds=[1.0, 5.0], steps=[100, 500], backwards=[100, 500]))) == ()


def test_iterations_without_training_are_left_out() -> None:
    assert diagnose(Case(course(backwards=[100, 0, 100, 0, 100, 0], seconds=[1.0, 0.2, 1.0, 0.2, 1.0, 0.2]))) == ()


def test_problems_come_first() -> None:
    found = diagnose(Case(course(seconds=[2.0, 1.0], first_step=[1.01, 0.01], hooks=[1, 2, 3, 4, 5, 6])))
    assert [item.kind for item in found] == ["hooks", "warm-up"]
    assert verdict(course(), found) == "1 problem found: hooks."


def test_the_thresholds_that_the_documents_name() -> None:
    assert (LIMITS.slow_first, LIMITS.denormals, LIMITS.waiting, LIMITS.collector) == (1.25, 0.01, 0.4, 0.1)
