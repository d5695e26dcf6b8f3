"""A profile whose answers are an affine law, so that tests know the exact price."""

from dataclasses import dataclass, field

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin, exactly
from libra_plan.models.query import Query
from libra_plan.profiles.schema import Hardware, Method, ModelShape, ProfileFile, Provenance, Software

SHAPE = ModelShape(
    id="m7", params=7_615_616_512, layers=28, hidden=3584, heads=28, kv_heads=4, head_dim=128, ffn=18944,
    vocab=152064,
)  # fmt: skip


def profile_file(phase="decode", gpu_class="h200_sxm", name=None, **software):
    """Make the file of a profile of a 7B model."""
    return ProfileFile(
        schema_version=1,
        id=name or f"{gpu_class}-{phase}".replace("_", "-"),
        phase=phase,
        model=SHAPE,
        hardware=Hardware(gpu_class=gpu_class, memory_mib=143155.9, intra_node_gib_per_s=365.0),
        software=Software(**{"framework": "f", "version": "1", "precision": "bf16", **software}),
        method=Method(tokens_counted="input", throughput_basis="total"),
        provenance=Provenance(kind="measured", points_sha256="0" * 64),
    )


@dataclass(frozen=True)
class AffineProfile:
    """Answer like a fitted profile: seconds f + a·N + c·N·S and MiB static + m·N for N tokens."""

    profile: ProfileFile = field(default_factory=profile_file)
    fixed_s: float = 0.007
    per_sequence_s: float = 1.5e-4
    per_token_s: float = 3.6e-7
    static: float = 16_000.0
    mib_per_token: float = 0.1
    most_tokens: float = 524_288.0
    most_batch: int = 256
    longest: float = 32_768.0
    shortest: float = 1.0
    layouts: tuple[Layout, ...] = (Layout(),)
    outside_allocator_mib: float | None = 800.0
    asked: list[Query] = field(default_factory=list)
    by_layout: dict[Layout, object] = field(default_factory=dict)

    def _check(self, query):
        outside = (
            query.batch_sequences * query.seq_len_tokens > self.most_tokens * (1 + 1e-9)
            or query.batch_sequences > self.most_batch * (1 + 1e-9)
            or not self.shortest <= query.seq_len_tokens <= self.longest
        )
        if query.layout not in self.layouts or outside:
            raise RefusedError("outside what was measured", got=str(query))

    def assumption(self, layout):
        return f"{layout} is not known here"

    def measured_ranks(self, layout):
        """Its law holds for every number of ranks."""
        return set(range(1, 129))

    def time_s(self, query, *, allow_prior=False):
        self._check(query)
        self.asked.append(query)
        tokens = query.batch_sequences * query.seq_len_tokens
        value = self.fixed_s + tokens * (self.per_sequence_s + self.per_token_s * query.seq_len_tokens)
        return Estimate(value, 0.9 * value, 1.1 * value, "s", Origin.INTERPOLATED)

    def memory_mib(self, query, *, allow_prior=False):
        self._check(query)
        value = self.static + self.mib_per_token * query.batch_sequences * query.seq_len_tokens
        return Estimate(value, value, value * 1.05, "MiB", Origin.INTERPOLATED)

    def static_mib(self, layout=Layout(), *, allow_prior=False):
        return exactly(self.static, "MiB", Origin.MEASURED)

    def decode_coefficients(self, layout=Layout(), *, allow_prior=False):
        return DecodeCoefficients(self.fixed_s, self.per_sequence_s, self.per_token_s, 0.05)

    def max_batch(self, seq_len_tokens, memory_mib, layout=Layout(), *, allow_prior=False):
        self._check(Query(1, seq_len_tokens, layout=layout))
        room = (memory_mib / 1.05 - self.static) / (self.mib_per_token * seq_len_tokens)
        found = int(min(room, self.most_batch, self.most_tokens / seq_len_tokens + 1e-9))
        if found < 1:
            raise RefusedError("does not fit in memory", got=f"{memory_mib:.0f} MiB")
        return found

    def max_batches(self, lengths_tokens, memory_mib, layout=Layout(), *, allow_prior=False):
        """Find the largest batch of every length, or why there is none."""
        found = []
        for length in lengths_tokens:
            try:
                found.append(self.max_batch(length, memory_mib, layout))
            except RefusedError as refusal:
                found.append(refusal)
        return found
