"""Every rule over every op of a module: findings with code, place and fix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from graphgen.analysis import called
from graphgen.analysis.liveness import peak_memory
from graphgen.ir import Function, Module, Op, Role, Value
from graphgen.ir.dtype import c64
from graphgen.json_value import Json
from graphgen.lowering.check.compiler_rules import (
    CompilerRule,
    dtype_status,
    module_rules,
    opcode_of,
    rules_by_op,
    status_of,
)
from graphgen.lowering.check.op_attributes import attributes_of
from graphgen.lowering.check.predicates import PREDICATES, Request
from graphgen.lowering.cost.roofline import instruction_count
from graphgen.ops import OPS
from graphgen.ops.control import kernel_of
from graphgen.ops.custom_calls import NKI
from graphgen.targets import accelerator

# The id of a rule about the compiler (or an opcode), and the rewrite rules of `legalize` for it.
REWRITES: Mapping[str, str] = {
    "int-dot-trn2": "integer-dot",
    "int64-dot": "integer-dot",
    "coll-int": "integer-sum-over-ranks or integer-extreme-over-ranks",
    "scatter-int-compute": "integer-scatter-add",
    "sra-32": "wide-shift",
    "a2a-dim0": "exchange-along-the-first",
    "a2a-2rank-lnc2": "exchange-of-two",
    "fp8e4m3fn-dot": "widened-f8-dot",
    "gather-disjoint": "gather-of-elements",
    "gather-rows": "gather-of-rows",
    "replica-id": "rank-as-input",
    "partition-id": "rank-as-input",
    "sort-trn2": "front-of-sort or sort-by-kernel",
    "status erf": "erf-by-quotients",
}


def rewrite_of(rule: str, target: str) -> str:
    """The pass that removes a finding and its rule; empty if no rule does."""
    found = REWRITES.get(rule)
    return f"legalize{{target={target}}} ({found})" if found else ""


SEVERITIES = ("error", "warn", "perf", "info")
_STATUS = {
    "unsupported": "error",
    "custom_call_only": "error",
    "avoid": "warn",
    "unknown": "warn",
}
_MOST_COMMUNICATORS = 16


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark about a module.

    Attributes:
        severity: one of :data:`SEVERITIES`.
        rule: its id.
        code: the code neuronx-cc is predicted to give; empty where none is known.
        function: where.
        op: the opcode; empty for a remark about the whole program.
        where: the op's place in the user's source.
        what: what was found.
        fix: what to do.
        trust: how far the rule can be trusted.
        source: where the rule is known from.
        rewrite: the pass that writes the op in another form; empty where there is none.
    """

    severity: str
    rule: str
    code: str
    function: str
    op: str
    where: str
    what: str
    fix: str
    trust: str
    source: str
    rewrite: str = ""

    def to_json(self) -> dict[str, Json]:
        """The attributes by name, ``None`` for what is empty."""
        return {
            "severity": self.severity,
            "code": self.code or None,
            "rule": self.rule,
            "function": self.function,
            "op": self.op or None,
            "where": self.where or None,
            "what": self.what,
            "fix": self.fix,
            "rewrite": self.rewrite or None,
            "trust": self.trust,
            "source": self.source or None,
        }


def check(module: Module, request: Request) -> list[Finding]:
    """All findings, errors first, in program order.

    Args:
        module: its programs have static shapes and hold no composite.
        request: the target and the flags.

    Raises:
        GraphgenError: GG0302 for a target or a number of cores there is not.
    """
    accelerator(request.target, request.lnc)
    found: list[Finding] = []
    clean: set[_Signature] = set()
    bodies = {item.name: item for f in _lowered(module) for item in called(module, f, native=False)}
    for body in bodies.values():
        for op in body.block:
            found += _of_op(body, op, request, clean)
    for function in _lowered(module):
        if function.name in bodies:
            continue
        premature = list(_premature(function))
        found += premature
        if not premature:
            for op in function.block:
                found += _of_op(function, op, request, clean)
            found += _of_program(module, function, request)
    found += _communicators(module)
    return sorted(found, key=lambda item: SEVERITIES.index(item.severity))


def _lowered(module: Module) -> list[Function]:
    """The functions handed to the compiler: the programs, or all functions of a foreign module."""
    return module.programs() or list(module.functions.values())


# Name, attributes and types of an op.
_Signature = tuple[object, ...]
# Conditions that look at more than the op itself.
_LOOK_FURTHER = frozenset(("operand_not_constant", "iota_index_extent_gt_operand_dim"))


def _of_op(
    function: Function, op: Op, request: Request, clean: set[_Signature]
) -> Sequence[Finding]:
    """The findings about an op; ``clean`` has the signatures of ops without any."""
    key: _Signature = (
        op.name, op.attrs, len(op.operands), *[v.type for v in (*op.operands, *op.results)],
    )  # fmt: skip
    if key in clean:
        return ()
    found = [*_findings(function, op, request)]
    if not found and not _looks_further(op):
        clean.add(key)
    return found


def _looks_further(op: Op) -> bool:
    """True if a rule about the op depends on what makes its operands."""
    rules = rules_by_op().get(opcode_of(op.name, op.attrs), ())
    return any(not _LOOK_FURTHER.isdisjoint(rule.when) for rule in rules)


def _findings(function: Function, op: Op, request: Request) -> Iterator[Finding]:
    # A kernel in NKI is the custom call of that name, whose target the compiler documents.
    opcode = "custom-call" if kernel_of(op) == NKI else opcode_of(op.name, op.attrs)
    for rule in rules_by_op().get(opcode, ()):
        if rule.targets and request.legality not in rule.targets:
            continue
        if all(PREDICATES[name](op, value, request) for name, value in rule.when.items()):
            yield _finding(rule, function, op, opcode, request)
    severity = _STATUS.get(status_of(opcode)[0])
    if severity and opcode not in rules_by_op():
        yield _by_status(function, op, opcode, severity, request)
    for result in op.results:
        yield from _of_type(function, result, opcode, repr(op.loc), request)
    values = (*op.results, *op.operands)
    of_complex = next((value for value in values if value.dtype.is_complex), None)
    if of_complex is not None:
        yield _complex(function, of_complex, opcode, repr(op.loc), request)


def _of_type(
    function: Function, value: Value, opcode: str, where: str, request: Request
) -> Iterator[Finding]:
    """An element type the device has not; those of complex numbers have a rule of their own."""
    if value.dtype.is_complex:
        return
    status, note = dtype_status(value.dtype.name, request.legality)
    if status == "error":
        text, kind = value.type.text, value.dtype.name
        what = f"{opcode} gives {text}: {kind} is not an element type of the device"
        yield Finding(
            "error", "dtype", "", function.name, opcode, where, what, note, "official", ""
        )  # fmt: skip


def _complex(
    function: Function, value: Value, opcode: str, where: str, request: Request
) -> Finding:
    """An op of complex numbers; for the next SDK a warning of those that it lists for c64."""
    rule = module_rules()["complex"]
    listed = opcode == "parameter" or opcode in cast(Sequence[str], rule.when["c64_next"])
    accepted = request.sdk_next and listed and value.dtype is c64
    what = f"{opcode} of {value.type.text}: Neuron has no complex numbers"
    return Finding(
        "warn" if accepted else rule.severity, rule.id, "" if accepted else rule.code,
        function.name, opcode, where, what, rule.fix, rule.trust, rule.source,
    )  # fmt: skip


def _severity(rule: CompilerRule, opcode: str, request: Request) -> str:
    """Some errors are warnings while the compiler narrows integers by itself."""
    flag = str(rule.when.get("unless_flag", ""))
    if rule.severity != "error" or not flag:
        return rule.severity
    if not flag.startswith("--implicit-integer-downcast"):
        return "warn" if flag in request.flags else "error"
    allowed = f"--implicit-integer-downcast={opcode.replace('-', '_')}" in request.flags
    return "warn" if allowed or "downcast=all" in request.flags or not request.sdk_next else "error"


def _finding(
    rule: CompilerRule, function: Function, op: Op, opcode: str, request: Request
) -> Finding:
    kinds = ", ".join(value.type.text for value in op.operands)
    shown = f"{opcode}({kinds}) -> {op.results[0].type.text}"
    where, severity = repr(op.loc), _severity(rule, opcode, request)
    return Finding(
        severity, rule.id, rule.code, function.name, opcode, where, shown, rule.fix, rule.trust,
        rule.source, rewrite_of(rule.id, request.target),
    )  # fmt: skip


def _by_status(function: Function, op: Op, opcode: str, severity: str, request: Request) -> Finding:
    status, note = status_of(opcode)
    what = {
        "unsupported": f"{opcode} is not supported",
        "custom_call_only": f"{opcode} is supported as a custom call only",
        "avoid": f"{opcode} is accepted in some cases; AWS's own emitters do not use it",
        "unknown": f"nothing public says whether {opcode} is supported",
    }[status]
    code = "NCC_EVRF001" if severity == "error" else ""
    where = repr(op.loc)
    return Finding(
        severity, "status", code, function.name, opcode, where, what, note, "observed", "",
        rewrite_of(f"status {opcode}", request.target),
    )  # fmt: skip


def _premature(function: Function) -> Iterator[Finding]:
    """Findings about composites and symbolic shapes, which no other rule covers."""
    for op in function.block:
        if OPS[op.name].composite:
            what = f"{op.name} is a composite; legalize the module first"
            yield _program(module_rules()["verify"], function, what, op)
            return
        if not all(result.type.static for result in op.results):
            yield _program(module_rules()["static-shape"], function, op.results[0].type.text, op)
            return


def _of_program(module: Module, function: Function, request: Request) -> Iterator[Finding]:
    rule = module_rules()["tensor-4gb"]
    most = int(str(rule.when["tensor_bytes_gt"]))
    for op in function.block:
        for result in op.results:
            if result.type.nbytes > most:
                yield _program(rule, function, result.type.text, op)
    for value in function.args:
        yield from _of_type(function, value, "parameter", value.name or "", request)
        if value.dtype.is_complex:
            yield _complex(function, value, "parameter", value.name or "", request)
    yield from _states(module, function)
    yield from _memory(module, function, request)
    yield from _instructions(module, function, request)


def _states(module: Module, function: Function) -> Iterator[Finding]:
    """A cache that is kept must be read, and leave with the type it came with."""
    rules = module_rules()
    outputs = dict(function.outputs)
    for row in module.entries(Role.STATE):
        argument, kept = function.arg(row.name), outputs.get(row.name)
        if argument is None or kept is None:
            continue
        if kept.type is not argument.type:
            what = f"{row.name}: {argument.type.text} in, {kept.type.text} out"
            yield _program(rules["alias-shape"], function, what, kept.op)
        if not argument.users:
            yield _program(rules["alias-read"], function, f"{row.name} is not read", None)


def _memory(module: Module, function: Function, request: Request) -> Iterator[Finding]:
    """Arguments, results and the worst moment in between against a core's memory."""
    device = accelerator(request.target, request.lnc)
    held = sum(value.type.nbytes for value in function.args)
    states = {row.name for row in module.entries(Role.STATE)}
    held += sum(value.type.nbytes for name, value in function.outputs if name not in states)
    needs = held + peak_memory(module, function).bytes + device.code_bytes
    if needs > device.hbm_bytes:
        what = f"{needs / 1e9:.1f} GB of {device.hbm_bytes / 1e9:.1f} GB on a core"
        yield _program(module_rules()["hbm"], function, what, None)


def _instructions(module: Module, function: Function, request: Request) -> Iterator[Finding]:
    """A warning over the limit of the compiler, a remark from a tenth of it on.

    Counted are tiles of products and of elementwise work, as ``graphgen cost`` does. No error: the
    count is an estimate, and AWS's guides compile programs for which it is twice the limit.
    """
    rule = module_rules()["inst-limit"]
    most = int(str(rule.when["estimated_instructions_gt"]))
    device = accelerator(request.target, request.lnc)
    count = instruction_count(module, function, device)
    what = f"at least {count:,} instructions of {most:,} at most"
    found = _program(rule, function, what, None)
    if count > most:
        yield found
    elif 10 * count >= most:
        yield replace(found, severity="info", code="", fix="")


def _communicators(module: Module) -> Iterator[Finding]:
    """Different replica groups in one program."""
    for function in _lowered(module):
        groups = {attributes_of(op).get("replica_groups") for op in function.block} - {None}
        if len(groups) > _MOST_COMMUNICATORS:
            what = f"{len(groups)} different replica groups, at most {_MOST_COMMUNICATORS}"
            yield _program(module_rules()["groups-per-neff"], function, what, None)


def _program(rule: CompilerRule, function: Function, what: str, op: Op | None) -> Finding:
    where = repr(op.loc) if op is not None else ""
    opcode = opcode_of(op.name, op.attrs) if op is not None else ""
    return Finding(
        rule.severity, rule.id, rule.code, function.name, opcode, where, what, rule.fix, rule.trust,
        rule.source,
    )  # fmt: skip
