"""From the records of all epochs to causes, each with its evidence and its threshold. Pure: numbers in, words out.

One function a cause. None of them goes by one number: each needs two that belong together, or one over several epochs.
"""

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from oneop.epochs import words
from oneop.epochs.holders import Holder
from oneop.epochs.records import LONG_WAIT, Denormals, Diagnosis, Epoch, Place


@dataclass(frozen=True)
class Limits:
    """The thresholds of all rules. Shares are from 0 to 1, times in seconds, sizes in bytes."""

    slow_first: float = 1.25
    """The first epoch is slow if a step takes this many times the median of later ones,"""
    slow_first_seconds: float = 0.1
    """and the epoch so much longer."""
    explains: float = 0.3
    """A cause explains a slow first epoch if it accounts for this share of the excess."""
    disk_bytes: int = 8 << 20
    """Less than this from disk in an epoch is nothing."""
    disk_slows: float = 1.2
    """Reading from disk matters if loading takes this many times as long as from memory,"""
    disk_share: float = 0.2
    """and, where it happens in every epoch, if loading takes this share of it."""
    kept_share: float = 0.25
    """Graphs are kept if this share of an epoch's watched steps, and 2 at least, is alive after each epoch:"""
    kept_graphs: int = 4
    """as many as this, or all of three or more, or more after every epoch. A loop may well hold its last two steps."""
    nodes_share: float = 0.05
    """Parts of graphs are kept if this share of a sampled step's nodes is alive after its epoch."""
    denormals: float = 0.01
    """This share of denormals is worth a word."""
    denormals_cost: float = 1.5
    """They are a problem where an operation takes this many times as long on them here."""
    collector: float = 0.1
    """The garbage collector takes too long with this share of an epoch,"""
    collections: float = 2.0
    """and with a collection over all objects in it, or this many over young ones in a step."""
    swapped: int = 32 << 20
    """Less than this swapped by the machine in an epoch, or taken out of memory and read again, is nothing,"""
    faults: int = 256
    """and so are fewer pages of this process that had to be read back."""
    waiting: float = 0.4
    """The loader starves the training with this share of an epoch spent waiting,"""
    waiting_seconds: float = LONG_WAIT
    """and this time a step, which half of the steps wait themselves (with several workers every so many)."""
    starting: float = 0.3
    """Starting workers is too slow with this share of an epoch,"""
    starting_seconds: float = 0.05
    slower: float = 1.3
    """Epochs become slower if each of the last third takes this many times the first third, by both clocks,"""
    order: float = 0.8
    """and their order in time is, by Kendall's tau, this close to their order by processor time."""
    memory_share: float = 0.01
    """Memory grows if each of the last epochs adds this share to it, and ``memory_bytes`` at least."""
    memory_bytes: int = 8 << 20


LIMITS = Limits()


@dataclass(frozen=True)
class Case:
    """Everything a diagnosis may go by. The functions look closer, at what is alive now, and are called if needed."""

    epochs: tuple[Epoch, ...]
    workers: int = 0
    persistent_workers: bool = False
    holders: Callable[[], tuple[Holder, ...]] = tuple
    grown_hook: Callable[[], tuple[str, Place | None]] = lambda: ("", None)
    penalty: Callable[[str], dict[str, float]] = field(default=lambda group: {})

    @property
    def later(self) -> tuple[Epoch, ...]:
        return self.epochs[1:]


def diagnose(case: Case) -> tuple[Diagnosis, ...]:
    """The causes that were found: problems first. Needs two epochs; the first shows the warm-up only."""
    case = _trained(case)
    if len(case.epochs) < 2:
        return ()
    found = [diagnosis for rule in RULES for diagnosis in rule(case)]
    if not any(diagnosis.severity == "problem" for diagnosis in found):
        found += _slower(case)
    return tuple(sorted(found, key=lambda diagnosis: diagnosis.severity != "problem"))


def keeps_graphs(epochs: Sequence[Epoch]) -> bool:
    """Whether graphs were alive after every epoch so far: what holds them is worth looking for."""
    case = _trained(Case(tuple(epochs)))
    return len(case.epochs) > 1 and bool(_graphs_are_kept(case) or _parts_are_kept(case) or _graphs_grow(case))


def verdict(epochs: Sequence[Epoch], diagnoses: Sequence[Diagnosis]) -> str:
    """One sentence: how the training fares."""
    if len(epochs) < 2:
        return (
            f"{words.count(len(epochs), 'epoch')} recorded: too few to tell. A diagnosis compares two epochs or more."
        )
    problems = [diagnosis for diagnosis in diagnoses if diagnosis.severity == "problem"]
    if problems:
        return f"{words.count(len(problems), 'problem')} found: {', '.join(item.kind for item in problems)}."
    later = [epoch.seconds for epoch in epochs[1:]]
    span = words.seconds(min(later))
    if max(later) > 1.05 * min(later):
        span += f" to {words.seconds(max(later))}"
    which = f"epochs 2 to {len(epochs)}" if len(epochs) > 2 else "epoch 2"
    kept, hooks = epochs[-1].kept_graphs, epochs[-1].hooks - epochs[0].hooks
    grown = epochs[-1].resident_bytes - epochs[min(1, len(epochs) - 1)].resident_bytes
    return (
        f"Healthy: {which} took {span}. At the end {words.count(kept, 'graph')} alive, {words.count(hooks, 'hook')}"
        f" more than in the beginning, {words.signed_size(grown)} of memory since epoch 2."
    )


def _trained(case: Case) -> Case:
    """Without iterations in which nothing was trained: validation, or a loader that was looked at."""
    trained = tuple(epoch for epoch in case.epochs if epoch.backwards) or case.epochs
    return replace(case, epochs=tuple(epoch for epoch in trained if epoch.steps))


def _first(case: Case) -> Iterable[Diagnosis]:
    """A slow first epoch: compilation, or warming up."""
    if len(case.epochs) < 3:
        return
    first, usual = case.epochs[0], statistics.median(epoch.per_step for epoch in case.later)
    excess = (first.per_step - usual) * first.steps
    if first.per_step < LIMITS.slow_first * usual or excess < LIMITS.slow_first_seconds:
        return
    slow = (
        f"a step of epoch 1 took {words.seconds(first.per_step)} on average, one of the later epochs"
        f" {words.seconds(usual)} (threshold: {LIMITS.slow_first:g} times); {words.seconds(excess)} more in all"
    )
    step_excess = first.first_step - first.median_step
    compiling = first.compiling - statistics.median(epoch.compiling for epoch in case.later)
    if first.built_operators and step_excess >= LIMITS.explains * excess:
        yield Diagnosis(
            "compilation",
            "note",
            f"The first epoch built or loaded the kernels of {', '.join(first.built_operators)}.",
            (
                slow,
                f"its first step took {words.seconds(first.first_step)}, the median {words.seconds(first.median_step)}",
            ),
            "Nothing to do: kernels are cached, for later runs too.",
        )
    elif compiling >= LIMITS.explains * excess:
        named = ", ".join(dict.fromkeys(item.function for item in first.compilations if item.function))
        yield Diagnosis(
            "compilation",
            "note",
            f"The first epoch compiled{f' {named}' if named else ''} with torch.compile.",
            (
                slow,
                f"{words.count(len(first.compilations), 'compilation')} took {words.seconds(first.compiling)} of it",
            ),
            "Nothing to do: later epochs use what was compiled.",
            tuple(
                Place(item.function, f"{item.function}(), compiled", item.file, item.line)
                for item in first.compilations[:3]
                if item.file
            ),
        )
    elif step_excess >= LIMITS.explains * excess:
        yield Diagnosis(
            "warm-up",
            "note",
            "The first epoch warmed up: libraries, caches and memory are set up in its first step.",
            (
                slow,
                f"its first step took {words.seconds(first.first_step)}, the median {words.seconds(first.median_step)}",
            ),
            "Nothing to do: later epochs do not pay for it.",
        )


def _disk(case: Case) -> Iterable[Diagnosis]:
    """Data read from disk: in the first epoch, or in every one."""
    if any(epoch.disk_bytes is None for epoch in case.epochs):
        return
    read = [epoch.disk_bytes or 0 for epoch in case.epochs]
    loading = [epoch.data / epoch.steps for epoch in case.epochs]
    usual, after = statistics.median(loading[1:]), statistics.median(read[1:])
    asked = [words.size(epoch.requested_bytes or 0) for epoch in case.epochs]
    if read[0] >= LIMITS.disk_bytes and after <= read[0] / 10 and loading[0] >= LIMITS.disk_slows * usual:
        yield Diagnosis(
            "disk",
            "note",
            "The first epoch read its data from disk, later epochs from memory (the page cache).",
            (
                (
                    f"{words.size(read[0])} of the {asked[0]} that were read came from disk in epoch 1,"
                    f" {words.size(after)} of {asked[-1]} in a later one (threshold: {words.size(LIMITS.disk_bytes)},"
                    " then a tenth)"
                ),
                (
                    f"loading took {words.seconds(loading[0])} a step in epoch 1, {words.seconds(usual)} later"
                    f" (threshold: {LIMITS.disk_slows:g} times)"
                ),
            ),
            "Nothing to do, as long as the data fits in memory. To time epochs fairly, leave the first out.",
        )
    share = statistics.median(epoch.data / epoch.seconds for epoch in case.later)
    if min(read[1:]) >= max(LIMITS.disk_bytes, read[0] / 2) and share >= LIMITS.disk_share:
        yield Diagnosis(
            "disk",
            "problem",
            "Every epoch reads its data from disk again: it does not stay in memory (the page cache).",
            (
                (
                    f"from disk: {', '.join(words.size(each) for each in read)} (threshold:"
                    f" {words.size(LIMITS.disk_bytes)} and half of epoch 1)"
                ),
                f"loading takes {share:.0%} of an epoch (threshold: {LIMITS.disk_share:.0%})",
                f"{words.size(case.epochs[-1].available_bytes)} of memory are available",
            ),
            "Make the data smaller (a smaller dtype, decoded once, compressed), give the machine more memory, or read"
            " it in the order in which it is stored.",
        )


def _graph(case: Case) -> Iterable[Diagnosis]:
    """Graphs that stay alive after their step, or that grow."""
    grows = _graphs_grow(case)
    kept = _graphs_are_kept(case)
    parts = _parts_are_kept(case)
    if not (grows or kept or parts):
        return
    holders = case.holders()
    contexts = [item for epoch in case.epochs for item in epoch.context_tensors if item.outlives_step]
    if parts and not (grows or kept or holders) and contexts:
        return  # what is kept on ctx explains it
    last = case.epochs[-1]
    evidence = [item for item in (kept, grows, parts) if item]
    if last.retained_backwards:
        evidence.append(
            f"backward(retain_graph=True) was called {last.retained_backwards} times in the"
            f" {words.count(last.watched_steps, 'watched step')} of the last epoch"
        )
    if contexts:
        total = {(item.function, item.attribute): item for item in contexts}
        named = ", ".join(f"{function}: ctx.{attribute}" for function, attribute in total)
        evidence.append(f"with the graphs stay the tensors on ctx: {named}")
    evidence += [
        f"when it was looked at, {holder.place.owner} held {words.count(holder.tensors, 'tensor')} with a graph, of"
        f" {holder.steps} of the watched steps (threshold: 2, and 3 of one of them)"
        for holder in holders
    ]
    yield Diagnosis(
        "graph",
        "problem",
        f"Autograd graphs are kept alive{_by(holders)}.",
        tuple(evidence),
        "Keep numbers, not tensors with a graph: loss.item(), or tensor.detach(), before it is added, appended or"
        " stored.",
        tuple(holder.place for holder in holders),
    )


def _by(holders: Sequence[Holder]) -> str:
    if not holders:
        return "; what holds them could not be found: it may be an extension, or be gone by now"
    first = holders[0]
    what = f"a collection of {first.tensors} tensors" if first.tensors > 1 else "an undetached value"
    return f" by {first.place.owner}, {what}"


def _graphs_are_kept(case: Case) -> str:
    own = [epoch.kept_of_epoch for epoch in case.epochs]
    total = [epoch.kept_graphs for epoch in case.epochs]
    watched = [epoch.watched_steps for epoch in case.epochs]
    needed = [max(2, LIMITS.kept_share * count) for count in watched]
    if not all(count >= need for count, need in zip(own, needed, strict=True)):
        return ""
    added = len(total) > 1 and all(
        after - before >= need for before, after, need in zip(total, total[1:], needed[1:], strict=False)
    )
    all_of_them = all(count >= steps >= 3 for count, steps in zip(own, watched, strict=True))
    if not added and not all_of_them and min(own) < LIMITS.kept_graphs:
        return ""
    fate = "and they add up" if added else "and they are freed when the next epoch begins or later"
    return (
        f"graphs alive at the end of each epoch: {words.listed(total)}, of {words.listed(watched)} watched steps"
        f" (threshold: {LIMITS.kept_share:.0%} of them in every epoch), {fate}"
    )


def _graphs_grow(case: Case) -> str:
    sizes = [epoch.graph_nodes for epoch in case.epochs if epoch.graph_nodes]
    if len(sizes) >= 3 and all(a < b for a, b in itertools.pairwise(sizes)) and sizes[-1] >= 1.5 * sizes[0]:
        return (
            f"the graph of one loss grows: {words.listed(sizes)} nodes in a sampled step of each epoch (threshold: more"
            " in every epoch, 1.5 times in all)"
        )
    return ""


def _parts_are_kept(case: Case) -> str:
    alive = [epoch.autograd_nodes for epoch in case.epochs]
    sizes = [epoch.graph_nodes or 0 for epoch in case.epochs]
    needed = [LIMITS.nodes_share * size * epoch.steps for size, epoch in zip(sizes, case.epochs, strict=True)]
    if all(count >= need > 0 for count, need in zip(alive, needed, strict=True)):
        return (
            f"autograd nodes alive at the end of each epoch: about {words.listed(alive)} (threshold:"
            f" {LIMITS.nodes_share:.0%} of those of all steps in every epoch)"
        )
    return ""


def _hooks(case: Case) -> Iterable[Diagnosis]:
    """Hooks that are registered again and again."""
    counts = [epoch.hooks for epoch in case.epochs]
    grown = counts[-1] - counts[0]
    if not all(a < b for a, b in itertools.pairwise(counts)) or (len(counts) < 3 and grown < 4):
        return
    kind, place = case.grown_hook()
    yield Diagnosis(
        "hooks",
        "problem",
        f"Hooks are registered again and again{f': {place.owner}' if place else ''}.",
        (
            (
                f"hooks on the model, its parameters and the optimizer at the end of each epoch: {words.listed(counts)}"
                " (threshold: more after every epoch)"
            ),
            *((f"most of the new ones are in {kind}",) if kind else ()),
        ),
        "Register a hook once, outside forward, or remove it after use: handle = register_...; handle.remove().",
        (place,) if place else (),
    )


def _context(case: Case) -> Iterable[Diagnosis]:
    """Tensors kept on ctx that outlive their step."""
    seen: dict[tuple[str, str], list[int]] = {}
    places: dict[tuple[str, str], Place] = {}
    cycle = False
    for epoch in case.epochs:
        for item in epoch.context_tensors:
            if item.outlives_step:
                key = (item.function, item.attribute)
                seen.setdefault(key, []).append(item.bytes)
                owner = f"{item.function}: ctx.{item.attribute}"
                places[key] = Place(item.attribute, owner, item.file or None, item.line or None, item.code or None)
                cycle |= item.is_output
    if not seen:
        return
    why = (
        "an output on ctx makes a reference cycle, which only the garbage collector frees"
        if cycle
        else ("what is on ctx lives as long as the graph; what save_for_backward holds is freed by backward")
    )
    yield Diagnosis(
        "ctx",
        "problem",
        f"Tensors are kept on ctx: {', '.join(place.owner for place in places.values())}.",
        (
            *(
                f"{places[key].owner} ({words.size(max(sizes))}) was still there two steps later, in"
                f" {words.count(len(sizes), 'sampled epoch')} of {len(case.epochs)}"
                for key, sizes in seen.items()
            ),
            why,
        ),
        "Give tensors to ctx.save_for_backward(...) and take them from ctx.saved_tensors.",
        tuple(places.values()),
    )


def _denormals(case: Case) -> Iterable[Diagnosis]:
    """Denormal numbers, and what they cost on this machine."""
    shares = [epoch.denormals for epoch in case.epochs if epoch.denormals is not None]
    if not shares:
        return
    for group in ("parameters", "gradients", "optimizer state"):
        course = [_share_of(each, group) for each in shares]
        if course[-1] < LIMITS.denormals:
            continue
        costs = case.penalty(group)
        worst = max(costs.values(), default=1.0)
        measured = ", ".join(f"{name} {cost:.1f} times" for name, cost in costs.items())
        slow = worst >= LIMITS.denormals_cost
        yield Diagnosis(
            "denormals",
            "problem" if slow else "note",
            f"{course[-1]:.0%} of the {group} are denormal numbers"
            + ("." if slow else ", which cost nothing on this machine."),
            (
                (
                    f"share of denormals among sampled {group}: {', '.join(f'{share:.1%}' for share in course)}"
                    f" (threshold: {LIMITS.denormals:.0%})"
                ),
                (
                    f"measured here, denormals take, compared with ordinary numbers: {measured or 'not measured'}"
                    f" (threshold: {LIMITS.denormals_cost:g} times)"
                ),
            ),
            "torch.set_flush_denormal(True) treats them as zero; a weight decay or learning rate that lets numbers fade"
            " out, or a missing epsilon, is often where they come from.",
        )


def _share_of(denormals: Denormals, group: str) -> float:
    return getattr(denormals, group.replace(" ", "_")) or 0.0


def _recompilation(case: Case) -> Iterable[Diagnosis]:
    """Compilation that goes on after the first epochs."""
    again = [epoch for epoch in case.later if epoch.compilations]
    if len(again) < max(2, -(-min(len(case.later), 7) // 2)):
        return
    last = [item for epoch in again for item in epoch.compilations if item.function]
    reasons = list(dict.fromkeys(item.reason for item in last if item.reason))
    places = {
        (item.file, item.line): Place(item.function, f"{item.function}(), compiled again", item.file, item.line)
        for item in last
        if item.file
    }
    share = statistics.median(epoch.compiling / epoch.seconds for epoch in again)
    yield Diagnosis(
        "recompilation",
        "problem",
        f"torch.compile compiles again in later epochs{f': {last[-1].function}()' if last else ''}.",
        (
            (
                f"compilations in each epoch: {words.listed(len(epoch.compilations) for epoch in case.epochs)}"
                " (threshold: some in half of the later epochs)"
            ),
            f"compiling takes {share:.0%} of such an epoch",
            *(f"what had changed: {reason}" for reason in reasons[:3]),
        ),
        "Pass what changes as a tensor, or keep it out of the compiled function; mark sizes that change with"
        " torch._dynamo.mark_dynamic or compile with dynamic=True. After the limit of recompilations torch runs the"
        " function uncompiled.",
        tuple(places.values())[:3],
    )


def _memory(case: Case) -> Iterable[Diagnosis]:
    """Swapping, or pages that are taken out of memory and needed again; and pages of this process among them."""
    swapped = [epoch.system_swap_bytes or 0 for epoch in case.later]
    again = [epoch.refaulted_bytes or 0 for epoch in case.later]
    faults = [epoch.major_faults or 0 for epoch in case.later]
    swaps = _often(s >= LIMITS.swapped and f >= LIMITS.faults for s, f in zip(swapped, faults, strict=True))
    evicts = _often(r >= LIMITS.swapped and f >= LIMITS.faults for r, f in zip(again, faults, strict=True))
    if not (swaps or evicts):
        return
    last = case.epochs[-1]
    what, moved = ("swapped in and out", swapped) if swaps else ("taken out of memory and read again", again)
    yield Diagnosis(
        "memory",
        "problem",
        "The machine runs out of memory and swaps."
        if swaps
        else "The machine runs out of memory: pages of mapped files are taken out of it and read again.",
        (
            (
                f"{what} by the machine in each later epoch:"
                f" {', '.join(words.size(each) for each in moved)} (threshold: {words.size(LIMITS.swapped)})"
            ),
            f"pages of this process that had to be read back: {words.listed(faults)} (threshold: {LIMITS.faults})",
            f"this process has {words.size(last.resident_bytes)} in memory"
            + (f" and {words.size(last.process_swap_bytes)} in swap" if last.process_swap_bytes else "")
            + f"; {words.size(last.available_bytes)} are available",
        ),
        "Use smaller batches, fewer workers or less prefetching, make mapped files smaller, or close what else needs"
        " memory.",
    )


def _often(hits: Iterable[bool]) -> bool:
    """In half of the later epochs, and in one at least."""
    found = list(hits)
    return sum(found) >= max(1, len(found) / 2)


def _loader(case: Case) -> Iterable[Diagnosis]:
    """A training loop that waits for its data."""
    steady = [(epoch.data - epoch.first_wait, epoch) for epoch in case.later]
    share = statistics.median(max(wait, 0.0) / epoch.seconds for wait, epoch in steady)
    a_step = statistics.median(max(wait, 0.0) / max(epoch.steps - 1, 1) for wait, epoch in steady)
    work = statistics.median((epoch.forward + epoch.backward + epoch.optimizer) / epoch.steps for epoch in case.later)
    long = statistics.median(epoch.long_waits for epoch in case.later)
    often = 0.5 / max(case.workers, 1)
    if share >= LIMITS.waiting and a_step >= LIMITS.waiting_seconds and long >= often:
        who = f"{case.workers} workers deliver" if case.workers > 1 else "the worker delivers"
        yield Diagnosis(
            "loader",
            "problem",
            "The training waits for its data: "
            + (f"{who} too slowly." if case.workers else "it is loaded in between."),
            (
                (
                    f"waiting takes {share:.0%} of an epoch (threshold: {LIMITS.waiting:.0%}), without the first batch"
                    " of each"
                ),
                (
                    f"a step waits {words.seconds(a_step)} (threshold: {words.seconds(LIMITS.waiting_seconds)}) and"
                    f" computes {words.seconds(work)}"
                ),
                f"{long:.0%} of the steps wait {words.seconds(LONG_WAIT)} or more (threshold: {often:.0%})",
                f"the loader has {words.count(case.workers, 'worker')}",
            ),
            "Do less for each sample (decode once, cache, transform whole batches), or use more workers: DataLoader("
            "num_workers=..., persistent_workers=True, prefetch_factor=...).",
        )
    first = statistics.median(epoch.first_wait for epoch in case.later)
    first_share = statistics.median(epoch.first_wait / epoch.seconds for epoch in case.later)
    if case.workers and first_share >= LIMITS.starting and first >= LIMITS.starting_seconds:
        yield Diagnosis(
            "loader",
            "problem",
            "Every epoch waits for its first batch"
            + ("." if case.persistent_workers else ", while workers are started."),
            (
                (
                    f"the first batch takes {words.seconds(first)} (threshold:"
                    f" {words.seconds(LIMITS.starting_seconds)}), {first_share:.0%} of an epoch (threshold:"
                    f" {LIMITS.starting:.0%})"
                ),
                f"the loader has {words.count(case.workers, 'worker')}"
                + (", which stay" if case.persistent_workers else ", started again for each epoch"),
            ),
            (
                "Keep the workers: DataLoader(persistent_workers=True)."
                if not case.persistent_workers
                else "Prefetch the first batches of the next epoch, or make a sample quicker to load."
            ),
        )


def _collector(case: Case) -> Iterable[Diagnosis]:
    """Much time in Python's garbage collector."""
    shares = [epoch.collector / epoch.seconds for epoch in case.later]
    full = [epoch.collections[2] for epoch in case.later]
    young = statistics.median(epoch.collections[0] / epoch.steps for epoch in case.later)
    often = young >= LIMITS.collections
    if statistics.median(shares) < LIMITS.collector or not (often or statistics.median(full) >= 1):
        return
    yield Diagnosis(
        "gc",
        "problem",
        "Python's garbage collector takes a large part of each epoch.",
        (
            (
                f"it takes {', '.join(f'{share:.0%}' for share in shares)} of the later epochs (threshold:"
                f" {LIMITS.collector:.0%})"
            ),
            f"collections over all objects in each: {words.listed(full)}",
            *(
                (f"collections of young objects in a step: {young:.0f} (threshold: {LIMITS.collections:g})",)
                if often
                else ()
            ),
        ),
        "Hold fewer small objects (arrays in place of lists of numbers), call gc.freeze() once all is loaded, raise"
        " gc.set_threshold(...), or call gc.disable() and gc.collect() once an epoch.",
    )


def _growing_memory(case: Case) -> Iterable[Diagnosis]:
    """Memory that never stops growing. Legitimate caches grow too, so that this is a note."""
    if len(case.epochs) < 4:
        return
    sizes = [epoch.resident_bytes for epoch in case.epochs][-4:]
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    if min(steps) < max(LIMITS.memory_bytes, LIMITS.memory_share * sizes[0]):
        return
    counted = [epoch.live_bytes for epoch in case.epochs if epoch.live_bytes is not None]
    yield Diagnosis(
        "memory-growth",
        "note",
        "Memory is still growing at the end.",
        (
            (
                f"resident memory after each of the last epochs: {', '.join(words.size(size) for size in sizes)}"
                f" (threshold: {words.size(LIMITS.memory_bytes)} and {LIMITS.memory_share:.0%} more each time)"
            ),
            *((f"in tensors: {', '.join(words.size(size) for size in counted)}",) if len(counted) > 1 else ()),
        ),
        "A cache that fills up looks like this, and so does a list that nobody empties: watch more epochs to tell.",
    )


def _slower(case: Case) -> Iterable[Diagnosis]:
    """Epochs that become slower for no reason that another rule knows."""
    later = case.later
    if len(later) < 5:
        return
    wall = [epoch.per_step for epoch in later]
    processor = [epoch.processor / epoch.steps for epoch in later]
    third = max(len(later) // 3, 2)  # one epoch alone may have been disturbed, and so may its processor time be

    def growth(values: Sequence[float]) -> float:
        return min(values[-third:]) / max(statistics.median(values[:third]), 1e-12)

    # What else the machine does disturbs the order of the wall's times, not that of the processor's.
    if min(growth(wall), growth(processor)) < LIMITS.slower or _tau(processor) < LIMITS.order:
        return
    phases = ("data", "forward", "backward", "optimizer", "other")
    where = max(
        phases,
        key=lambda phase: getattr(later[-1], phase) / later[-1].steps - getattr(later[0], phase) / later[0].steps,
    )
    yield Diagnosis(
        "slower",
        "problem",
        f"Epochs become slower, most of all in {'forward' if where == 'forward' else where}; no known cause shows.",
        (
            (
                f"a step takes {', '.join(words.seconds(each) for each in wall)} in epochs 2 to {len(case.epochs)}"
                f" (threshold: {LIMITS.slower:g} times from the first third to the last, also in processor time)"
            ),
            f"of the processor: {', '.join(words.seconds(each) for each in processor)}",
            *_grown_operators(later),
        ),
        "Look at what grows with the number of epochs: lists that are searched, caches, schedules, logging.",
    )


def _grown_operators(epochs: Sequence[Epoch]) -> Iterable[str]:
    sampled = [epoch for epoch in epochs if epoch.operators]
    if len(sampled) < 2:
        return
    before = {item.name: item.seconds for item in sampled[0].operators}
    growth = {item.name: item.seconds - before.get(item.name, 0.0) for item in sampled[-1].operators}
    for name in sorted(growth, key=lambda name: -growth[name])[:2]:
        if growth[name] > 0:
            after = before.get(name, 0.0) + growth[name]
            yield (
                f"{name} took {words.seconds(before.get(name, 0.0))} in a sampled step, and {words.seconds(after)}"
                " later"
            )


def _tau(values: Sequence[float]) -> float:
    """Kendall's rank correlation of the values with their order."""
    pairs = [(a, b) for index, a in enumerate(values) for b in values[index + 1 :]]
    return sum((b > a) - (b < a) for a, b in pairs) / len(pairs)


RULES: tuple[Callable[[Case], Iterable[Diagnosis]], ...] = (
    _graph,
    _hooks,
    _context,
    _recompilation,
    _memory,
    _loader,
    _denormals,
    _collector,
    _disk,
    _first,
    _growing_memory,
)
