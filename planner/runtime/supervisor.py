"""Carry out a hand-over, one journaled action after the other; the rules are in `moves.py`.

It rests only on the journal and on what it observes, so another supervisor can continue at any point.
"""

from __future__ import annotations

import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from libra_plan.errors import LaunchError
from libra_plan.planner.launchers.agents import Agent
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, Transition
from libra_plan.planner.runtime import checkpoints, gpus, host, moves, processes
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime.moves import Act, Action, Goal
from libra_plan.planner.runtime.settings import HandOverSettings
from libra_plan.planner.runtime.state import Process, after, state_of

__all__ = ["Supervisor"]

_POLL_S = 0.05
_SETTLE_S = 30.0  # far longer than a held process needs to see that its supervisor is gone


@dataclass
class Supervisor:
    """A hand-over in progress in the folder of a run, on one node, from the goal `old` to `new`."""

    journal: r.RunJournal
    folder: Path
    node: NodeEntry
    old: Goal
    new: Goal
    settings: HandOverSettings
    signals: list[int] = field(default_factory=list)
    since: dict[tuple[int, str, Act], float] = field(default_factory=dict)
    signalled: set[tuple[int, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.state = state_of(self.journal.entries)
        self.tell, self.clock = self.settings.notes, self.settings.boot_clock

    @property
    def went_back(self) -> bool:
        """Whether the last hand-over was called off."""
        last = self.journal.entries[-1].record
        return self.state.back or (isinstance(last, r.Finished) and last.back)

    @property
    def steps(self) -> tuple[Transition, ...]:
        """The steps of the present direction, or of the last one."""
        return [e.record for e in self.journal.entries if isinstance(e.record, r.Begun | r.Back)][-1].steps

    @property
    def goal(self) -> Goal:
        """What the open hand-over leads to."""
        return self.old if self.state.back else self.new

    def record(self, record: r.Record) -> None:
        """Write an entry to the journal, and update the state."""
        self.state = after(self.state, self.journal.append(record))

    def interrupt(self, number: int) -> None:
        """Remember a signal: the first calls the hand-over off, the second leaves it for later."""
        self.signals.append(number)

    def begin(self, target: Manifest | None, force: bool) -> None:
        """Begin a hand-over to a manifest, or to nothing."""
        self.settle()
        self.record(
            r.Begun(
                target=None if target is None else target.metadata.digest,
                generation=None if target is None else target.metadata.generation,
                steps=self.steps_to(self.new),
                force=force,
            )
        )

    def steps_to(self, goal: Goal) -> tuple[Transition, ...]:
        """List the steps from what is now to a goal."""
        return moves.steps_to(self.state, goal.wanted, self.live(), (*self.old.joint, *self.new.joint))

    def run(self) -> None:
        """Act until the hand-over is finished, or cannot be undone either."""
        self.settle()
        if self.state.failed and not self.state.back:
            self.go_back(next(iter(self.state.failed.values())))
        while self.state.open and not self.state.stuck:
            if len(self.signals) > 1:
                return
            if self.signals and not self.state.back:
                self.go_back(f"interrupted by {signal.Signals(self.signals[0]).name}")
            self.round()

    def round(self) -> None:
        """Take every action that is allowed now, once."""
        turn = self.state.turn
        actions = moves.next_actions(self.state, self.goal.wanted, self.live())
        if not actions:
            self.end()
            return
        acted = False
        for action in actions:
            acted |= self.act(action)
            if self.state.turn != turn:  # called off meanwhile
                return
        if not acted:
            time.sleep(_POLL_S)

    def end(self) -> None:
        """Close the hand-over when nothing is left to do."""
        if self.state.failed:
            self.record(r.Stuck(reason="; ".join(self.state.failed.values())))
        else:
            self.record(r.Finished(running=self.state.wanted, back=self.state.back))

    def settle(self) -> None:
        """Find out which roles run that were being started when the last supervisor ended."""
        until = self.clock() + _SETTLE_S
        while waiting := [one for one in self.state.processes if one.released_boot_s is None]:
            alive = processes.starts_of(self.state.launch_id)
            for one in waiting:
                if one.pid is None or one.start_time is None:
                    is_there = one.start in alive
                else:
                    is_there = processes.still_runs(one.pid, one.start_time)
                    if is_there and processes.has_become_its_role(one.pid):
                        self.record(r.Released(start=one.start))
                if not is_there:
                    self.record(r.Never(start=one.start))
            left = [one for one in self.state.processes if one.released_boot_s is None]
            if left and self.clock() > until:
                raise LaunchError(
                    "a role that the last supervisor was starting neither runs nor ends",
                    got=", ".join(f"{one.task}/{one.role}" for one in left),
                    way_out="see what has LIBRA_PLAN_START in its environment, and stop it",
                )
            if left:
                time.sleep(_POLL_S)

    def live(self) -> frozenset[int]:
        """List the starts whose recorded process runs."""
        return processes.live_starts(self.state.processes)

    # ------------------------------------------------------------ actions

    def act(self, action: Action) -> bool:
        """Take one action, and return whether it changed anything."""
        step, act = action.step, action.act
        key = (self.state.turn, step.id, act)
        if key not in self.since:
            self.since[key] = self.clock()
            if act is not Act.PASS:
                self.tell(f"{step.id}: {act.value}")
        waited_s = self.clock() - self.since[key]
        match act:
            case Act.ORDER:
                return self.order(action)
            case Act.AWAIT_SAVED:
                return self.await_saved(action, waited_s)
            case Act.STOP:
                self.record(r.Stopping(task=step.task))
                return True
            case Act.AWAIT_GONE:
                return self.await_gone(action, waited_s)
            case Act.START:
                return self.start(action)
            case Act.AWAIT_READY:
                return self.await_ready(action, waited_s)
            case Act.PASS:
                self.record(r.Through(step=step.id))
                return True

    def fail(self, action: Action, reason: str) -> bool:
        """Record that a step cannot be done; on the way there this calls the hand-over off."""
        told = f"{action.step.id}: {reason}"
        self.tell(f"{action.step.id}: failed")  # the reason is reported once, at the end
        self.withdraw(action.step.task)
        self.record(r.StepFailed(step=action.step.id, reason=told))
        if not self.state.back:
            self.go_back(told)
        return True

    def go_back(self, reason: str, force: bool | None = None) -> None:
        """Call the hand-over off: withdraw requests, and list the steps to what ran before."""
        force = self.state.force if force is None else force
        for task in tuple(self.state.turns):
            self.withdraw(task)
        steps = self.steps_to(self.old)
        self.record(r.Back(reason=reason, steps=steps, force=force))
        self.tell("going back")

    def withdraw(self, task: str) -> None:
        """Withdraw the request to save, unless the task is being stopped."""
        turn = self.state.stop_of(task)
        if turn.ordered is not None and not turn.stopping:
            checkpoints.withdraw(turn.ordered)
            self.record(r.Withdrawn(task=task))

    def order(self, action: Action) -> bool:
        """Request a checkpoint from the task."""
        task = action.step.task
        asked = self.state.leaving(task)[0]
        where = asked.lifecycle.checkpoint_dir
        if where is None and not self.state.force:
            return self.fail(action, "it trains and names no checkpoint_dir, so stopping it loses its work")
        if where is None:
            self.record(r.Saved(task=task, step=None, save_s=None))
            return True
        folder = Path(self.state.working_folder, where)
        before = checkpoints.newest(folder, asked.lifecycle)
        self.record(
            r.Ordered(
                task=task,
                request=f"{self.state.launch_id}-{len(self.journal.entries)}",
                generation=asked.generation,
                folder=str(folder),
                after_step=None if before is None else before.step,
            )
        )
        return True

    def await_saved(self, action: Action, waited_s: float) -> bool:
        """Check for the checkpoint that answers the request."""
        task = action.step.task
        order = self.state.stop_of(task).ordered
        assert order is not None
        unasked = checkpoints.write_request(order)
        leaving = self.state.leaving(task)
        knows = any("polls" in checkpoints.marks_of(Path(one.progress)) for one in leaving if one.trains)
        found = checkpoints.answer_to(order, leaving[0].lifecycle, knows_requests=knows)
        if found is not None:
            self.record(r.Saved(task=task, step=found.step, save_s=found.save_s))
            self.tell(f"{task}: step {found.step} is saved")
            return True
        limit = self.settings.checkpoint_wait_s
        limit = leaving[0].lifecycle.grace_s if limit is None else limit
        if waited_s < limit:
            return False
        if self.state.force:
            self.record(r.Saved(task=task, step=None, save_s=None))
            return True
        why = f" (it could not be asked: {unasked})" if unasked else ""
        return self.fail(action, f"no newer complete checkpoint in {order.folder} within {limit:g} s{why}")

    def await_gone(self, action: Action, waited_s: float) -> bool:
        """Stop the task, and wait until its processes and their GPU memory are gone."""
        task, state = action.step.task, self.state
        leaving = state.leaving(task)
        number = signal.Signals[leaving[0].lifecycle.stop_signal]
        if (state.turn, task) not in self.signalled:  # once by each supervisor: the last one may not have
            self.signalled.add((state.turn, task))
            agents = [(one.pid, one.start_time) for one in leaving if one.pid and one.start_time]
            processes.tell_to_stop(state.launch_id, task, agents, number)
        left = processes.marked_processes(state.launch_id, task)
        grace = leaving[0].lifecycle.grace_s
        if left and waited_s >= grace:
            if not state.force:
                named = ", ".join(str(process.pid) for process in left)
                return self.fail(action, f"pids {named} outlived the grace of {grace:g} s")
            if not state.stop_of(task).killing:
                self.record(r.Killing(task=task))
            processes.kill(state.launch_id, task)
        if left:
            return False
        return self.memory_returned(action, leaving)

    def memory_returned(self, action: Action, gone: tuple[Process, ...]) -> bool:
        """Check whether the GPUs of processes that are gone are free again."""
        key = (self.state.turn, f"memory of {action.step.id}", action.act)
        waited_s = self.clock() - self.since.setdefault(key, self.clock())
        shared = self.state.held_by({action.step.task}, others=True)  # busy until who shares it is gone, too
        held = {gpu for one in gone for gpu in one.gpus} - shared
        entries = tuple(gpu for gpu in self.node.gpus if f"{self.node.id}:{gpu.index}" in held)
        reports = self.settings.check_gpus(self.node.id, entries) if entries else ()
        busy = [report for report in reports if report.state is gpus.GpuUse.BUSY]
        if busy and waited_s < self.settings.memory_wait_s:
            return False
        if busy:
            reason = "; ".join(map(str, busy))
            return self.fail(action, f"the memory does not return: {reason}; nothing is started there")
        order = self.state.stop_of(action.step.task).ordered
        if order is not None:
            checkpoints.withdraw(order)
        unknown = any(report.state is gpus.GpuUse.UNKNOWN for report in reports) or len(reports) < len(
            entries
        )
        self.record(r.Gone(task=action.step.task, memory="unknown" if unknown else "free"))
        if unknown:
            self.tell(
                f"{action.step.task}: its processes are gone; nothing reads the memory of its GPUs here"
            )
        return True

    def start(self, action: Action) -> bool:
        """Start the roles of a task that do not run yet."""
        task = action.step.task
        started = {one.role for one in self.state.arriving(task)}
        agents = [
            agent for (of, role), agent in self.goal.agents.items() if of == task and role not in started
        ]
        try:
            self.check_room(task, agents)
            for agent in agents:
                self.start_role(agent)
        except LaunchError as problem:
            return self.fail(action, problem.message)
        return True

    def check_room(self, task: str, agents: list[Agent]) -> None:
        """Refuse to start where a GPU, a port or a program is not to be had."""
        partners = self.goal.partners(task)
        held = self.state.held_by(partners, others=True)
        taken = sorted(held & {f"{self.node.id}:{gpu}" for agent in agents for gpu in agent.gpus})
        if taken:
            raise LaunchError("GPUs are still held by another task", got=", ".join(taken))
        host.check_programs(agents, self.settings.inherited)
        host.check_ports_free(agents)
        gpus.check_gpus_free(
            self.node,
            agents,
            self.settings.check_gpus,
            allow_unknown=self.settings.allow_unknown_gpus,
            held=self.state.held_by(partners - {task}),
        )

    def start_role(self, agent: Agent) -> None:
        """Start one role: on record before it exists, and released when its process is on record."""
        intent = self.goal.intent_of(agent, self.folder, self.state.starts + 1)
        folder = self.state.working_folder
        self.record(intent)
        try:
            waiting = processes.start_role(
                agent, intent, self.state.launch_id, folder, self.settings.inherited
            )
        except (OSError, ValueError) as problem:  # ValueError: a word that no process can be given
            self.record(r.Never(start=intent.start))
            raise LaunchError(f"{agent.task}/{agent.role} cannot be started", got=problem) from None
        self.record(
            r.Started(
                start=intent.start,
                pid=waiting.pid,
                start_time=waiting.start_time,
                host=socket.gethostname(),
            )
        )
        waiting.release()
        self.record(r.Released(start=intent.start))
        self.tell(f"started: {agent.task}/{agent.role} (pid {waiting.pid}), log {intent.log}")

    def await_ready(self, action: Action, waited_s: float) -> bool:
        """Check whether the started roles work: warm where they report, else alive through the window."""
        arriving = self.state.arriving(action.step.task)
        live = self.live()
        dead = [one for one in arriving if one.start not in live and processes.status_of(one) != 0]
        if dead:
            names = ", ".join(map(_ended, dead))
            return self.fail(action, f"it ended as soon as it was started: {names}")
        reports = [checkpoints.marks_of(Path(one.progress)) for one in arriving if one.start in live]
        cold = any(marks and "warm" not in marks for marks in reports)
        if cold and waited_s >= self.settings.ready_wait_s:
            return self.fail(action, f"not warm within {self.settings.ready_wait_s:g} s")
        silent = not all(reports)
        if cold or (silent and waited_s < self.settings.start_window_s):
            return False
        self.record(r.Through(step=action.step.id))
        return True


def _ended(role: Process) -> str:
    said = processes.telling_line(Path(role.log))
    return f"{role.task}/{role.role}" + (f": {said}" if said else "") + f" (see {role.log})"
